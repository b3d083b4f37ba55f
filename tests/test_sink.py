"""Values that only a branch reads are computed for the calls that take it: others get no NaN."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import EXECUTORS, in_turn
from jax import lax
from waves import in_waves

import jaxrec as jr
from jaxrec.graph._ir import Prim, Switch, walk
from jaxrec.split._split import split


def same(got: Any, expected: Any) -> None:
    assert np.isfinite(np.asarray(expected)).all()
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-6)


@jr.rec_fn(max_calls=40)
def rooted(x, n):
    root = jnp.sqrt(x)
    return jr.cond(x <= 0, lambda: 2 * x, lambda: root + rooted(x - 1, n + 1))


def python_rooted(x, n):
    return 2 * x if x <= 0 else jnp.sqrt(x) + python_rooted(x - 1, n + 1)


@jr.rec_fn(max_calls=40)
def planned(x, n):
    """Ends where 1 / x and log x are infinite."""
    y = in_waves(jnp.log(x) / x)
    z = y * x
    return jr.switch(n, [lambda: 3 * x, lambda: x, lambda: z + planned(x - 1, n - 2)])


def python_planned(x, n):
    if n > 1:
        return jnp.log(x) / x * x + python_planned(x - 1, n - 2)
    return x if n == 1 else 3 * x


@jr.rec_fn(max_calls=40)
def chosen(x, n):
    """A choice that a cell makes, of calls and of none, in one another."""
    root, cube = jnp.sqrt(x), in_waves(jnp.cbrt(x))
    y = jr.cond(x > 0, lambda: root, lambda: 0.0 * x)
    inner = lambda: jr.cond(x > 0, lambda: cube + chosen(x - 1, n - 1), lambda: x)  # noqa: E731
    return jr.cond(n == 0, lambda: y, lambda: y + inner())


def python_chosen(x, n):
    y = jnp.sqrt(x) if x > 0 else 0.0 * x
    if n == 0:
        return y
    return y + (jnp.cbrt(x) + python_chosen(x - 1, n - 1) if x > 0 else x)


SPHERES = jnp.asarray([[0.0, 0.0, 4.0], [0.0, 3.0, 4.0], [0.0, 1.0, -3.0]])


def hit(where, way):
    """The nearest sphere of radius 1 that a ray meets: its number, -1 for none, and where."""
    to = SPHERES - where
    middle = to @ way
    inside = middle**2 - jnp.sum(to**2, axis=1) + 1
    far = jnp.where((inside > 0) & (middle > 1e-3), middle, jnp.inf)
    nearest = jnp.argmin(far)
    return jnp.where(jnp.isinf(far[nearest]), -1, nearest), middle[nearest], inside[nearest]


def bounce(where, way, sphere, middle, inside):
    point = where + (middle - jnp.sqrt(inside)) * way
    outward = point - SPHERES[sphere]
    outward = outward / jnp.linalg.norm(outward)
    return point, outward, way - 2 * jnp.dot(way, outward) * outward


@jr.rec_fn(max_calls=40)
def ray(where, way, bounces):
    """Brightness: what a ray meets is computed first, and read in two choices."""
    sphere, middle, inside = hit(where, way)
    point, outward, back = bounce(where, way, sphere, middle, inside)
    met = sphere >= 0
    own = jr.cond(met, lambda: 0.3 * jnp.abs(outward[1]), lambda: jnp.abs(way[1]))
    mirrored = jr.cond(
        met & (bounces > 0), lambda: 0.7 * ray(point, back, bounces - 1), lambda: 0.0
    )
    return own + mirrored


def python_ray(where, way, bounces):
    sphere, middle, inside = hit(where, way)
    point, outward, back = bounce(where, way, sphere, middle, inside)
    if sphere < 0:
        return jnp.abs(way[1])
    own = 0.3 * jnp.abs(outward[1])
    return own + (0.7 * python_ray(point, back, bounces - 1) if bounces > 0 else 0.0)


def unit(way):
    return jnp.asarray(way) / np.linalg.norm(way)


WAYS = jnp.stack([unit([0.0, 0.1, 1.0]), unit([0.05, 0.4, 1.0]), unit([0.0, 1.0, 0.0])])
ZERO = jnp.zeros(3)


@jr.rec_fn(max_calls=40)
def normed(v, n):
    """What is divided by also decides."""
    length = jnp.linalg.norm(v)
    return jr.cond(length < 0.5, lambda: v.sum(), lambda: (v / length).sum() + normed(v - 1, n))


def python_normed(v, n):
    length = jnp.linalg.norm(v)
    return v.sum() if length < 0.5 else (v / length).sum() + python_normed(v - 1, n)


STEPS = jnp.array([1.0, 3.0, 2.0, 5.0, 4.0])


@jr.rec_fn(max_calls=40)
def rounded(x, n):
    """An index follows from what a branch reads, and a number without a derivative."""
    root = jnp.sqrt(x)
    i, level = root.astype(int), jax.lax.stop_gradient(root)
    rest = jr.cond(n == 0, lambda: x, lambda: STEPS[i] * (root - i) + rounded(x - 1, n - 1))
    return rest + level


def python_rounded(x, n):
    root = jnp.sqrt(x)
    i, level = root.astype(int), jax.lax.stop_gradient(root)
    if n == 0:
        return x + level
    return STEPS[i] * (root - i) + python_rounded(x - 1, n - 1) + level


@jr.rec_fn(max_calls=40)
def switched(x, n):
    """Two of the branches read a product that is large."""
    v = jnp.full(40, x)
    y = jnp.eye(40) @ (v / jnp.linalg.norm(v))
    going = lambda: y.sum() + switched(x - 1, n - 1)  # noqa: E731
    return jr.switch(n, [lambda: x, going, going])


def python_switched(x, n):
    v = jnp.full(40, x)
    rest = lambda: python_switched(x - 1, n - 1)  # noqa: E731
    return x if n == 0 else (v / jnp.linalg.norm(v)).sum() + rest()


@jr.rec_fn(max_calls=40)
def otherwise(x, n):
    """One branch reads a value and the other may, beside what nobody reads."""
    root, cube = jnp.sqrt(x), jnp.cbrt(x)

    def going():
        _ = cube + 1
        return jr.cond(x > 0, lambda: root + otherwise(x - 1, n - 1), lambda: 0.0 * x)

    return jr.cond(n == 0, lambda: root + cube, going)


def python_otherwise(x, n):
    if n == 0:
        return jnp.sqrt(x) + jnp.cbrt(x)
    return jnp.sqrt(x) + python_otherwise(x - 1, n - 1) if x > 0 else 0.0 * x


@jr.rec_fn(max_calls=40)
def weighed(x, n):
    """A factor without a derivative is infinite; a choice is read to decide, another by nobody."""
    factor, root = jax.lax.stop_gradient(jnp.log(x)), jnp.sqrt(x)
    product = x * factor
    level = jr.cond(n > 1, lambda: root, lambda: root + 1)
    _ = jr.cond(n > 2, lambda: root, lambda: root + 2)

    def going():
        rest = weighed(x - 1, n - 1)
        return jr.cond(level > 1, lambda: root + product + rest, lambda: product + rest)

    return jr.cond(n == 0, lambda: 3 * x, going)


def python_weighed(x, n):
    if n == 0:
        return 3 * x
    product, root = x * jax.lax.stop_gradient(jnp.log(x)), jnp.sqrt(x)
    level = root if n > 1 else root + 1
    rest = python_weighed(x - 1, n - 1)
    return root + product + rest if level > 1 else product + rest


CASES = {
    "stepped": (rooted, python_rooted, (3.0, 0)),
    "planned": (planned, python_planned, (2.0, 4)),
    "read to decide": (normed, python_normed, (jnp.full(3, 2.0), 3)),
    "read for an index": (rounded, python_rounded, (3.0, 3)),
    "two branches": (switched, python_switched, (2.0, 2)),
    "constants": (weighed, python_weighed, (3.0, 3)),
    "perhaps": (otherwise, python_otherwise, (2.0, 5)),
    "in one another": (chosen, python_chosen, (2.0, 5)),
    "two choices": (
        lambda d, n: ray(ZERO, d, n),
        lambda d, n: python_ray(ZERO, d, n),
        (WAYS[0], 3),
    ),
}
cases = pytest.mark.parametrize("case", list(CASES))
LARGE = ("two branches", "two choices")


@pytest.mark.parametrize(("case", "executor"), in_turn(CASES, first=1))
def test_gradient(case: str, executor: str) -> None:
    fun, python, args = CASES[case]
    with jr.executor(executor):
        value, gradient = jax.value_and_grad(fun)(*args)
    same(value, python(*args))
    same(gradient, jax.grad(python)(*args))


@cases
def test_gradient_under_jit(case: str) -> None:
    fun, python, (x, n) = CASES[case]
    same(jax.jit(jax.grad(fun))(x, n), jax.grad(python)(x, n))


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.exhaustive if case in LARGE else pytest.mark.slow)
        for case in CASES
    ],
)
def test_second_derivative(case: str) -> None:
    fun, python, (x, n) = CASES[case]

    def slope(f: Any) -> Any:
        return lambda x: jnp.sum(jax.grad(f)(x, n) * jnp.cos(x))

    same(jax.grad(slope(fun))(x), jax.grad(slope(python))(x))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_gradient_of_a_batch(executor: str) -> None:
    def total(f: Any, ways: Any) -> Any:
        return sum(f(ZERO, way, 3) for way in ways)

    with jr.executor(executor):
        got = jax.grad(lambda d: jnp.sum(jax.vmap(lambda w: ray(ZERO, w, 3))(d)))(WAYS)
    same(got, jax.grad(lambda d: total(python_ray, d))(WAYS))


def operations(f: Any, *args: Any) -> tuple[list[str], list[list[str]]]:
    """The operations of a function's body, and those of each branch of its last choice."""
    body = f.graph(*args).entry.body
    choice = [op for op in body.ops if isinstance(op, Switch)][-1]

    def names(region: Any) -> list[str]:
        return [op.name for op in walk(region) if isinstance(op, Prim)]

    return [op.name for op in body.ops if isinstance(op, Prim)], list(map(names, choice.regions))


def test_what_one_branch_reads_moves():
    body, (going, ending) = operations(rooted, 3.0, 0)
    assert "sqrt" not in body
    assert "sqrt" in going
    assert "sqrt" not in ending


@jr.rec_fn
def read_by_all(x, n):
    root = jnp.sqrt(x)
    return jr.cond(n == 0, lambda: root, lambda: root * read_by_all(x, n - 1))


@jr.rec_fn
def deciding(x, n):
    root = jnp.sqrt(x)
    return jr.cond(root < 1, lambda: x, lambda: root + deciding(x - 1, n))


@jr.rec_fn
def passed(x, n):
    root = jnp.sqrt(x)
    rest = jr.cond(n == 0, lambda: x, lambda: passed(x, n - 1))
    return jr.cond(n > 2, lambda: root * rest, lambda: rest) + root


@jr.rec_fn
def smooth(x, n):
    high, half = jnp.tanh(x), x / 2
    return jr.cond(n == 0, lambda: x, lambda: high * half * smooth(x, n - 1))


@pytest.mark.parametrize("fun", [read_by_all, passed], ids=lambda f: f.__name__)
def test_what_is_read_anyway_stays(fun: Any) -> None:
    body, branches = operations(fun, 3.0, 1)
    assert "sqrt" in body
    assert all("sqrt" not in names for names in branches)


def test_what_decides_is_computed_twice():
    body, (going, ending) = operations(deciding, 3.0, 1)
    assert "sqrt" in body
    assert "sqrt" in going
    assert "sqrt" not in ending


def test_what_has_finite_derivatives_stays():
    body, branches = operations(smooth, 3.0, 1)
    assert {"tanh", "div"} <= set(body)
    assert all("tanh" not in names and "div" not in names for names in branches)


@jr.rec_fn
def product(w, x, n):
    """What two choices read, of which each call may take none, one or both."""
    high = (x / jnp.sum(x)) @ w
    first = jr.cond(n > 2, lambda: high * product(w, x, n - 3), lambda: x)
    return first + jr.cond(n == 0, lambda: x, lambda: high + product(w, x, n - 1))


@pytest.mark.parametrize(("size", "places"), [(3, 2), (64, 1)])
def test_products_are_made_once(size: int, places: int) -> None:
    graph = product.graph(jnp.ones((size, size)), jnp.ones(size), 3)
    names = [op.name for op in walk(graph.entry.body) if isinstance(op, Prim)]
    assert names.count("dot_general") == places


@jr.rec_fn
def idle(x, n):
    root = jnp.sqrt(x)
    _ = root + 1
    return jr.cond(n == 0, lambda: x, lambda: root * idle(x, n - 1))


def test_what_nobody_reads_goes():
    body, _ = operations(idle, 3.0, 1)
    assert "sqrt" not in body
    assert "add" not in body


@jr.rec_fn(max_calls=40)
def attended(w, v, n):
    """A product follows from what is divided, and a choice without calls reads it."""

    def going():
        rest = attended(w, v / 2, n - 1)
        mixed = w @ jax.nn.softmax(rest)
        return jr.cond(jnp.sum(rest) > 1, lambda: mixed, lambda: rest)

    return jr.cond(n == 0, lambda: v, going)


def test_what_was_planned_stays_so():
    graph = attended.graph(jnp.eye(8), jnp.ones(8), 3)
    assert not split(graph).is_stepped


@jax.custom_jvp
def halved(x):
    return x / 2


halved.defjvp(lambda primals, tangents: (halved(*primals), tangents[0] / primals[0]))

STEEP = {
    "gammaincc": (lambda x: jax.scipy.special.gammaincc(0.5, x), 2.0, 0.0),
    "betainc": (lambda x: jax.scipy.special.betainc(0.5, 0.5, x), 0.5, 0.0),
    "overflow": (lambda x: jnp.log1p(jnp.exp(-x)), 2.0, -100.0),
    "rule": (halved, 2.0, 0.0),
}


@pytest.mark.parametrize("name", list(STEEP))
def test_steep_operations(name: str) -> None:
    operation, x, end = STEEP[name]

    @jr.rec_fn(max_calls=40)
    def f(x):
        y = operation(x)
        return jr.cond(x <= end, lambda: 0.0 * x, lambda: y + f(end + 0 * x))

    same(jax.grad(f)(x), jax.grad(operation)(x))


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(
    ("overflows", "x"),
    [
        (lambda x: x**3, [1e25, 1e25, 1.0]),
        (jnp.square, [3e38, 1.0, 1.0]),
        (jnp.cumprod, [1e30, 1e30, 1e-30]),
        (jnp.prod, [1e30, 1e30, 1e30]),
        (lambda x: lax.linalg.tridiagonal_solve(0 * x, 0 * x, 0 * x, x[:, None])[:, 0], [9.0] * 3),
    ],
)
def test_a_derivative_that_overflows(overflows, x, executor):
    @jr.rec_fn
    def f(n, x):
        made = overflows(x)

        def more():
            return jr.cond(x.sum() > 20, lambda: f(n - 1, 1.0 * x), lambda: f(n - 1, x + made))

        return jr.cond(n <= 0, lambda: x.sum(), more)

    with jr.executor(executor):
        same(jax.grad(lambda x: f(3, x))(jnp.array(x)), jnp.ones(3))
