"""Waves that come in sweeps, as on an accelerator, here on CPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zoo_all
import zoo_modes
from cases import picked
from recursions import swapped
from zoo import assert_close

import jaxrec as jr
from jaxrec.primitives import _invoke
from jaxrec.schedule._platform import CPU

FAST = ["gate", "memo_in_stepped", "top_down", "children_by_row", "even_and_odd"]
SLOW = ["walk_by_score", "many_branches", "shared_prologue", "refine", "float64_arguments"]
NAMES = picked(
    ((name,) for name, program in zoo_all.PROGRAMS.items() if program.argnums),
    fast=[(name,) for name in FAST],
    slow=[(name,) for name in SLOW],
)


@pytest.fixture(autouse=True)
def accelerator(monkeypatch):
    monkeypatch.setattr(_invoke, "platform_named", lambda _: CPU._replace(sweep_flops=2e9))


@pytest.mark.parametrize("name", NAMES)
def test_training_step(name):
    example = zoo_all.PROGRAMS[name]
    with example.precision():
        got, want = zoo_modes.jit_grad_vmap(example)
    assert_close(got, want, 10 * example.rtol)


@pytest.mark.parametrize("stepped", [False, True])
def test_all_cells_run_in_one_loop(stepped, monkeypatch):
    def loops():
        lowered = jax.jit(swapped(3000, stepped=stepped)).lower(jnp.eye(9), 5)
        return lowered.as_text().count("stablehlo.while")

    assert loops() == 1
    monkeypatch.setattr(_invoke, "platform_named", lambda _: CPU)
    assert loops() > 4


@pytest.mark.parametrize("stepped", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_third_derivatives(stepped):
    w = jnp.linspace(0.1, 0.9, 81).reshape(9, 9)

    def along(t):
        return swapped(60, stepped=stepped)(w * t, 3)

    third = jax.jit(jax.grad(jax.grad(jax.grad(along))))(0.5)
    with jr.executor("reference"):
        assert_close(third, jax.grad(jax.grad(jax.grad(along)))(0.5), 1e-3)


def test_control_of_many_types():
    @jr.rec_fn(max_calls=40)
    def mixed(x, n, flag, half, real):
        def more():
            below = mixed(x * 0.9, n + 1, ~flag, half * 2, real - 1)
            scale = jnp.where(flag, real, -real) * half
            return below + x * scale.astype(x.dtype) + n.astype(x.dtype)

        return jr.cond((jnp.sum(x) < 0.5) | (real < -20) | (half > 1e4), lambda: x, more)

    def plain(x, n, flag, half, real):
        if np.sum(x) < 0.5:
            return x
        below = plain(x * np.float32(0.9), n + 1, not flag, half * 2, real - 1)
        return below + x * np.float32((real if flag else -real) * half) + np.float32(n)

    x = np.linspace(0.1, 0.6, 5, dtype=np.float32)
    given = jnp.int8(-3), jnp.bool_(True), jnp.bfloat16(0.125), jnp.float32(2.5)
    assert_close(jax.jit(mixed)(x, *given), plain(x, -3, True, 0.125, 2.5), 1e-5)
    with jax.enable_x64(True):
        given = jnp.int64(-3), jnp.bool_(True), jnp.float16(0.125), jnp.float64(2.5)
        assert_close(jax.jit(mixed)(x, *given), plain(x, -3, True, 0.125, 2.5), 1e-5)


def test_collected_calls():
    @jr.rec_fn(max_calls=100)
    def down(x, n):
        return jr.cond(jnp.sum(x) < 1, lambda: x, lambda: down(x / 2, n + 1) + x)

    x = jnp.arange(6.0)
    _, calls = jax.jit(jr.collect(down))(x, jnp.int32(0))
    numbers = np.asarray(calls.args[1])[np.asarray(calls.valid)]
    np.testing.assert_array_equal(numbers, np.arange(len(numbers)))
    results = np.asarray(calls.results)[np.asarray(calls.valid)]
    halves = [np.arange(6.0) / 2**k for k in range(len(numbers))]
    np.testing.assert_allclose(results, [sum(halves[k:]) for k in range(len(halves))], rtol=1e-6)


@pytest.mark.parametrize("stepped", [False, True])
def test_reports_leave_empty_waves_out(stepped):
    @jr.rec_fn(max_calls=100)
    def tree(x, n):
        def node():
            below = jnp.sin(tree(x * 0.5, n - 1))
            return below * tree(below, n - 2)

        last = (n < 2) | (jnp.sum(x) > 1e9) if stepped else n < 2
        return jr.cond(last, lambda: jnp.cos(x), node)

    report = tree.profile(jnp.linspace(0.1, 0.9, 7), jnp.int32(6))
    schedule = report.schedule
    assert all(wave.count > 0 for wave in schedule.waves)
    assert sum(wave.count for wave in schedule.waves) == schedule.rows
    assert sum(cell.waves for cell in report.cells) > len(schedule.waves)  # those that are empty
