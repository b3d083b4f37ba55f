"""The decorator."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, overload

import jax

from jaxrec import _compat
from jaxrec._errors import SignatureError, UnsupportedError
from jaxrec._executor import inside_a_body
from jaxrec._function import Function
from jaxrec.graph._ir import Graph
from jaxrec.primitives._invoke import Invocation
from jaxrec.primitives._options import Options
from jaxrec.primitives._repeat import Repeat, types_of
from jaxrec.primitives._traced import Traces
from jaxrec.report._measure import profile_call, schedule_of
from jaxrec.trace import _context
from jaxrec.trace._instance import Definition, Identity
from jaxrec.trace._parameters import name_of, static_names, told_apart


class RecFn(Function):
    """A recursive function; made by `rec_fn`.

    Calling it runs the recursion in batches, as one JAX operation that can be transformed. Inside
    the body of a recursive function the call is recorded instead, as a call site of the graph.
    """

    __name__: str
    __wrapped__: Callable[..., Any]

    def __init__(
        self, fun: Callable[..., Any], options: Options, static: Mapping[str, frozenset[str]]
    ) -> None:
        """Traces nothing yet; `static`: by option the names of the static arguments it gives."""
        functools.update_wrapper(self, fun)
        super().__init__(fun, options, static)
        self._static = frozenset().union(*static.values())
        self._definitions: dict[Any, Definition] = {}
        self._cache = Traces()
        self._repeats: dict[Any, Repeat] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function: its result, a pytree of arrays."""
        types, leaves = None, ()
        if not (kwargs or self._bound or self._static):
            types, leaves = types_of(args)
            repeat = self._repeats.get(types)
            if repeat is not None and _compat.evaluates_now() and repeat.holds():
                try:
                    return repeat(leaves)
                except (OverflowError, FloatingPointError):
                    pass  # what is below says more
        running = _context.current()
        # A call that is evaluated while the body around it is traced is no part of it.
        if running is not None and not _compat.is_folded((args, kwargs)):
            bound = self._bind(args, kwargs, running.program.static_names(self._fun))
            if not _context.differentiates():
                return running.call(*bound)
            with _context.left(), inside_a_body():
                return self._invocation(*bound, around=running).call()
        definition, dynamic = self._bind(args, kwargs)
        invocation = self._invocation(definition, dynamic)
        result = invocation.call()
        if types is not None and _compat.evaluates_now():
            repeat = invocation.repeat(len(leaves))
            if repeat is not None:
                self._repeats[types] = repeat
        return result

    def with_options(self, **options: Any) -> RecFn:
        """The same function with other options of `rec_fn`; those not named stay as they are.

        Args:
            **options: as the arguments of `rec_fn` of these names.

        Returns:
            A new recursive function. Recursive calls inside the body stay calls of the function
            that the body names; the options that hold are those of the function called at the root.

        Example:
            >>> import jax
            >>> import jaxrec as jr
            >>> @jr.rec_fn
            ... def double(n):
            ...     return jr.cond(n == 0, lambda: 1, lambda: 2 * double(n - 1))
            >>> int(jax.jit(double.with_options(max_calls=64))(10))
            1024
        """
        given = dict(options)
        static = {name: options.pop(name) for name in self._static_by if name in options}
        changed = self._copy()
        changed._options = self._options.replace(**options).checked(self._name)
        changed._static_by = {**self._static_by, **static_names(self._fun, **static)}
        changed._static = frozenset().union(*changed._static_by.values())
        changed._changed_from, changed._taken_from = (self, given), None
        changed._definitions = {}
        changed._repeats = {}
        return changed

    def graph(self, *args: Any, **kwargs: Any) -> Graph:
        """The static tagged graph for arguments of these types.

        Args:
            *args: arguments, or `jax.ShapeDtypeStruct`s in their places.
            **kwargs: likewise.

        Returns:
            The graph: `str()` prints it, `.dot()` gives Graphviz text, Jupyter draws it.

        Example:
            >>> import jaxrec as jr
            >>> @jr.rec_fn
            ... def double(n):
            ...     return jr.cond(n == 0, lambda: 1, lambda: 2 * double(n - 1))
            >>> len(double.graph(3).calls)
            1
        """
        self._check_outside("graph")
        return self._invocation(*self._bind(args, kwargs)).graph

    def schedule(self, *args: Any, in_axes: Any = None, **kwargs: Any) -> Any:
        """The schedule of these arguments: which calls are made, and batched into which waves.

        Args:
            *args: concrete arguments.
            in_axes: as for `jax.vmap`, whose schedule this is then; None for one call.
            **kwargs: as `args`; not mapped.

        Returns:
            A `Schedule` with `.waves`, `.num_calls`, `.depth` and `.call_path(row)`.

        Example:
            >>> import jax.numpy as jnp
            >>> import jaxrec as jr
            >>> @jr.rec_fn
            ... def double(n):
            ...     return jr.cond(n == 0, lambda: 1, lambda: 2 * double(n - 1))
            >>> double.schedule(jnp.array([3, 5]), in_axes=0).num_calls
            10
        """
        self._check_outside("schedule")
        return schedule_of(*self._mapped(args, kwargs, in_axes).known("schedule"))

    def profile(self, *args: Any, in_axes: Any = None, **kwargs: Any) -> Any:
        """Runs the function and reports where the time goes.

        Args:
            *args: concrete arguments.
            in_axes: as for `jax.vmap`, under which it runs then; None for one call.
            **kwargs: as `args`; not mapped.

        Returns:
            A `Profile`: `str()` prints it, `.save_trace(path)` writes it for Perfetto.

        Example:
            >>> import jaxrec as jr
            >>> @jr.rec_fn
            ... def double(n):
            ...     return jr.cond(n == 0, lambda: 1, lambda: 2 * double(n - 1))
            >>> double.profile(3).schedule.num_calls
            4
        """
        self._check_outside("profile")
        return profile_call(*self._mapped(args, kwargs, in_axes).known("profile"))

    def cache_info(self) -> Any:
        """How often the function was traced, and how many programs were compiled, so far.

        Numbers that grow from call to call tell of arguments of ever new shapes, or of values that
        the function closes over and that change: what changes is better passed as an argument.

        Example:
            >>> import jaxrec as jr
            >>> @jr.rec_fn
            ... def double(n):
            ...     return jr.cond(n == 0, lambda: 1, lambda: 2 * double(n - 1))
            >>> int(double(3)), int(double(4)), double.cache_info().traces
            (8, 16, 1)
        """
        return self._cache.info()

    def clear_cache(self) -> None:
        """Forgets what was traced and compiled; the next call traces again.

        It frees the memory of programs that are not called any more, as the method of this name of
        a function that `jax.jit` made.

        Example:
            >>> import jaxrec as jr
            >>> @jr.rec_fn
            ... def double(n):
            ...     return jr.cond(n == 0, lambda: 1, lambda: 2 * double(n - 1))
            >>> int(double(3)), double.cache_info().traces
            (8, 1)
            >>> double.clear_cache()
            >>> double.cache_info().traces
            0
        """
        self._cache.let_go()
        self._definitions.clear()
        self._repeats.clear()

    def collect(self, args: Sequence[Any], kwargs: dict[str, Any], in_axes: Any) -> Any:
        """Calls the function and also returns every call made; see `jaxrec.collect`."""
        self._check_outside("jaxrec.collect")
        invocation = self._mapped(args, kwargs, in_axes)
        result, calls = invocation.collect()
        given = dict(zip(invocation.arg_names, calls.args, strict=True))
        all_args = self._arguments.by_position((*self._bound, *args), given)
        return result, calls._replace(args=all_args[len(self._bound) :])

    def _mapped(self, args: Sequence[Any], kwargs: dict[str, Any], in_axes: Any) -> Invocation:
        """An invocation whose arguments have mapped axes, if `in_axes` says so."""
        definition, dynamic = self._bind(tuple(args), kwargs)
        names = definition.arg_names
        axes = None if in_axes is None else self._arguments.axes(self._bound, args, in_axes, names)
        return self._invocation(definition, dynamic, in_axes=axes)

    def _check_outside(self, what: str) -> None:
        running = _context.current()
        if running is not None:
            raise UnsupportedError(
                f"{what}({self._name}) inside the body of {running.name}: a recursion is looked at "
                "as a whole, from outside. Do so where the outermost function is called."
            )

    def _invocation(self, definition: Definition, dynamic: list[Any], **how: Any) -> Invocation:
        return Invocation(definition, dynamic, self._options, self._cache, **how)

    def _bind(
        self,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        at_root: frozenset[str] = frozenset(),
    ) -> tuple[Definition, list[Any]]:
        """Splits the arguments of a call into the definition they specialise and the arrays.

        Args:
            args: of the call.
            kwargs: likewise.
            at_root: names of arguments that are static besides, since at the root they are.
        """
        arguments = self._arguments.by_name((*self._bound, *args), kwargs)
        names = self._static | at_root
        static = {n: arguments[n] for n in arguments if n in names} if names else {}
        if self._bound or any(map(self._belongs_to, args[:1])):
            name, instance = next(iter(arguments.items()))
            if jax.tree_util.all_leaves([instance]):
                static[name] = Identity(instance)
        self._arguments.check_hashable(static)
        values = tuple((name, told_apart(value)) for name, value in static.items())
        key = (values, tuple(arguments))
        definition = self._definitions.get(key)
        if definition is None:
            definition = self._definition(static, values, tuple(arguments))
            if _context.current() is None:  # else the arguments may have been made by a body
                self._definitions[key] = definition
            for value in static.values():
                if isinstance(value, Identity):
                    value.let_go(functools.partial(_forget, self._definitions, self._cache, key))
        return definition, [v for n, v in arguments.items() if n not in static]

    def _definition(
        self, static: dict[str, Any], values: tuple[Any, ...], ordered: tuple[str, ...]
    ) -> Definition:
        """The function with its static arguments bound.

        Args:
            static: the static arguments.
            values: what tells them from others.
            ordered: the names of all arguments.
        """
        names = tuple(n for n in ordered if n not in static)
        body = self._fun  # not `self`, which has the bound object
        signature = self._arguments.signature

        def restored(dynamic: Sequence[Any]) -> inspect.BoundArguments:
            values = dict(zip(names, dynamic, strict=True))
            values |= {n: v.value if isinstance(v, Identity) else v for n, v in static.items()}
            arguments = {n: values[n] for n in ordered}
            return inspect.BoundArguments(signature, arguments)  # type: ignore[arg-type]

        @functools.wraps(body)
        def fun(*dynamic: Any) -> Any:
            arguments = restored(dynamic)
            return body(*arguments.args, **arguments.kwargs)

        out = self._options.out
        if callable(out) and not isinstance(out, jax.ShapeDtypeStruct):
            declared = out

            def out(*dynamic: Any) -> Any:
                arguments = restored(dynamic)
                return declared(*arguments.args, **arguments.kwargs)

        shown = tuple(static.items())
        memo = self._options.memo
        return Definition(self._name, fun, (self._fun, values), out, names, memo, static=shown)


def _forget(definitions: dict[Any, Definition], cache: Traces, key: Any, _: Any) -> None:
    """Forgets a definition, and what was traced of it: the object that it is bound to is gone."""
    definition = definitions.pop(key, None)
    for traced in [t for k, t in list(cache.items()) if k[0] == definition]:
        cache.drop(traced)


@overload
def rec_fn(
    fun: Callable[..., Any],
    *,
    out: Any = ...,
    max_calls: int | None = ...,
    static_argnums: int | Iterable[int] = ...,
    static_argnames: str | Iterable[str] = ...,
    policy: Callable[..., bool] | None = ...,
    memo: bool = ...,
    workers: int = ...,
) -> RecFn: ...


@overload
def rec_fn(
    fun: None = None,
    *,
    out: Any = ...,
    max_calls: int | None = ...,
    static_argnums: int | Iterable[int] = ...,
    static_argnames: str | Iterable[str] = ...,
    policy: Callable[..., bool] | None = ...,
    memo: bool = ...,
    workers: int = ...,
) -> Callable[[Callable[..., Any]], RecFn]: ...


def rec_fn(
    fun: Callable[..., Any] | None = None,
    *,
    out: Any = None,
    max_calls: int | None = None,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
    policy: Callable[..., bool] | None = None,
    memo: bool = False,
    workers: int = 0,
) -> RecFn | Callable[[Callable[..., Any]], RecFn]:
    """Makes a recursive function of arrays that JAX can compile, batch and differentiate.

    The function may call itself, and other `rec_fn`s that call it back, any number of times: in the
    branches of `jaxrec.cond` or `jaxrec.switch`, in loops of `jax.lax`, in lanes of `jax.vmap`. It
    is traced once, for which Python runs the body a few times, the first of them to learn the
    type of its results; calls that are ready at the same time run as one batch, across the tree and
    across examples. It works under `jit`, `grad`, `vmap` and the other transformations of JAX.

    What it closes over is looked at with every call: where a variable that it names, or a pytree
    there, or what it names of an object, a class or a module, holds another value than when it was
    traced, it is traced anew (and compiled anew, so what changes often is better passed as an
    argument). Helpers, methods and functions of modules count as its own body does, but for those
    of installed libraries. One that is defined inside the body of another may close over what that
    body computes: its calls pass it on. Not seen is what is written in place into a set, a
    `bytearray` or a pytree of more than 1,000 values, and what is reached otherwise, as by default
    arguments, imports in the body, `getattr` with a computed name, a context variable, a weak
    reference, a helper that `jax.jit` has compiled, or a library's function that takes an object
    (its own methods and properties count). What is written in place into a NumPy array may be seen
    or not, as in all of JAX: pass such an array as an argument.

    Args:
        fun: a pure function of pytrees of arrays.
        out: the type of the result, a pytree of `jax.ShapeDtypeStruct` or a function of the
            arguments that gives it. Without it, that of a branch that makes no recursive call.
        max_calls: a bound on the calls of one invocation, all examples together, iterations of
            loops with calls included, and those of the helpers that loops and lanes of `jax.vmap`
            become (`f.schedule(...).num_calls` counts them); examples of `jax.vmap` of which the
            scheduler reads the same numbers count once. Needed only under `jit`, and only where it
            does not follow from the arguments (the nodes of an array of N nodes: N calls). Without
            it a recursion is stopped at 10,000,000 calls, or 1,048,576 nested ones; one whose
            control is computed from arrays at 2,097,152 calls, or fewer where their values take
            more than 1 GiB, or some seconds (16,384 nested ones on executor "host"). The value of a
            function of scalars and arrays of up to 64 elements alone takes no memory for each call,
            so there only nested calls are limited.
        static_argnums: positions of arguments that are not arrays; each value is traced on its own.
        static_argnames: names of such arguments.
        policy: which intermediate results of a cell the backward pass keeps, as for
            `jax.checkpoint`; by default products and factorizations of matrices.
        memo: whether calls with equal arguments are one call, as with `functools.cache`, so that a
            graph given as arrays runs each node once. Arguments must then be indices or counters,
            or arrays that all calls pass on unchanged; examples of a batch share nothing.
        workers: how many threads share the calls of a function all of whose values are scalars; 0:
            as many as there are cores, at most 8. The result does not depend on it.

    Returns:
        A `RecFn`, called as `fun` is.

    Raises:
        SignatureError: calls, branches or results whose types disagree, or calls that are to be
            shared but cannot be compared (when traced).
        RecursionLimitError: a recursion without a base case, or one that does not end.
        CapacityError: more calls than `max_calls`, or no bound under `jit`.

    Example:
        >>> import jaxrec as jr
        >>> @jr.rec_fn
        ... def fibonacci(n):
        ...     return jr.cond(n < 2, lambda: n, lambda: fibonacci(n - 1) + fibonacci(n - 2))
        >>> int(fibonacci(10))
        55

    Source: Jeong et al. (EuroSys 2018), section 4; Kostopoulou et al. (2022) for the static graph.
    """
    options = Options(out=out, max_calls=max_calls, policy=policy, memo=memo, workers=workers)
    make = functools.partial(_make, options, static_argnums, static_argnames)
    return make if fun is None else make(fun)


def _make(
    options: Options,
    argnums: int | Iterable[int],
    argnames: str | Iterable[str],
    fun: Callable[..., Any],
) -> RecFn:
    if not callable(fun) or inspect.isclass(fun):
        raise SignatureError(
            f"rec_fn decorates a function, got {fun!r} of type {type(fun).__name__}; of a class it "
            "decorates the methods, with @staticmethod or @classmethod it stands below them"
        )
    static = static_names(fun, static_argnums=argnums, static_argnames=argnames)
    return RecFn(fun, options.checked(name_of(fun)), static)
