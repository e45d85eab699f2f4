"""Slow NumPy float64 oracle: every algorithm of the paper, one sample at a time.

Written from "Automatic Optimisation of Normalised Neural Networks" (Cho & Shin, 2024), to be
read beside it, and sharing no code with the library it checks. Numbers in brackets count the
paper's displayed equations: (1) network, (5) arc, (6) direction, (7) Taylor polynomial, (8) slope,
(13) change of a layer, (16) latent states, (22) majorant, (23) its terms.

``weights`` are ``(fan_in, fan_out)`` matrices and a row of data multiplies from the left. At a kink
z = 0 the branch for z ≥ 0 counts. The speed s of a layer is the norm of its heading V, 1 in the
paper; a layer of speed 0 stays. With ``bias``, an addition to the paper, a one is appended to the
input of each layer.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray
Layers = Sequence[Array]
Radii = Sequence[float]

LEAK = 0.01  # slope of leaky_relu for z < 0
DELTA = 1.0  # where the Huber loss turns from quadratic to linear
CURVATURE = {"squared": 1.0, "huber": 1.0, "softmax": 0.5, "logistic": 0.25}


# Network, losses, objective and gradient (Section 2.3)


def activate(name: str, z: Array) -> tuple[Array, Array]:
    """Value and derivative of the activation."""
    right, below = z >= 0, np.minimum(z, 0.0)  # exp(below) is finite on the unused branch too
    return {
        "identity": (z, np.ones_like(z)),
        "relu": (np.where(right, z, 0.0), np.where(right, 1.0, 0.0)),
        "leaky_relu": (np.where(right, z, LEAK * z), np.where(right, 1.0, LEAK)),
        "abs": (abs(z), np.where(right, 1.0, -1.0)),
        "elu": (np.where(right, z, np.expm1(below)), np.where(right, 1.0, np.exp(below))),
        "softsign": (z / (1 + abs(z)), 1 / (1 + abs(z)) ** 2),
        "tanh": (np.tanh(z), 1 - np.tanh(z) ** 2),
        "sin": (np.sin(z), np.cos(z)),
        "arctan": (np.arctan(z), 1 / (1 + z**2)),
    }[name]


def sample_loss(name: str, f: Array, y: Array) -> tuple[float, Array]:
    """Loss l(f, y) of one sample and its gradient with respect to f."""
    r = f - y
    if name == "squared":
        return float(r @ r) / 2, r
    if name == "huber":
        value = np.where(abs(r) <= DELTA, r**2 / 2, DELTA * (abs(r) - DELTA / 2))
        return float(value.sum()), np.clip(r, -DELTA, DELTA)
    if name == "softmax":
        log_softmax = f - f.max() - math.log(np.exp(f - f.max()).sum())
        return -float(y @ log_softmax), y.sum() * np.exp(log_softmax) - y
    if name == "logistic":
        sigmoid = np.exp(-np.logaddexp(0.0, -f))
        return float((np.logaddexp(0.0, f) - y * f).sum()), sigmoid - y
    raise KeyError(name)


def forward(weights: Layers, x: Array, activation: str, bias: bool = False) -> Array:
    """Output f(x; w) for one row of data, (1)."""
    return layer_inputs(weights, x, activation, bias)[-1] @ weights[-1]


def layer_inputs(weights: Layers, x: Array, activation: str, bias: bool = False) -> list[Array]:
    """Inputs of each layer for one row of data."""
    one = np.ones(int(bias))
    inputs = [np.concatenate([x, one])]
    for W in weights[:-1]:
        inputs.append(np.concatenate([activate(activation, inputs[-1] @ W)[0], one]))
    return inputs


def objective(weights: Layers, X: Array, Y: Array, activation: str, loss: str) -> float:
    """Mean loss over the rows."""
    outputs = [forward(weights, x, activation) for x in X]
    return math.fsum(sample_loss(loss, f, y)[0] for f, y in zip(outputs, Y, strict=True)) / len(X)


def sum_gradients(
    weights: Layers, x: Array, y: Array, activation: str, loss: str, bias: bool = False
) -> list[Array]:
    """Derivative of one sample's loss in z = h W of each layer, by back-propagation."""
    inputs = layer_inputs(weights, x, activation, bias)
    deltas = [sample_loss(loss, inputs[-1] @ weights[-1], y)[1]]
    for i in reversed(range(1, len(weights))):
        hidden = weights[i][: len(weights[i]) - bias] @ deltas[0]
        deltas.insert(0, activate(activation, inputs[i - 1] @ weights[i - 1])[1] * hidden)
    return deltas


def gradient(
    weights: Layers, X: Array, Y: Array, activation: str, loss: str, bias: bool = False
) -> list[Array]:
    """Euclidean gradient of each layer, sample by sample."""
    gradients = [np.zeros_like(W) for W in weights]
    for x, y in zip(X, Y, strict=True):
        inputs = layer_inputs(weights, x, activation, bias)
        deltas = sum_gradients(weights, x, y, activation, loss, bias)
        for G, h, delta in zip(gradients, inputs, deltas, strict=True):
            G += np.outer(h, delta) / len(X)
    return gradients


# Truncated Taylor series in t: row k of an array is the coefficient of t^k


def plus(a: Array, constant: Array | float) -> Array:
    """Series of a + constant."""
    return np.concatenate([a[:1] + constant, a[1:]])


def product(a: Array, b: Array) -> Array:
    """Series of a·b."""
    return np.stack([sum(a[j] * b[k - j] for j in range(k + 1)) for k in range(len(a))])


def reciprocal(b: Array) -> Array:
    """Series of q = 1/b, from q·b = 1."""
    q = np.zeros_like(b)
    for k in range(len(b)):
        q[k] = ((k == 0) - sum(q[k - j] * b[j] for j in range(1, k + 1))) / b[0]
    return q


def follow(u: Array, start: Array, rate: Callable[[Array], Array]) -> Array:
    """Series of the y that starts at ``start`` and obeys y' = rate(y)·u'."""
    y = np.zeros_like(u)
    y[0] = start
    for k in range(1, len(u)):
        g = rate(y)  # its coefficients below k are final, and only they are used
        y[k] = sum(j * u[j] * g[k - j] for j in range(1, k + 1)) / k
    return y


def exp_series(u: Array) -> Array:
    """Series of exp(u); u may be complex."""
    return follow(u, np.exp(u[0]), lambda y: y)


def log_sum_exp_series(u: Array) -> Array:
    """Series of the logarithm of the sum of exp(u) over the columns of u."""
    top = u[0].max()
    total = exp_series(plus(u, -top)).sum(axis=1)
    return plus(follow(total, np.log(total[0]), lambda _: reciprocal(total)), top)


def activation_series(name: str, u: Array) -> Array:
    """Series of the activation of u, each unit on the branch of its value at t = 0."""
    right = u[0] >= 0
    if name == "elu":
        below = np.where(right, 0.0, u)
        return np.where(right, u, plus(exp_series(below), -1.0))
    if name == "softsign":
        return product(u, reciprocal(plus(np.where(right, u, -u), 1.0)))
    if name == "tanh":
        return follow(u, np.tanh(u[0]), lambda y: plus(-product(y, y), 1.0))
    if name == "sin":
        return np.imag(exp_series(1j * u))
    if name == "arctan":
        return follow(u, np.arctan(u[0]), lambda _: reciprocal(plus(product(u, u), 1.0)))
    left = {"identity": 1.0, "relu": 0.0, "leaky_relu": LEAK, "abs": -1.0}
    return np.where(right, u, left[name] * u)


def loss_series(name: str, f: Array, y: Array) -> Array:
    """Series of the loss l(f, y) of one sample."""
    r = plus(f, -y)
    if name == "squared":
        return product(r, r).sum(axis=1) / 2
    if name == "huber":
        linear = DELTA * plus(np.where(r[0] >= 0, r, -r), -DELTA / 2)
        return np.where(abs(r[0]) <= DELTA, product(r, r) / 2, linear).sum(axis=1)
    if name == "softmax":
        return y.sum() * log_sum_exp_series(f) - f @ y
    if name == "logistic":  # log(1 + exp f) = log(exp 0 + exp f)
        return sum(log_sum_exp_series(np.stack([0 * u, u], axis=1)) for u in f.T) - f @ y
    raise KeyError(name)


def arc_series(W: Array, V: Array, radius: float, order: int) -> Array:
    """Series of the great circle W cos(s t) + μ (V/s) sin(s t), (5) at speed s."""
    s = float(np.linalg.norm(V))
    U = radius * V / (s or 1.0)
    cycle = [W, U, -W, -U]  # derivatives of cos and sin at 0
    return np.stack([cycle[k % 4] * s**k / math.factorial(k) for k in range(order + 1)])


def arc_derivatives(
    weights: Layers,
    headings: Layers,
    radii: Radii,
    X: Array,
    Y: Array,
    activation: str,
    loss: str,
    order: int,
) -> list[float]:
    """Derivatives 0..order of the loss along the great circle at t = 0, as in (7)."""
    layers = zip(weights, headings, radii, strict=True)
    arcs = [arc_series(W, V, mu, order) for W, V, mu in layers]
    total, ks = np.zeros(order + 1), range(order + 1)
    for x, y in zip(X, Y, strict=True):
        h = np.stack([x if k == 0 else 0 * x for k in ks])  # (16)
        for i, arc in enumerate(arcs):
            h = np.stack([sum(h[j] @ arc[k - j] for j in range(k + 1)) for k in ks])
            if i < len(arcs) - 1:
                h = activation_series(activation, h)
        total += loss_series(loss, h, y) / len(X)
    return [math.factorial(k) * float(total[k]) for k in ks]


# Geometry of the sphere (Section 2.2)


def project(W: Array, H: Array, radius: float) -> Array:
    """Tangent part of H at W."""
    return H - np.sum(W * H) * W / radius**2


def turn(W: Array, V: Array, radius: float, angle: float) -> Array:
    """Exponential map of angle·V at W, literally."""
    s = float(np.linalg.norm(V))
    return math.cos(s * angle) * W + math.sin(s * angle) * radius * V / (s or 1.0)


def turn_all(weights: Layers, headings: Layers, radii: Radii, angle: float) -> list[Array]:
    """The point of the arc (5) on the product of spheres."""
    layers = zip(weights, headings, radii, strict=True)
    return [turn(W, V, mu, angle) for W, V, mu in layers]


def distance(X: Array, Y: Array, radius: float) -> float:
    """Angle between two points, literally: good to about 1e-8 near 0 and π."""
    return math.acos(min(1.0, max(-1.0, float(np.sum(X * Y)) / radius**2)))


def operator_norm(W: Array) -> float:
    """Largest singular value."""
    return float(np.linalg.svd(W, compute_uv=False)[0])


# Initialisation (Section 3.1) and direction (Section 3.2)


def spectral_initialisation(
    raw_weights: Layers,
    X_train: Array,
    Y_train: Array,
    X_test: Array,
    Y_test: Array,
    radii: Radii,
) -> tuple[list[Array], Array, Array, Array, Array, float]:
    """Algorithm 1: weights, X_train, Y_train, X_test, Y_test and the factor on the targets.

    A sample of norm zero stays zero; Y_max = 0 is replaced by 1.
    """
    weights = [mu * W / np.linalg.norm(W) for W, mu in zip(raw_weights, radii, strict=True)]
    Y_max = max(float(np.linalg.norm(y)) for y in Y_train) or 1.0
    factor = math.prod(operator_norm(W) for W in weights) / Y_max
    unit_train = np.array([x / (np.linalg.norm(x) or 1.0) for x in X_train])
    unit_test = np.array([x / (np.linalg.norm(x) or 1.0) for x in X_test])
    return weights, unit_train, factor * Y_train, unit_test, factor * Y_test, factor


def steepest(weights: Layers, gradients: Layers, radii: Radii) -> list[Array]:
    """Unit headings against the projected gradients, (6); zero where those are zero."""
    tangents = [project(W, G, mu) for W, G, mu in zip(weights, gradients, radii, strict=True)]
    return [-T / (np.linalg.norm(T) or 1.0) for T in tangents]


def transport(W: Array, V: Array, radius: float, angle: float, H: Array) -> Array:
    """Parallel transport of the tangent vector H along the arc that ``turn`` follows, literally."""
    s = float(np.linalg.norm(V))
    if s == 0:
        return H
    along = float(np.sum(V * H)) / s
    turned = math.cos(s * angle) * V / s - math.sin(s * angle) * W / radius
    return H - along * V / s + along * turned


def inner(A: Layers, B: Layers) -> float:
    """Inner product over all layers."""
    return math.fsum(float(np.sum(a * b)) for a, b in zip(A, B, strict=True))


def unit_max_speed(direction: Layers) -> list[Array]:
    """Scale a direction so that its fastest layer has speed one."""
    speed = max(float(np.linalg.norm(V)) for V in direction) or 1.0
    return [V / speed for V in direction]


def conjugate(g: Layers, last_g: Layers, last_direction: Layers, beta: str) -> list[Array]:
    """Polak-Ribière+ or Hager & Zhang (2005), all vectors at one point; −g if not downhill."""
    change = [a - b for a, b in zip(g, last_g, strict=True)]
    if beta == "polak-ribiere":
        factor = max(inner(g, change) / inner(last_g, last_g), 0.0)
    else:
        along, size = (
            inner(last_direction, change),
            math.sqrt(inner(last_direction, last_direction)),
        )
        factor = (
            inner(g, change) - 2 * inner(change, change) * inner(g, last_direction) / along
        ) / along
        factor = max(factor, -1 / (size * min(0.01, math.sqrt(inner(last_g, last_g)))))
    direction = [factor * d - a for d, a in zip(last_direction, g, strict=True)]
    return direction if inner(direction, g) < 0 else [-a for a in g]


# Kronecker factors of the Gauss-Newton matrix (Martens & Grosse 2015)


def kronecker_factors(
    weights: Layers,
    X: Array,
    Y: Array,
    activation: str,
    loss: str,
    *,
    bias: bool,
    sample_weight: Array,
    unit: float,
) -> tuple[list[Array], list[Array]]:
    """Second moments of the inputs of each layer, and of the gradients in its sums.

    The latter times one factor for all layers, so that at the output their trace is that of the
    loss's curvature bound. ``sample_weight`` sums to one; the loss is in units of ``unit``.
    """
    inputs = [np.zeros((len(W), len(W))) for W in weights]
    slopes = [np.zeros((W.shape[1], W.shape[1])) for W in weights]
    for x, y, part in zip(X, Y, sample_weight, strict=True):
        for A, h in zip(inputs, layer_inputs(weights, x, activation, bias), strict=True):
            A += part * np.outer(h, h)
        deltas = sum_gradients(weights, x, y, activation, loss, bias)
        for B, delta in zip(slopes, deltas, strict=True):
            B += part * np.outer(delta, delta)
    size = float(np.trace(slopes[-1])) / len(slopes[-1])
    return inputs, [B * CURVATURE[loss] / (unit * (size or 1.0)) for B in slopes]


def natural_gradient(
    W: Array, g: Array, radius: float, inputs: Array, slopes: Array, damping: float
) -> Array:
    """Minimiser of ⟨g, v⟩ + ½ vᵀ M v over v tangent at W, by one dense linear system.

    M is the Kronecker product of the factors, each damped (§6.3).
    """
    A = radius**2 * inputs
    balance = math.sqrt((np.trace(A) / len(A)) / (np.trace(slopes) / len(slopes)))
    A = A + math.sqrt(damping) * balance * np.eye(len(A))
    B = slopes + math.sqrt(damping) / balance * np.eye(len(slopes))
    w = W.reshape(-1, 1) / radius
    system = np.block([[np.kron(A, B), w], [w.T, np.zeros((1, 1))]])
    return np.linalg.solve(system, np.append(-g.ravel(), 0.0))[:-1].reshape(W.shape)


# Directions for small batches, one sphere at a time; its layers do not influence each other


REFRESH = 8  # steps between two refreshes, for layers up to 143 wide


def unit(V: Array) -> Array:
    """V divided by its norm; zero stays zero."""
    return V / (float(np.linalg.norm(V)) or 1.0)


class Soap:
    """SOAP (Vyas et al. 2024, Algorithm 3) with gradients of norm one, for one layer.

    The mean is kept in the coordinates of the layer, the mean square in those of the bases.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.factors = [np.zeros((n, n)) for n in shape]
        self.bases = [np.eye(n) for n in shape]
        self.mean, self.square, self.point = (np.zeros(shape) for _ in range(3))

    def refresh(self, W: Array, G: Array) -> None:
        """One step of orthogonal iteration, from the bases so far."""
        g, self.point = unit(G), unit(W)
        for i, M in enumerate((g @ g.T, g.T @ g)):
            self.factors[i] = 0.9 * self.factors[i] + 0.1 * M
            self.bases[i] = np.linalg.qr(self.shifted(i) @ self.bases[i])[0]

    def shifted(self, i: int) -> Array:
        """A factor with a shift at its rounding, which makes it regular."""
        factor = self.factors[i]
        return factor + np.finfo(float).eps * np.trace(factor) * np.eye(len(factor))

    def heading(self, W: Array, G: Array) -> Array:
        """Heading of speed one at W."""
        L, R = self.bases
        # Without what the mean has along the weights of the last refresh.
        self.mean = 0.9 * (self.mean - np.sum(self.point * self.mean) * self.point) + 0.1 * unit(G)
        self.square = 0.95 * self.square + 0.05 * (L.T @ unit(G) @ R) ** 2
        scaled = (L.T @ self.mean @ R) / (np.sqrt(self.square) + 1e-30)
        return unit(project(W, -L @ scaled @ R.T, float(np.linalg.norm(W))))


class Muon:
    """The mean of gradients of norm one, with singular values near one, for one layer."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mean = np.zeros(shape)

    def heading(self, W: Array, G: Array) -> Array:
        """Heading of speed one at W: each singular value is mapped by Muon's polynomial."""
        radius = float(np.linalg.norm(W))
        self.mean = 0.9 * project(W, self.mean, radius) + 0.1 * unit(G)
        U, s, V = np.linalg.svd(unit(self.mean), full_matrices=False)
        for _ in range(5):
            s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
        return unit(project(W, -(U * s) @ V, radius))


class KroneckerMomentum:
    """Mean of the natural gradients of small batches, for one layer."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.factors = [np.zeros((n, n)) for n in shape]
        self.mean = np.zeros(shape)

    def refresh(self, inputs: Array, slopes: Array) -> None:
        """Average the factors of a batch."""
        new = zip(self.factors, (inputs, slopes), strict=True)
        self.factors = [0.9 * old + 0.1 * moments for old, moments in new]

    def heading(self, W: Array, G: Array) -> Array:
        """Heading of speed one at W."""
        A, B = (
            factor / np.mean(np.linalg.eigvalsh(factor)) + 0.3 * np.eye(len(factor))
            for factor in self.factors
        )
        radius = float(np.linalg.norm(W))
        natural = project(W, np.linalg.solve(A, G) @ np.linalg.inv(B), radius)
        self.mean = 0.9 * project(W, self.mean, radius) - 0.1 * unit(natural)
        return unit(self.mean)


def slope_along(weights: Layers, gradients: Layers, headings: Layers, radii: Radii) -> float:
    """First derivative of the loss along the arc, (8)."""
    layers = zip(weights, gradients, headings, radii, strict=True)
    return sum(mu * float(np.sum(project(W, G, mu) * V)) for W, G, V, mu in layers)


# Method 1: the angle from derivatives (Section 3.2.1)


def curvature_step(slope: float, curvature: float, max_angle: float = math.pi / 6) -> float:
    """Algorithm 2, line by line."""
    if curvature == 0:
        return 0.0 if slope == 0 else max_angle
    t_star = -slope / curvature
    return t_star if 0 <= t_star <= max_angle else max_angle


def compare_step(
    slope: float,
    curvature: float,
    loss_at: Callable[[float], float],
    max_angle: float = math.pi / 6,
) -> float:
    """Best of 0, ε and t* (if in [0, ε]) by the true loss; the first of equals.

    If 0 is the best, half of the last of the others, and the safeguard halves further.
    """
    candidates = [0.0, max_angle]
    if curvature != 0 and 0 <= -slope / curvature <= max_angle:
        candidates.append(-slope / curvature)
    return min(candidates, key=loss_at) or candidates[-1] / 2


def taylor_step(derivatives: Sequence[float], max_angle: float = math.pi / 6) -> float:
    """Global minimiser over [0, ε] of the polynomial (7), of any order."""
    # Coefficients in u = t/ε; the constant is not needed. The minimiser is an end point or a real
    # stationary point; real parts of complex roots are harmless, since they cannot be lower.
    c = [d * max_angle**k / math.factorial(k) for k, d in enumerate(derivatives)]
    rates = np.array([k * c[k] for k in range(1, len(c))])
    while len(rates) and abs(rates[-1]) <= 1e-18 * abs(rates).max():
        rates = rates[:-1]  # far below rounding on [0, 1], yet roots would overflow
    inside = sorted(float(u) for u in np.roots(rates[::-1]).real if 0 < u < 1)
    candidates = [0.0, *inside, 1.0]
    return max_angle * min(candidates, key=lambda u: sum(c[k] * u**k for k in range(1, len(c))))


# Method 2: the angle from the majorant (Section 3.2.2)


def data_constant(X: Array, loss: str) -> float:
    """Q of (22), the mean of ‖x‖², times the curvature bound of the loss."""
    return CURVATURE[loss] * math.fsum(float(x @ x) for x in X) / len(X)


def majorant(
    t: float,
    weights: Layers,
    gradients: Layers,
    headings: Layers,
    radii: Radii,
    Q: float,
) -> float:
    """Right-hand side of (22) minus L(w), with (23) for any layer speeds."""
    first_order, log_ratio, P2 = 0.0, 0.0, 1.0
    for W, G, V, mu in zip(weights, gradients, headings, radii, strict=True):
        s, gain = float(np.linalg.norm(V)), operator_norm(W)
        cos_minus_1, sin_over_s = -2 * math.sin(s * t / 2) ** 2, math.sin(s * t) / (s or 1.0)
        change = W * cos_minus_1 + mu * V * sin_over_s  # (13)
        alpha, beta = (
            np.sum(G * W),
            -mu * np.sum(project(W, G, mu) * V),
        )  # the layer's sample_weight
        first_order += float(alpha * cos_minus_1 - beta * sin_over_s)
        log_ratio += math.log1p(operator_norm(change) / gain)
        P2 *= gain
    return first_order + Q / 2 * (P2 * math.expm1(log_ratio)) ** 2  # P1 − P2 without cancellation


def majorant_step(
    weights: Layers, gradients: Layers, headings: Layers, radii: Radii, Q: float
) -> float:
    """Algorithm 3: the majorant's minimiser on [0, π], by a scan and golden section in log t.

    The final bracket is 1e-10 of the angle wide; rounding leaves the angle good to about 1e-8.
    """

    def height(t: float) -> float:
        return majorant(t, weights, gradients, headings, radii, Q)

    grid = [float(t) for t in np.geomspace(1e-12, math.pi, 120)[:-1]] + [math.pi]
    heights = [height(t) for t in grid]
    i = int(np.argmin(heights))
    if heights[i] >= 0:  # the height at t = 0
        return 0.0
    low, high = math.log(grid[max(i - 1, 0)]), math.log(grid[min(i + 1, len(grid) - 1)])
    while high - low > 1e-10:
        part = (math.sqrt(5) - 1) / 2 * (high - low)
        if height(math.exp(high - part)) < height(math.exp(low + part)):
            high = low + part
        else:
            low = high - part
    return min([math.exp((low + high) / 2), grid[i]], key=height)


def data_majorant(
    t: float,
    weights: Layers,
    gradients: Layers,
    headings: Layers,
    radii: Radii,
    X: Array,
    activation: str,
    loss: str,
    bias: bool = False,
) -> float:
    """(22) with the change of each layer's output measured on the data, and ‖Γ_j(t)‖_op after."""
    turned = turn_all(weights, headings, radii, t)
    first_order, growth = 0.0, 0.0
    for i, (W, G, end) in enumerate(zip(weights, gradients, turned, strict=True)):
        change = end - W
        first_order += float(np.sum(G * change))
        inputs = [layer_inputs(weights, x, activation, bias)[i] for x in X]
        moved = math.sqrt(math.fsum(float(np.sum((h @ change) ** 2)) for h in inputs) / len(X))
        growth = growth * operator_norm(end) + moved
    return first_order + CURVATURE[loss] / 2 * growth**2


def closed_form_step(slope: float, radii: Radii, Q: float) -> float:
    """Minimiser of −β t + (Q/2) (P (exp(L t) − 1))², with β = −slope and P the product of radii."""
    L, P = len(radii), math.prod(radii)
    x = -slope / (P**2 * Q * L)
    return math.log1p(2 * x / (1 + math.sqrt(1 + 4 * x))) / L  # = log((1 + √(1 + 4x)) / 2) / L


# The loop


def descend(
    weights: Layers,
    X: Array,
    Y: Array,
    *,
    radii: Radii,
    activation: str,
    loss: str,
    step: str,
    iterations: int,
    max_angle: float = math.pi / 6,
    order: int = 2,
    max_halvings: int = 30,
    direction: str = "steepest",
) -> list[dict[str, Any]]:
    """Descent by the named direction and step rule, with the authors' safeguard.

    One record per accepted turn: ``loss``, ``slope``, ``curvature`` (None where the rule uses
    none), ``proposed``, ``angle``, ``halvings``, ``loss_after``, ``weights`` (after the turn).
    The list ends early when the proposed angle is 0 or no halving gives a strictly lower loss.
    """
    problem, Q = (X, Y, activation, loss), data_constant(X, loss)
    weights, records = list(weights), []
    unit = objective([0 * W for W in weights], *problem)
    last: tuple[list[Array], list[Array]] | None = None  # gradient and direction
    for _ in range(iterations):
        before = objective(weights, *problem)
        gradients = gradient(weights, *problem)
        headings = steepest(weights, gradients, radii)
        if direction != "steepest":
            layers = zip(weights, gradients, radii, strict=True)
            g = [mu * project(W, G, mu) / unit for W, G, mu in layers]  # per radian
            unscaled = conjugate(g, *last, direction) if last else [-a for a in g]
            headings = unit_max_speed(unscaled)
        slope = slope_along(weights, gradients, headings, radii)
        taylor: list[float] = []

        def loss_at(angle: float, w: Layers = weights, v: Layers = headings) -> float:
            return objective(turn_all(w, v, radii, angle), *problem)

        if step in ("curvature", "compare", "taylor"):
            top = order if step == "taylor" else 2
            taylor = arc_derivatives(weights, headings, radii, *problem, top)
            taylor[1] = slope  # Eq. (8): in closed form, it does not cancel near a minimum
        if step == "curvature":
            proposed = curvature_step(slope, taylor[2], max_angle)
        elif step == "compare":
            proposed = compare_step(slope, taylor[2], loss_at, max_angle)
        elif step == "taylor":
            proposed = taylor_step(taylor, max_angle)
        elif step == "majorant":
            proposed = majorant_step(weights, gradients, headings, radii, Q)
        elif step == "closed_form":
            proposed = closed_form_step(slope, radii, Q)
        else:
            raise KeyError(step)

        for halvings in range(max_halvings + 1):
            angle = proposed / 2**halvings
            after = loss_at(angle)
            if 0 < angle < 2 * math.pi and after < before:
                break
        else:
            break
        if direction != "steepest":
            arc = list(zip(weights, headings, radii, strict=True))
            last = tuple(
                [transport(W, V, mu, angle, H) for (W, V, mu), H in zip(arc, vectors, strict=True)]
                for vectors in (g, unscaled)
            )
        weights = turn_all(weights, headings, radii, angle)
        curvature = taylor[2] if len(taylor) > 2 else None
        record = {"loss": before, "slope": slope, "curvature": curvature, "proposed": proposed}
        record |= {"angle": angle, "halvings": halvings, "loss_after": after, "weights": weights}
        records.append(record)
    return records
