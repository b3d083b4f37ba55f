"""Which parameters are outer values: the same array in every call of an invocation.

A parameter is outer when every call site passes on the caller's own outer value for it. Outer
values are bound once, never copied per call, and their cotangents are accumulated once.

The analysis is a fixpoint over the lattice unknown > one outer value > varying.
"""

from __future__ import annotations

from jaxrec.graph._ir import Atom, Graph, Value

_VARYING = object()


def find_outers(graph: Graph) -> dict[Value, Value]:
    """Maps every outer parameter and captured value to the value it stands for at the root.

    Args:
        graph: a checked graph.

    Returns:
        A map from values to a parameter of the entry function or a captured value; what is
        missing varies from call to call.
    """
    known: dict[Value, object] = {v: v for v in (*graph.captured, *graph.entry.params)}
    params = {param for function in graph.functions for param in function.params}
    while _sweep(graph, known, params):
        pass
    return {value: root for value, root in known.items() if isinstance(root, Value)}


def _sweep(graph: Graph, known: dict[Value, object], params: set[Value]) -> bool:
    """Meets every parameter with what each call site passes; returns whether one has changed."""
    changed = False
    for call in graph.calls:
        for param, atom in graph.arguments(call):
            changed |= _meet(known, param, _passed(known, params, atom))
    return changed


def _passed(known: dict[Value, object], params: set[Value], atom: Atom) -> object:
    """What a call site passes: a root value, varying, or None while that is not known yet."""
    if isinstance(atom, Value) and (atom in known or atom in params):
        return known.get(atom)
    return _VARYING


def _meet(known: dict[Value, object], param: Value, passed: object) -> bool:
    before = known.get(param)
    if passed is None or before is _VARYING or before is passed:
        return False
    known[param] = passed if before is None else _VARYING
    return True
