"""Handwritten digits, and how far each picture can change before its class can.

A change of the picture by δ changes the logits by at most bound·‖δ‖, and a difference of two logits
by at most √2·bound·‖δ‖. So the class stays while ‖δ‖ < (top − second) / (√2·bound).
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from greatcircle import LipschitzClassifier

X, y = load_digits(return_X_y=True)  # 8 × 8 pixels from 0 to 16
X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)

# One unit for all pixels: with the standard scaling a pixel that hardly varies would set the bound.
model = LipschitzClassifier(scaling="max", random_state=0).fit(X, y)


def certain_radius(model: LipschitzClassifier, pictures: np.ndarray) -> np.ndarray:
    logits = np.sort(model.decision_function(pictures), axis=1)
    return (logits[:, -1] - logits[:, -2]) / (np.sqrt(2) * model.certificate_.value)


radius = certain_radius(model, X_test)
right = model.predict(X_test) == y_test
rng = np.random.default_rng(0)
delta = rng.standard_normal(X_test.shape)
delta *= 0.999 * radius[:, None] / np.linalg.norm(delta, axis=1, keepdims=True)
changed = np.sum(model.predict(X_test + delta) != model.predict(X_test))

print(f"accuracy          {right.mean():.3f}")
print(f"bound             {model.certificate_.value:.2f} logits per grey level")
print(f"certain radius    median {np.median(radius):.3f} grey levels")
print(f"    right / wrong median {np.median(radius[right]):.3f} / {np.median(radius[~right]):.3f}")
for size in (1, 2, 4):
    print(f"right and certain within {size}: {np.mean(right & (radius > size)):.1%}")
print(f"classes changed by random changes of that size: {changed}")
