"""Arrays that are divided among the devices of a mesh, and what varies over its axes."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax._src import config as _config
from jax._src import core as _core
from jax._src import mesh as _mesh

from jaxrec._compat._arrays import aval_of
from jaxrec._compat._settings import unguarded, with_types_of

if hasattr(_mesh, "device_context"):  # from JAX 0.11 on
    _mesh_around, _no_mesh = vars(_mesh)["device_context"], _mesh.empty_concrete_mesh
else:
    _mesh_around, _no_mesh = vars(_config)["device_context"], None


def as_if_alone(run: Callable[..., Sequence[Any]], operands: Sequence[Any]) -> list[Any]:
    """Runs a function of known arrays outside of the transformations and of the mesh around.

    Inside of a transformation JAX keeps an entry in the cache of a jitted function for every call.
    `jax_debug_key_reuse` would take tapes of keys for keys, though each wave reads other rows, and
    `jax.transfer_guard` is for transfers of the user's: every call puts tables on the device.
    The types of arrays on a mesh with explicit axes say how they are divided among devices, and
    tapes are none of that mesh. Results have the types that JAX gives the results of operations on
    these operands.
    """
    mesh = _explicit_mesh(operands)
    devices = _mesh_around.swap_local(_no_mesh)
    try:
        with _core.eval_context(), without_mesh(), with_types_of(operands), unguarded():
            made = run(*map(_with_auto_axes, operands))
    finally:
        _mesh_around.set_local(devices)
    return [_in_mesh(x, mesh) for x in made]


def _explicit_mesh(values: Sequence[Any]) -> Any:
    """The mesh around, or the one with explicit axes that a value is divided over."""
    around = jax.sharding.get_abstract_mesh()
    if not around.empty:
        return around
    found = (x.sharding for x in values if _has_explicit_axes(x))
    return next((at.mesh for at in found), around)


def _has_explicit_axes(value: Any) -> bool:
    at = getattr(value, "sharding", None)
    return isinstance(at, jax.sharding.NamedSharding) and not at.mesh.are_all_axes_auto


def is_on_explicit_mesh(value: Any) -> bool:
    """Whether the type of a value says how it is divided over a mesh."""
    at: Any = getattr(aval_of(value), "sharding", None)
    return _has_explicit_axes(aval_of(value)) and not at.mesh.empty


def _with_auto_axes(value: Any) -> Any:
    if not _has_explicit_axes(value):
        return value
    at = value.sharding
    return _with_axes(value, at, (jax.sharding.AxisType.Auto,) * len(at.mesh.axis_names))


def _in_mesh(value: Any, mesh: Any) -> Any:
    at = getattr(value, "sharding", None)
    if mesh.empty or not isinstance(at, jax.sharding.NamedSharding):
        return value
    if at.mesh.axis_names != mesh.axis_names:
        return value
    return _with_axes(value, at, mesh.axis_types)


def _with_axes(value: Any, at: jax.sharding.NamedSharding, types: tuple[Any, ...]) -> Any:
    assert isinstance(at.mesh, jax.sharding.Mesh)
    mesh = jax.sharding.Mesh(at.mesh.devices, at.mesh.axis_names, axis_types=types)
    return jax.device_put(value, jax.sharding.NamedSharding(mesh, at.spec))


def with_axes_of(value: Any, like: Any) -> Any:
    """An array with the type that another one of its shape has on a mesh with explicit axes."""
    return jax.device_put(value, like.sharding) if _has_explicit_axes(like) else value


@contextlib.contextmanager
def without_mesh() -> Iterator[None]:
    """A context in which programs are traced as if there were one device: their jaxprs are kept."""
    checks_vma: Any = vars(_config)["_check_vma"]  # for which collectives need a mesh
    unchecked = checks_vma(False) if checks_vma.value else contextlib.nullcontext()
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())), unchecked:
        yield


def _varying(aval: Any) -> frozenset[Any]:
    """The mesh axes over which a value of a type varies; JAX before 0.10.2 calls them `vma`."""
    if hasattr(aval, "mat"):
        return aval.mat.varying
    return getattr(aval, "vma", frozenset())


def common_vma(avals: Sequence[Any]) -> frozenset[Any]:
    """The mesh axes of `shard_map` over which at least one of the values varies."""
    return frozenset().union(*map(_varying, avals))


def with_vma(aval: Any, vma: frozenset[Any]) -> Any:
    """The type of a value that varies over the mesh axes `vma`."""
    if not vma:
        return aval
    if not hasattr(aval, "mat"):
        return aval.update(vma=vma)
    mesh = jax.sharding.get_abstract_mesh()
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*(None,) * aval.ndim))
    return aval.update(sharding=whole, manual_axis_type=aval.mat.update(varying=vma))


def vary_over(value: Any, vma: frozenset[Any]) -> Any:
    """Marks a value as varying over the mesh axes `vma` of `shard_map`."""
    missing = tuple(vma - _varying(aval_of(value)))
    return jax.lax.pcast(value, missing, to="varying") if missing else value
