"""Loops without calls in native programs, in the terms of the graph.

In the graph such a loop is one operation, which JAX evaluates in a cell. Where all that it carries
fits in registers, the native machine turns it itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import jaxpr_as_fun

from jaxrec import _compat
from jaxrec.graph._build import region_of
from jaxrec.graph._ir import Atom, Const, Graph, Op, Prim, Region, Value, region_atoms, walk

_MOST_TURNS = 1 << 12
"""Of a loop that is counted: XLA's code for a cell takes longer to call and less for a turn."""


@dataclasses.dataclass(frozen=True, eq=False)
class Loop:
    """A loop of JAX.

    Attributes:
        inits: what it begins with.
        carried: the same values in a turn.
        cond: what says whether another turn follows.
        body: what computes the values of the next turn.
    """

    inits: tuple[Atom, ...]
    carried: tuple[Value, ...]
    cond: Region
    body: Region

    @property
    def regions(self) -> tuple[Region, Region]:
        """What runs in a turn."""
        return self.cond, self.body

    @property
    def results(self) -> tuple[Atom, ...]:
        """What a turn computes."""
        return self.cond.results + self.body.results

    @property
    def free(self) -> list[Value]:
        """The values from outside that a turn reads."""
        made = {v for region in self.regions for op in walk(region) for v in op.outputs}
        made.update(self.carried)
        read = [a for region in self.regions for a in region_atoms(region)]
        return [a for a in dict.fromkeys(read) if isinstance(a, Value) and a not in made]


class Loops:
    """The loops of a graph.

    Attributes:
        makers: the operation that each value is a result of, those in loops included.
    """

    def __init__(self, graph: Graph) -> None:
        self.makers: dict[Value, Op] = dict(graph.makers)
        self._found: dict[Prim, Loop | None] = {}

    def of(self, op: Op) -> Loop | None:
        """The loop that an operation is, if turns read and make nothing but what it carries."""
        if not isinstance(op, Prim) or op.name not in ("while", "scan") or op.eqn.effects:
            return None
        if op not in self._found:
            loop = self._found[op] = _while(op) if op.name == "while" else _scan(op)
            for region in loop.regions if loop is not None else ():
                self.makers.update((v, inner) for inner in walk(region) for v in inner.outputs)
        return self._found[op]


def _while(op: Prim) -> Loop | None:
    params = op.eqn.params
    first, second = params["cond_nconsts"], params["body_nconsts"]
    of_cond, of_body = op.inputs[:first], op.inputs[first : first + second]
    carried = _like(op.outputs)
    cond = region_of(params["cond_jaxpr"], (*of_cond, *carried), plain=True)
    body = region_of(params["body_jaxpr"], (*of_body, *carried), plain=True)
    return _loop(op.inputs[first + second :], carried, cond, body)


def _scan(op: Prim) -> Loop | None:
    """The loop of a scan that makes no arrays; it counts, also to read those that it is over."""
    params = op.eqn.params
    first, carry = _compat.scan_counts(op.eqn)
    last, length = first + carry, params["length"]
    consts, inits, over = op.inputs[:first], op.inputs[first:last], op.inputs[last:]
    if len(op.outputs) != len(inits) or length > _MOST_TURNS or (over and not length):
        return None
    turn = jaxpr_as_fun(params["jaxpr"])
    zero = Const(np.int32(0), ShapedArray((), np.dtype(np.int32)))
    carried = _like([zero, *op.outputs])

    def body(count: Any, *values: Any) -> list[Any]:
        at = length - 1 - count if params["reverse"] else count
        read = [lax.dynamic_index_in_dim(x, at, keepdims=False) for x in values[last:]]
        return [count + 1, *turn(*values[:last], *read)]

    types = [a.aval for a in (zero, *op.inputs)]
    again = jax.make_jaxpr(lambda count: count < length)(zero.aval)
    inputs = (carried[0], *consts, *carried[1:], *over)
    return _loop(
        (zero, *inits),
        carried,
        region_of(again, carried[:1]),
        region_of(jax.make_jaxpr(body)(*types), inputs, plain=True),
    )


def _loop(
    inits: Sequence[Atom], carried: Sequence[Value], cond: Region | None, body: Region | None
) -> Loop | None:
    if cond is None or body is None or cond.results[0].aval.shape:  # of lanes that `vmap` maps
        return None
    return Loop(tuple(inits), tuple(carried), cond, body)


def _like(atoms: Sequence[Atom]) -> tuple[Value, ...]:
    return tuple(Value(-1 - k, atom.aval) for k, atom in enumerate(atoms))
