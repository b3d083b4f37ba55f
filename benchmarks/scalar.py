"""What does a call of a scalar recursion cost, against CPython and against C?

`python -m benchmarks.scalar --repeats 7`

The programs of table 1 of Kostopoulou et al. (2022): fib(24..33), ack(3, 3..8), tak(24, 16, 8) and
primes(10000), the number of primes up to 10,000 by recursive trial division. jaxrec runs them end
to end, from Python numbers to a Python number: `jaxrec_1` and `jaxrec_2` on one and two workers,
`jit_2` as a compiled call. `cpython` is the same text as plain Python recursion, in a thread with a
large stack; `c` is gcc at -O2 without inlining, called through ctypes. `ns_per_call` counts the
calls that the program makes, `loops` the runs that are timed together. `ratio_to_cpython` is above
1 where CPython is slower, `ratio_to_c` is how many times the seconds of C.
"""

import argparse
import ctypes
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxrec as jr
from benchmarks._harness import Rows, interleave, seconds, spread

_LOOP_SECONDS = 2e-3

_C_FLAGS = ["-O2", "-fno-inline", "-fno-optimize-sibling-calls", "-shared", "-fPIC"]
_C_SOURCE = """
int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
int ack(int m, int n) {
  return m == 0 ? n + 1 : n == 0 ? ack(m - 1, 1) : ack(m - 1, ack(m, n - 1));
}
int tak(int x, int y, int z) {
  return y >= x ? z : tak(tak(x - 1, y, z), tak(y - 1, z, x), tak(z - 1, x, y));
}
int divides(int n, int d) { return d * d > n ? 0 : n % d == 0 ? 1 : divides(n, d + 1); }
int primes(int n) { return n < 2 ? 0 : primes(n - 1) + (divides(n, 2) ? 0 : 1); }
"""


@jr.rec_fn
def fib(n: Any) -> Any:
    return jr.cond(n < 2, lambda: n, lambda: fib(n - 1) + fib(n - 2))


@jr.rec_fn
def ack(m: Any, n: Any) -> Any:
    def more() -> Any:
        return jr.cond(n == 0, lambda: ack(m - 1, 1), lambda: ack(m - 1, ack(m, n - 1)))

    return jr.cond(m == 0, lambda: n + 1, more)


@jr.rec_fn
def tak(x: Any, y: Any, z: Any) -> Any:
    def inner() -> Any:
        return tak(tak(x - 1, y, z), tak(y - 1, z, x), tak(z - 1, x, y))

    return jr.cond(y >= x, lambda: z, inner)


@jr.rec_fn
def divides(n: Any, d: Any) -> Any:
    def test() -> Any:
        return jr.cond(jax.lax.rem(n, d) == 0, lambda: True, lambda: divides(n, d + 1))

    return jr.cond(d * d > n, lambda: False, test)


@jr.rec_fn
def primes(n: Any) -> Any:
    def more() -> Any:
        return primes(n - 1) + jr.cond(divides(n, 2), lambda: 0, lambda: 1)

    return jr.cond(n < 2, lambda: 0, more)


def _python_fib(n: int) -> int:
    return n if n < 2 else _python_fib(n - 1) + _python_fib(n - 2)


def _python_ack(m: int, n: int) -> int:
    if m == 0:
        return n + 1
    return _python_ack(m - 1, 1 if n == 0 else _python_ack(m, n - 1))


def _python_tak(x: int, y: int, z: int) -> int:
    if y >= x:
        return z
    return _python_tak(_python_tak(x - 1, y, z), _python_tak(y - 1, z, x), _python_tak(z - 1, x, y))


def _python_divides(n: int, d: int) -> bool:
    if d * d > n:
        return False
    return True if n % d == 0 else _python_divides(n, d + 1)


def _python_primes(n: int) -> int:
    return 0 if n < 2 else _python_primes(n - 1) + (0 if _python_divides(n, 2) else 1)


class _Program(NamedTuple):
    """One recursion in the languages that are compared."""

    name: str
    recursive: Any
    python: Callable[..., Any]
    args: list[tuple[int, ...]]


_PROGRAMS = [
    _Program("fib", fib, _python_fib, [(n,) for n in range(24, 34)]),
    _Program("ack", ack, _python_ack, [(3, n) for n in range(3, 9)]),
    _Program("tak", tak, _python_tak, [(24, 16, 8)]),
    _Program("primes", primes, _python_primes, [(10_000,)]),
]


def _compile_c(folder: Path) -> ctypes.CDLL | None:
    """The programs in C, or None without a compiler."""
    if shutil.which("gcc") is None:
        return None
    source, library = folder / "scalar.c", folder / "scalar.so"
    source.write_text(_C_SOURCE)
    subprocess.run(["gcc", *_C_FLAGS, str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def _actions(
    program: _Program, args: tuple[int, ...], c: ctypes.CDLL | None
) -> dict[str, Callable[[], int]]:
    alone, both = (program.recursive.with_options(workers=k) for k in (1, 2))
    jitted = jax.jit(both)
    actions = {
        "jaxrec_1": lambda: int(alone(*args)),
        "jaxrec_2": lambda: int(both(*args)),
        "jit_2": lambda: int(jitted(*args)),
        "cpython": lambda: int(program.python(*args)),
    }
    if c is not None:
        actions["c"] = lambda: int(getattr(c, program.name)(*args))
    return actions


def _calls(program: _Program, args: tuple[int, ...]) -> int:
    """How many calls a program makes."""
    if program.name == "fib":
        return 2 * int(fib(args[0] + 1)) - 1
    try:
        program.recursive.with_options(max_calls=1)(*args)
    except jr.CapacityError as error:  # it names the number needed
        return int(str(error).split(" calls")[0].split()[-1])
    return 1


def _measure(
    program: _Program, args: tuple[int, ...], c: ctypes.CDLL | None, repeats: int
) -> Iterator[dict[str, Any]]:
    actions = _actions(program, args, c)
    results = {peer: action() for peer, action in actions.items()}  # compiles, too
    assert len(set(results.values())) == 1, results
    calls = _calls(program, args)
    # What is short is timed in a loop, as timeit does.
    loops = max(1, round(_LOOP_SECONDS / seconds(actions["cpython"])))
    timed = {
        peer: lambda action=action: [_seconds_of_one(action, loops)]
        for peer, action in actions.items()
    }
    measured = interleave(timed, repeats)
    middle = {peer: float(np.median(values)) for peer, values in measured.items()}
    for peer, values in measured.items():
        row = {"program": program.name, "args": args, "peer": peer, "calls": calls}
        row["loops"] = loops
        row |= spread(values)
        row["ns_per_call"] = 1e9 * middle[peer] / calls
        row["ratio_to_cpython"] = middle["cpython"] / middle[peer]
        row["ratio_to_c"] = middle[peer] / middle["c"] if c is not None else "no gcc"
        yield row


def _seconds_of_one(action: Callable[[], int], loops: int) -> float:
    def loop() -> None:
        for _ in range(loops):
            action()

    return seconds(loop) / loops


def _first_call() -> float:
    """Seconds of the first call of a new function, tracing and compilation included."""

    @jr.rec_fn
    def fresh(n: Any) -> Any:
        return jr.cond(n < 2, lambda: n, lambda: fresh(n - 1) + fresh(n - 2))

    return seconds(lambda: int(fresh(20)))


def _run(names: list[str], repeats: int) -> None:
    rows = Rows("scalar")
    with tempfile.TemporaryDirectory() as folder:
        c = _compile_c(Path(folder))
        for program in _PROGRAMS:
            for args in program.args if program.name in names else []:
                for row in _measure(program, args, c, repeats):
                    rows(**row)
    first = np.array([[_first_call()] for _ in range(repeats)])
    rows(program="first_call", args=(20,), peer="jaxrec", **spread(first))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    known = [program.name for program in _PROGRAMS]
    parser.add_argument("--programs", nargs="+", choices=known, default=known)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    # CPython's recursion needs a deep stack, which only a new thread can have.
    sys.setrecursionlimit(1_000_000)
    threading.stack_size(1 << 29)
    thread = threading.Thread(target=_run, args=(options.programs, options.repeats))
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()
