"""What a jaxpr holds: what its equations call, which effects they have, what nobody reads."""

import contextlib
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import jax
from jax._src import core as _core
from jax._src import source_info_util as _source_info
from jax._src.interpreters import ad as _ad
from jax._src.interpreters import partial_eval as _pe
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxprs_in_params

_HOME = pathlib.Path(jax.__file__).parent


def is_of_debugging(effect: Any) -> bool:
    """Whether an effect is that of `jax.debug.print` or `jax.debug.callback`."""
    return type(effect).__name__ in ("DebugEffect", "OrderedDebugEffect")


def side_effects(jaxpr: Jaxpr) -> set[str]:
    """What a jaxpr does besides computing its results and showing values to whoever debugs it.

    Returns:
        The names of JAX's types of effects.
    """
    others = (e for e in jaxpr.effects if not is_of_debugging(e))
    return {type(e).__name__ for e in others if not isinstance(e, _core.NamedAxisEffect)}


def axes_named_by(eqn: JaxprEqn) -> set[Any]:
    """The names of axes outside that an equation computes with; `ppermute` has no effect of it."""
    told = {e.name for e in eqn.effects if isinstance(e, _core.NamedAxisEffect)}
    return told.union(eqn.params["axis_name"] if eqn.primitive is jax.lax.ppermute_p else ())


def named_axes(jaxpr: Jaxpr) -> set[Any]:
    """The names of axes outside that a jaxpr computes with, those of `vmap` and of `shard_map`."""
    inner = (x for eqn in jaxpr.eqns for x in jaxprs_in_params(eqn.params))
    return set[Any]().union(*map(axes_named_by, jaxpr.eqns), *map(named_axes, inner))


def collectives(jaxpr: Jaxpr) -> set[str]:
    """The names of the operations of a jaxpr that wait for other devices or lanes."""
    found: set[str] = set()
    for eqn in jaxpr.eqns:
        inner = list(jaxprs_in_params(eqn.params))
        found.update(*map(collectives, inner))
        if axes_named_by(eqn) and not inner and eqn.primitive is not jax.lax.axis_index_p:
            found.add(eqn.primitive.name)
    return found


ALWAYS_INLINED = {"jit": "jaxpr", "closed_call": "call_jaxpr"}
"""Equations that only call a jaxpr, by name, and where they keep it."""

_INLINED = {**ALWAYS_INLINED, "checkpoint": "jaxpr", "remat2": "jaxpr"}


def inlined(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """The jaxpr of an equation that only calls it, None for other equations."""
    where = _INLINED.get(eqn.primitive.name)
    if where is None:
        return None
    inner = eqn.params[where]
    return inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())


def called(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """The jaxpr that an equation computes, whatever it says of derivatives; None for others."""
    if eqn.primitive.name in ("custom_jvp_call", "custom_vjp_call"):
        return eqn.params["call_jaxpr"]
    return inlined(eqn)


def is_of_jax(eqn: JaxprEqn) -> bool:
    """Whether an equation is a function of JAX whose `custom_jvp` rule is its true derivative.

    One that solves is none: its rule is of functions that the user gives it.
    """
    if eqn.primitive.name != "custom_jvp_call":
        return False
    jaxpr: Any = eqn.params["call_jaxpr"]
    about = getattr(jaxpr, "jaxpr", jaxpr).debug_info
    path = pathlib.Path(str(about.func_filename))  # of what Python did not write, there is none
    if not path.is_relative_to(_HOME) or path.name == "solves.py":
        return False
    module = ".".join((jax.__name__, *path.relative_to(_HOME).with_suffix("").parts))
    function = getattr(sys.modules.get(module), about.func_name, None)
    return isinstance(function, jax.custom_jvp)


def opened(closed: ClosedJaxpr) -> ClosedJaxpr:
    """A jaxpr that holds no value: what it closes over are its first arguments."""
    return ClosedJaxpr(_pe.convert_constvars_jaxpr(closed.jaxpr), ())


def scan_counts(eqn: JaxprEqn) -> tuple[int, int]:
    """How many of the first operands of a `scan` are constants, and how many it carries then."""
    if "num_carry" in eqn.params:  # before JAX 0.11
        return eqn.params["num_consts"], eqn.params["num_carry"]
    constants, carried, _ = eqn.params["ft_in"].unpack()
    return len(constants), len(carried)


def moved_results(closed: ClosedJaxpr, moved: Sequence[bool]) -> Sequence[bool]:
    """Which results have a derivative by some operands that JAX does not know to be zero."""
    return _ad.jvp_jaxpr(closed, moved, instantiate=False)[1]


def without_dead(closed: ClosedJaxpr) -> ClosedJaxpr:
    """A jaxpr without what no result follows from, also of what its loops stack."""
    results = [True] * len(closed.jaxpr.outvars)
    jaxpr, _ = _pe.dce_jaxpr(closed.jaxpr, results, instantiate=True)
    return ClosedJaxpr(jaxpr, closed.consts)


def written_at(eqn: JaxprEqn) -> contextlib.AbstractContextManager[Any]:
    """A context in which operations have the name scopes and the source lines of an equation."""
    scopes = _source_info.current_name_stack() + eqn.source_info.name_stack
    return _source_info.user_context(eqn.source_info.traceback, name_stack=scopes)


def traced_under(eqn: JaxprEqn) -> contextlib.AbstractContextManager[Any]:
    """A context with the settings that an equation was traced under, but for the mesh of here.

    Where they hold anyway it changes none: JAX compiles an operation again after each change, also
    from no mesh to an empty one.
    """
    if _MAKES_SETTINGS and type(eqn.ctx)() is eqn.ctx:
        return contextlib.nullcontext()
    return _changed_to(eqn.ctx)


_MAKES_SETTINGS = "__new__" in vars(_core.JaxprEqnContext)
"""Whether JAX tells the settings of here, those that are the same by one object: from 0.10.1 on."""


@contextlib.contextmanager
def _changed_to(settings: Any) -> Iterator[None]:
    mesh = jax.sharding.get_abstract_mesh()
    with settings.manager, jax.sharding.use_abstract_mesh(mesh):
        yield


def is_literal(atom: Any) -> bool:
    """Whether an operand of an equation is a constant written in the program."""
    return isinstance(atom, Literal)
