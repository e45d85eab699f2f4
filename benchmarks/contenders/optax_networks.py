"""optax's L-BFGS with its zoom line search, in one compiled step on all rows."""

from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax

from contenders.contest import GRADIENT, Case, Layers, Watch

OPTIMISER = optax.lbfgs()


def loss(layers, X, y):
    h = X
    for i, (w, b) in enumerate(layers):
        h = (jax.nn.relu(h) if i else h) @ w + b
    return jnp.mean(jnp.sum((h - y) ** 2, axis=1))


@jax.jit
def step(layers, state, X, y):
    value, gradient = optax.value_and_grad_from_state(loss)(layers, X, y, state=state)
    updates, state = OPTIMISER.update(
        gradient, state, layers, value=value, grad=gradient, value_fn=partial(loss, X=X, y=y)
    )
    return optax.apply_updates(layers, updates), state


def lbfgs(case: Case, watch: Watch) -> None:
    """Train from He's initial weights, as is usual for a ReLU network in JAX."""
    X, y = jnp.asarray(case.X, jnp.float32), jnp.asarray(case.y, jnp.float32)
    rng = np.random.default_rng(case.seed)
    layers = [
        (jnp.asarray(rng.normal(0, (2 / m) ** 0.5, (m, n)), jnp.float32), jnp.zeros(n))
        for m, n in pairwise(case.sizes)
    ]
    state, done = OPTIMISER.init(layers), 0.0
    # The first state has other types than all later ones, so two programs are compiled.
    jax.block_until_ready(step(*step(layers, state, X, y), X, y))

    def now() -> Layers:
        return [(np.asarray(w), np.asarray(b)) for w, b in layers]

    watch.start()
    while True:
        layers, state = jax.block_until_ready(step(layers, state, X, y))
        # Each trial computes a loss and a gradient; the next step reuses the last ones.
        done += GRADIENT * int(optax.tree.get(state, "info").num_linesearch_steps)
        watch.look(done, now)
