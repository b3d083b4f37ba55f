"""Programs over the types of arrays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from waves import sine
from zoo import SIZES, Language, Tree, forest, normal, program, random_trees, roots
from zoo_functions import fold

H = 3


def on_roots() -> dict[int, Any]:
    return {2: roots()}


def linear(lang: Language) -> Any:
    return fold(lang, lambda w, t: w[t % H], lambda w, a, b: jnp.tanh(w @ a) + a * b)


@program(lambda: (normal(80, H, H, dtype=jnp.float64), forest(), 0), on_roots, rtol=1e-10, x64=True)
def float64(lang: Language) -> Any:
    return linear(lang)


@program(lambda: (normal(81, H, H, dtype=jnp.bfloat16), forest(), 0), on_roots, rtol=2e-2)
def bfloat16(lang: Language) -> Any:
    return linear(lang)


@program(lambda: (normal(82, H, H, dtype=jnp.float16), forest(), 0), on_roots, rtol=4e-3)
def float16(lang: Language) -> Any:
    return linear(lang)


@program(lambda: (normal(83, H, H) + 0.3j * normal(84, H, H), forest(), 0), on_roots)
def complex64(lang: Language) -> Any:
    return fold(lang, lambda w, t: w[t % H], lambda w, a, b: jnp.sin(w @ a) + 1j * a * b)


@program(lambda: (jnp.array([True, False, False]), forest(), 0), on_roots, argnums=())
def boolean(lang: Language) -> Any:
    return fold(lang, lambda w, t: w[t % H], lambda w, a, b: (a & w[0]) | ~b)


@program(lambda: (normal(85, H, 0), forest(), 0), on_roots)
def zero_size(lang: Language) -> Any:
    """Arrays without elements, next to one that has some."""
    return fold(
        lang,
        lambda w, t: (w[t % H], jnp.float32(t)),
        lambda w, a, b: (a[0] + w.T @ jnp.ones(H), a[1] * b[1] + a[0].sum()),
    )


@program(lambda: (jnp.float32(0.5), forest(), 0), on_roots)
def weak_base_case(lang: Language) -> Any:
    """The base case returns Python numbers, the recursion arrays of a stronger type."""
    return fold(
        lang,
        lambda w, t: (0, 0.0, t > 1),
        lambda w, a, b: (a[0] + b[0] + 1, a[1] * b[1] + w, a[2] | b[2]),
    )


@program(lambda: (jnp.bfloat16(0.5), forest(), 0), on_roots, rtol=2e-2)
def weak_base_case_of_bfloat16(lang: Language) -> Any:
    return fold(lang, lambda w, t: 1, lambda w, a, b: a * w + b)


@program(
    lambda: (0.5, normal(89, 6, dtype=jnp.bfloat16), forest(), 0),
    lambda: {3: roots()},
    rtol=2e-2,
)
def number_beside_bfloat16(lang: Language) -> Any:
    """A Python number takes the type of the arrays that it meets."""

    @lang.rec_fn
    def scaled(w, x, tree, i):
        def node():
            return w * (scaled(w, x, tree, tree.left[i]) - scaled(w, x, tree, tree.right[i]))

        return lang.cond(tree.left[i] < 0, lambda: x[tree.token[i]], node)

    return scaled


@program(lambda: (normal(86, H, H), forest(), 0), on_roots)
def mixed_precision(lang: Language) -> Any:
    """States in half precision, sums in single."""

    def node(w, a, b):
        state = jnp.tanh(w @ a[0].astype(jnp.float32)).astype(jnp.float16)
        return state, a[1] + b[1] + state.astype(jnp.float32).sum()

    return fold(lang, lambda w, t: (w[t % H].astype(jnp.float16), w[0, 0]), node)


def small_trees() -> Tree:
    tree, _ = random_trees(np.random.default_rng(7), SIZES)
    return Tree(
        jnp.asarray(tree.left, jnp.int8),
        jnp.asarray(tree.right, jnp.int16),
        jnp.asarray(tree.token, jnp.uint8),
    )


@program(
    lambda: (normal(87, H, H), small_trees(), jnp.int8(0)), lambda: {2: roots().astype(jnp.int8)}
)
def small_indices(lang: Language) -> Any:
    """Indices of several integer types."""

    @lang.rec_fn
    def folded(w, tree, i):
        def node():
            right = folded(w, tree, tree.right[i].astype(jnp.int8))
            return jnp.tanh(w @ folded(w, tree, tree.left[i])) + right

        return lang.cond(tree.left[i] < 0, lambda: w[tree.token[i] % 3], node)

    return folded


@program(
    lambda: (
        normal(88, H, H, dtype=jnp.float64),
        Tree(*(x.astype(jnp.int64) for x in forest())),
        0,
    ),
    lambda: {2: roots().astype(jnp.int64)},
    rtol=1e-10,
    x64=True,
)
def int64_indices(lang: Language) -> Any:
    return linear(lang)


@program(lambda: (normal(89, 6), forest(), 0), on_roots)
def scalars(lang: Language) -> Any:
    """Every value is a scalar, of the data plane because it has a derivative."""
    return fold(lang, lambda w, t: w[t], lambda w, a, b: sine(a) * w[0] + b)


@program(lambda: (jax.random.key(5), forest(), 0), on_roots, argnums=())
def keys_as_results(lang: Language) -> Any:
    """Random keys flow between calls."""

    @lang.rec_fn
    def keys(key, tree, i):
        def node():
            left, right = keys(key, tree, tree.left[i]), keys(key, tree, tree.right[i])
            return jax.random.fold_in(left, jax.random.randint(right, (), 0, 100))

        return lang.cond(tree.left[i] < 0, lambda: jax.random.fold_in(key, tree.token[i]), node)

    def run(key, tree, i):
        return jax.random.key_data(keys(key, tree, i))

    return run
