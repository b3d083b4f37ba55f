"""What a wave reads of tapes, at once: one operation of the compiled program.

A wave that computes little takes as long as there are operations in it, so the handler looks up
the wave, copies the rows that it reads and adds up cotangents in one call. What it gives back of
the wave's numbers is known only once it has read, and tells where the wave writes. Else XLA knows
an order by the data alone, and copies a whole tape of which they do not say that it is read before
it is overwritten, as by a wave that overwrites two tapes by what it reads from the other each.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero

from jaxrec import _compat
from jaxrec.lowering._rows import gather, has_bytes, is_summed, sum_by_gather
from jaxrec.lowering._tapes import block, row
from jaxrec.schedule._handlers import call_handler

_FIRST = np.int32(0)
"""The number of the one wave of a table of one."""


class Place(NamedTuple):
    """Which rows of its tables a wave reads.

    Attributes:
        width: how many.
        first: the column of its numbers that has the first row; None if that is row 0.
        calls: where rows are right-aligned, the column that has how many of them are calls.
    """

    width: int
    first: int | None = None
    calls: int | None = None

    def start(self, wave: Any) -> Any:
        """The first row, by the numbers of a wave."""
        start = 0 if self.first is None else wave[self.first]
        return start if self.calls is None else start + wave[self.calls] - self.width


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Gather:
    """For each of a wave's rows a row of a tape; a JAX pytree.

    Attributes:
        tape: what is read.
        rows: a table of its row numbers.
    """

    tape: Any
    rows: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Sum:
    """For each of a wave's rows the sum over the readers of a value; a JAX pytree.

    Attributes:
        tape: cotangents by read row.
        reader_rows: read rows grouped by value.
        pointers: a table that says where the readers of a value begin.
        most: the most readers of a value, if that is known.
    """

    tape: Any
    reader_rows: Any
    pointers: Any
    most: int | None = dataclasses.field(default=None, metadata={"static": True})


Gathers = Sequence[Gather]
Sums = Sequence[Sum]


class _Operands(NamedTuple):
    """What `_read` reads by: see `read_wave`, and arrays that have to be there before."""

    waves: Any
    number: Any
    gathers: Gathers = ()
    sums: Sums = ()
    awaited: Sequence[Any] = ()


def read_wave(
    place: Place,
    waves: Any,
    number: Any,
    gathers: Gathers = (),
    sums: Sums = (),
    *,
    is_ordered: bool = True,
) -> tuple[Any, list[Any], list[Any]]:
    """Reads for a wave. Has a forward derivative only.

    Args:
        place: which rows.
        waves: numbers of waves, a row each.
        number: which of them.
        gathers: what to copy.
        sums: what to add up.
        is_ordered: whether the numbers are known only once all has been read; else where that
            costs nothing.

    Returns:
        The numbers of the wave, the copies and the sums.
    """
    copied, odd = _apart(gathers, has_bytes)
    summed, odd_sums = _apart(sums, is_summed)
    number = jnp.asarray(number, jnp.int32)
    given = _Operands(waves, number, copied, summed)
    wave, copies, totals = _read(place, is_ordered, given)
    odd_totals = [_summed(place, wave, x) for x in odd_sums]
    copies = _merged(gathers, has_bytes, copies, [_gathered(place, wave, x) for x in odd])
    if odd_totals and is_ordered:
        awaited = list(filter(has_bytes, odd_totals))
        wave = _read(place, True, _Operands(wave[None], _FIRST, awaited=awaited))[0]
    return wave, copies, _merged(sums, is_summed, totals, odd_totals)


def _apart(given: Sequence[Any], holds: Callable[[Any], bool]) -> tuple[list[Any], list[Any]]:
    """Those whose tape the handler knows, and the others."""
    return [x for x in given if holds(x.tape)], [x for x in given if not holds(x.tape)]


def _merged(
    given: Sequence[Any], holds: Callable[[Any], bool], ones: Sequence[Any], others: Sequence[Any]
) -> list[Any]:
    """What `_apart` has divided, in order."""
    one, other = iter(ones), iter(others)
    return [next(one if holds(x.tape) else other) for x in given]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _read(place: Place, is_ordered: bool, given: _Operands) -> tuple[Any, list[Any], list[Any]]:
    on_cpu = functools.partial(_by_handler, place, 0)
    elsewhere = functools.partial(_by_xla, place, is_ordered)
    return lax.platform_dependent(given, cpu=on_cpu, default=elsewhere)


@functools.partial(_read.defjvp, symbolic_zeros=True)
def _read_jvp(
    place: Place, is_ordered: bool, primals: tuple[_Operands], tangents: tuple[_Operands]
) -> tuple[Any, Any]:
    """What is read of tangents is read before they are written too."""
    (given,), (moving,) = primals, tangents
    wave, *found = _read(place, is_ordered, given)
    dots = moving.gathers, moving.sums
    moved = _moved(given.gathers, moving.gathers), _moved(given.sums, moving.sums)
    made: list[Any] = [[], []]
    if any(moved):
        wave, *made = _read(place, is_ordered, _Operands(wave[None], _FIRST, *moved))
    outs = [_with_zeros(*x) for x in zip(found, dots, made, strict=True)]
    return (wave, *found), (_no_tangent(wave), *outs)


def _with_zeros(outs: Sequence[Any], dots: Sequence[Any], made: Sequence[Any]) -> list[Any]:
    """The tangents of what was read: those read too, and zeros."""
    own = iter(made)
    pairs = zip(outs, dots, strict=True)
    return [next(own) if _is_moved(dot.tape) else _no_tangent(out) for out, dot in pairs]


def _no_tangent(value: Any) -> SymbolicZero:
    return SymbolicZero(jax.typeof(value).to_tangent_aval())


def _is_moved(tangent: Any) -> bool:
    return not isinstance(tangent, SymbolicZero)


def _moved(given: Sequence[Any], dots: Sequence[Any]) -> list[Any]:
    """Reads of the tangents that are not zero, at the same rows."""
    pairs = zip(given, dots, strict=True)
    return [dataclasses.replace(x, tape=d.tape) for x, d in pairs if _is_moved(d.tape)]


def _by_handler(place: Place, axes: int, given: _Operands) -> tuple[Any, list[Any], list[Any]]:
    """Reads by the handler; each tape is several, on as many `axes` in front."""
    run = custom_vmap(functools.partial(_call, place, axes))
    run.def_vmap(functools.partial(_mapped, place, axes))
    return run(given)


def _mapped(
    place: Place, axes: int, size: int, batched: list[_Operands], given: _Operands
) -> tuple[Any, Any]:
    """Reads under `vmap`: all tapes at once, if they are all that is mapped.

    The numbers of the wave are then one for all, and so is what follows from them: of many tangents
    the values that they are tangents of. Where XLA would sum these wrongly each has its own.
    """
    (own,) = batched
    tables = own.waves, own.number, [x.rows for x in own.gathers]
    if any(jax.tree.leaves((tables, [(x.reader_rows, x.pointers) for x in own.sums]))):
        return _one_by_one(place, axes, own, given)

    def stacked(x: Any, is_mapped: Any) -> Any:
        if is_mapped.tape:
            return x
        return dataclasses.replace(x, tape=jnp.broadcast_to(x.tape, (size, *x.tape.shape)))

    gathers = list(map(stacked, given.gathers, own.gathers))
    sums = list(map(stacked, given.sums, own.sums))
    wave, *made = _by_handler(place, axes + 1, given._replace(gathers=gathers, sums=sums))
    are_own = not _compat.sums_shared_products
    if are_own:
        wave = lax.optimization_barrier(jnp.broadcast_to(wave, (size, *wave.shape)))
    return (wave, *made), (are_own, *jax.tree.map(lambda _: True, made))


def _one_by_one(place: Place, axes: int, own: _Operands, given: _Operands) -> tuple[Any, Any]:
    """The same where tables are mapped too: one example after the other."""
    flags, tree = jax.tree.flatten(own)
    leaves = jax.tree.leaves(given)
    mapped = [x for x, is_mapped in zip(leaves, flags, strict=True) if is_mapped]

    def one(values: list[Any]) -> Any:
        each = iter(values)
        pairs = zip(leaves, flags, strict=True)
        found = [next(each) if is_mapped else x for x, is_mapped in pairs]
        return _by_handler(place, axes, tree.unflatten(found))

    made = lax.map(one, mapped)
    return made, jax.tree.map(lambda _: True, made)


def _call(place: Place, axes: int, given: _Operands) -> tuple[Any, list[Any], list[Any]]:
    waves, number, gathers, sums, awaited = given
    tapes = [x.tape for x in (*gathers, *sums)]
    shapes = [(*x.shape[:axes], place.width, *x.shape[axes + 1 :]) for x in tapes]
    types = [jax.ShapeDtypeStruct(s, x.dtype) for s, x in zip(shapes, tapes, strict=True)]
    first, calls = (-1 if x is None else x for x in (place.first, place.calls))
    wave, *found = call_handler(
        "jaxrec_read",
        [jax.ShapeDtypeStruct(waves.shape[1:], waves.dtype), *types],
        waves,
        number,
        *jax.tree.leaves([gathers, sums]),
        *awaited,
        place=np.asarray([len(gathers), len(sums), first, calls, axes], np.int64),
    )
    return wave, found[: len(gathers)], found[len(gathers) :]


def _by_xla(place: Place, is_ordered: bool, given: _Operands) -> tuple[Any, list[Any], list[Any]]:
    wave = row(given.waves, given.number)
    copies = [_gathered(place, wave, x) for x in given.gathers]
    totals = [_summed(place, wave, x) for x in given.sums]
    if is_ordered:
        wave = lax.optimization_barrier((wave, copies, totals, given.awaited))[0]
    return wave, copies, totals


def _gathered(place: Place, wave: Any, given: Gather) -> Any:
    return gather(given.tape, block(given.rows, place.start(wave), place.width))


def _summed(place: Place, wave: Any, given: Sum) -> Any:
    pointers = block(given.pointers, place.start(wave), place.width + 1)
    return sum_by_gather(given.tape, given.reader_rows, pointers, given.most)
