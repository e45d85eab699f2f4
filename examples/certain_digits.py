"""Classification of handwritten digits with certified robustness radii.

A change of the picture by δ changes the logits by at most bound·‖δ‖, and the difference of two
logits by at most √2·bound·‖δ‖. So no perturbation with ‖δ‖ < (top − second) / (√2·bound) can change
the class.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from greatcircle import LipschitzClassifier

X, y = load_digits(return_X_y=True)  # 8 × 8 pixels from 0 to 16
X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)

# One scale for all pixels: standardised, a pixel that hardly varies would determine the bound.
model = LipschitzClassifier(scaling="max", random_state=0).fit(X, y)


def certified_radius(model: LipschitzClassifier, pictures: np.ndarray) -> np.ndarray:
    logits = np.sort(model.decision_function(pictures), axis=1)
    return (logits[:, -1] - logits[:, -2]) / (np.sqrt(2) * model.certificate_.value)


radius = certified_radius(model, X_test)
correct = model.predict(X_test) == y_test
rng = np.random.default_rng(0)
delta = rng.standard_normal(X_test.shape)
delta *= 0.999 * radius[:, None] / np.linalg.norm(delta, axis=1, keepdims=True)
changed = np.sum(model.predict(X_test + delta) != model.predict(X_test))

print(f"accuracy          {correct.mean():.3f}")
print(f"bound             {model.certificate_.value:.2f} logits per grey level")
print(f"certified radius  median {np.median(radius):.3f} grey levels")
print(
    f"correct / wrong   median {np.median(radius[correct]):.3f} / {np.median(radius[~correct]):.3f}"
)
for size in (1, 2, 4):
    print(f"correct and certified within {size}: {np.mean(correct & (radius > size)):.1%}")
print(f"classes changed by random perturbations of that size: {changed}")
