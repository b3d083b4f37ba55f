"""Compiled programs that are saved by one process and run by another one, by `jax.export`."""

from jax.export import DisabledSafetyCheck

from jaxrec.schedule._handlers import handler_names


def export_checks() -> list[DisabledSafetyCheck]:
    """The checks that `jax.export` has to leave out for programs with recursive functions.

    They call the scheduler, and `jax.export` knows of no promise that it stays as it is. There is
    none: run a program with the version of jaxrec that exported it.

    Returns:
        A check for each handler of the scheduler.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jax import export
        >>> import jaxrec as jr
        >>> @jr.rec_fn
        ... def power(x, n):
        ...     return jr.cond(n == 0, lambda: jnp.ones_like(x), lambda: x * power(x, n - 1))
        >>> checks = jr.export_checks()
        >>> exported = export.export(jax.jit(power), disabled_checks=checks)(2.0, 10)
        >>> print(exported.call(2.0, 10))  # `exported.serialize()` gives bytes for other processes
        1024.0
    """
    return [DisabledSafetyCheck.custom_call(name) for name in handler_names()]
