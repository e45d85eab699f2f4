"""pymanopt's trust regions on the same spheres, with derivatives by JAX.

Cost, gradient and Hessian products are compiled, unlike in pymanopt's own JAX backend.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pymanopt
from pymanopt.manifolds import Product, Sphere
from pymanopt.optimizers import TrustRegions

from contenders.contest import GRADIENT, PRODUCT, Case, Watch
from contenders.spheres import scaled

jax.config.update("jax_enable_x64", False)  # importing pymanopt enables it for the whole process


def cost(points, radii, X, y):
    h = X
    for i, (p, r) in enumerate(zip(points, radii, strict=True)):
        h = (jax.nn.relu(h) if i else h) @ (r * p[:-1]) + r * p[-1]
    return jnp.mean(jnp.sum((h - y) ** 2, axis=1))


def product(points, headings, *data):
    return jax.jvp(lambda p: jax.grad(cost)(p, *data), (points,), (headings,))[1]


VALUE, GRADIENT_OF, PRODUCT_OF = jax.jit(cost), jax.jit(jax.grad(cost)), jax.jit(product)


def single(points):
    return tuple(jnp.asarray(p, jnp.float32) for p in points)


def double(points):
    return [np.asarray(p, np.float64) for p in points]


def trust_regions(case: Case, watch: Watch) -> None:
    problem = scaled(case)
    data = single(problem.radii), jnp.asarray(problem.X), jnp.asarray(problem.y)
    manifold = Product([Sphere(*p.shape) for p in problem.points])
    spent, newest = 0.0, double(problem.points)

    def counted(passes: float, result):
        nonlocal spent
        spent += passes
        jax.block_until_ready(result)
        watch.look(spent, lambda: problem.layers(newest))
        return result

    @pymanopt.function.numpy(manifold)
    def value(*points):
        return float(counted(1.0, VALUE(single(points), *data)))

    @pymanopt.function.numpy(manifold)
    def gradient(*points):
        nonlocal newest
        newest = double(points)  # called at accepted points only
        return double(counted(GRADIENT, GRADIENT_OF(single(points), *data)))

    @pymanopt.function.numpy(manifold)
    def hessian(*both):
        points, headings = both[: len(both) // 2], both[len(both) // 2 :]
        return double(counted(PRODUCT, PRODUCT_OF(single(points), single(headings), *data)))

    start = single(newest)
    jax.block_until_ready([VALUE(start, *data), GRADIENT_OF(start, *data)])
    jax.block_until_ready(PRODUCT_OF(start, start, *data))
    whole = pymanopt.Problem(
        manifold, value, euclidean_gradient=gradient, euclidean_hessian=hessian
    )
    watch.start()
    optimiser = TrustRegions(max_iterations=10**6, max_time=2 * watch.budget, verbosity=0)
    newest = double(optimiser.run(whole, initial_point=newest).point)
    watch.look(spent, lambda: problem.layers(newest), last=True)
