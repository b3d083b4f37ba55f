"""From the user's Python to jaxprs in which a recursive call is one equation.

The body of each function is traced once for each signature and set of static arguments. A call
inside a body becomes a `rec_call` equation, so tracing ends however deep the recursion is. Its
result type comes from the declaration `out=`, or is inferred: the body is traced with every branch
left out that needs a type not known yet (a *probe*), which leaves the base case, and is then
traced with that type until the type no longer changes.

Source: the fixpoint over result types follows Jeong et al., "Improving the expressiveness of deep
learning frameworks with recursion" (EuroSys 2018), section 4.1, where the user declares them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr

from jaxrec import _compat
from jaxrec._errors import RecursionLimitError, SignatureError, UnsupportedError
from jaxrec._texts import listed
from jaxrec.trace import _context
from jaxrec.trace._body import axes_of, trace_body
from jaxrec.trace._call import calls_made, no_derivative
from jaxrec.trace._captures import Bodies, names_of, with_captures
from jaxrec.trace._closure import Closure, closure_of
from jaxrec.trace._declared import declared
from jaxrec.trace._instance import Definition, Identity, Instance
from jaxrec.trace._interrupt import Answers, Postponed, Unresolved, Widened, to_end
from jaxrec.trace._lanes import lanes_apart
from jaxrec.trace._loops import without_loops
from jaxrec.trace._modules import check_initialised, kept_by
from jaxrec.trace._pass import Pass
from jaxrec.trace._paths import add_paths
from jaxrec.trace._refusals import after_widening, changed_before, ever_changing, ever_new, mismatch
from jaxrec.trace._scope import Scope
from jaxrec.trace._signature import (
    Signature,
    accepts,
    common,
    differences,
    is_firmer,
    join,
    leaf_aval,
    leaf_names,
    result_aval,
    show,
    strong,
    traced_aval,
)

_MAX_WIDENED = 1000
"""How often everything is traced once more since the types of some arguments had to be widened."""

_MAX_SPECIALISED = 256
"""The most functions, called by one another, that one function becomes by its static arguments."""

_MAX_ALIKE = 64
"""The most functions that one becomes since what it closes over changes from call to call."""

_NESTED = 8
"""The most bodies of one function traced inside one another: Python's stack has an end.

Also the most probes. Of several functions half as many bodies more: one may be made by another.
"""


class TracedProgram:
    """A recursive function and every function that it reaches, traced.

    Attributes:
        instances: the functions; the first is the one called.
        has_path: whether the first one takes its call path as two more arguments.
        axes: the named axes outside that their bodies compute with.
        collectives: the operations of their bodies that wait for other devices or lanes.
    """

    def __init__(
        self,
        definition: Definition,
        names: tuple[str, ...],
        signature: Signature,
        around: Pass | None = None,
    ) -> None:
        if around is not None:
            _check_apart(definition, around)
        self._around, self._name = around, definition.name
        self._has_wide_types = _compat.setting("jax_enable_x64")
        self._widened: dict[tuple[Definition, Signature], Signature] = {}
        self._widenings: list[str] = []
        self._made: list[Instance] = []
        # That methods are bound to: a body may make some, and run twice.
        self._objects: list[Any] = []
        try:
            self._trace(definition, names, signature)
        except BaseException:
            self.let_go()
            raise

    def closure(self) -> Closure:
        """What the functions close over."""
        named = [x for x in self.instances if not x.definition.helper]
        definitions = dict.fromkeys(x.definition for x in named)
        return closure_of([*definitions], {x.args.tree for x in named}, self._bodies.compute)

    def specialised(self) -> tuple[str, ...]:
        """The static arguments, as text, with which the entry is called besides its own."""
        entry = self.entry.definition
        found = dict.fromkeys(x.definition for x in self.instances if not x.definition.helper)
        return tuple(
            ", ".join(f"{name}={value!r}" for name, value in definition.static)
            for definition in found
            if definition.key != entry.key and definition.key[:1] == entry.key[:1]
        )

    def let_go(self) -> None:
        """Forgets what the functions close over, once the graph is built."""
        self._objects.clear()
        self._answers = Answers()
        for instance in self._made:
            instance.let_go()

    def _trace(self, definition: Definition, names: tuple[str, ...], signature: Signature) -> None:
        try:
            self._trace_until_arguments_hold(definition, signature, names)
        except RecursionError as error:
            innermost = self.instances[-1]
            if innermost.specialised < _NESTED:
                error.add_note(
                    f"This is from tracing {definition.name}. Does it call a function that calls "
                    "itself and is no rec_fn? Decorate that one too. A body calls itself by the "
                    "name of the rec_fn: f = rec_fn(f)."
                )
                raise
            raise RecursionLimitError(ever_new(innermost)) from None
        except TypeError as error:
            if not self._widenings:
                raise
            raise SignatureError(after_widening(self._widenings, error)) from error
        for instance in self.instances:
            captured = names_of(instance.definition.fun, instance.captures)
            instance.names = (*instance.names, *captured)
        self.has_path = add_paths(self.instances)
        bodies = [x.jaxpr.jaxpr for x in self.instances if x.jaxpr is not None]
        self.axes = frozenset[Any]().union(*map(axes_of, bodies))
        self.collectives = frozenset[str]().union(*map(_compat.collectives, bodies))

    def _trace_until_arguments_hold(
        self, definition: Definition, signature: Signature, names: tuple[str, ...]
    ) -> None:
        for _ in range(_MAX_WIDENED):
            if self._try_tracing(definition, signature, names):
                return
        raise SignatureError(
            f"the types of the arguments of {definition.name}, or of a function that it calls, do "
            "not settle: calls widen them again and again. Cast the arguments of its calls to "
            "the types of its first call."
        )

    def _try_tracing(
        self, definition: Definition, signature: Signature, names: tuple[str, ...]
    ) -> bool:
        """Traces everything; False if the types of some arguments had to be widened first."""
        self.instances: list[Instance] = []
        self._by_definition: dict[Definition, list[Instance]] = {}
        self._probed: list[Instance] = []
        self._nested = 0  # probes that run inside one another
        self._answers = Answers()  # to those that were one too many
        self._open: list[Instance] = []
        self._bodies = Bodies()
        try:
            self._add(definition, self._widest(definition, signature), names, None)
            self._settle_all(self.entry)
        except Widened as found:
            self._widen(found)
            return False
        reached = self._reached(self.entry)
        self.instances = [x for x in self.instances if x in reached]
        for k, instance in enumerate(self.instances):
            instance.index = k
        return True

    @property
    def entry(self) -> Instance:
        """The function that the user called."""
        return self.instances[0]

    def static_names(self, fun: Any) -> frozenset[str]:
        """The static arguments of the function called, if `fun` is what it runs."""
        definition = self.entry.definition
        is_same = definition.key[0] is fun
        return frozenset(name for name, _ in definition.static) if is_same else frozenset()

    def _add(
        self,
        definition: Definition,
        args: Signature,
        names: tuple[str, ...],
        caller: Instance | None,
    ) -> Instance:
        self._check_width(args.avals, [f"argument {n} of {definition.name}" for n in names])
        is_found_again = not definition.helper and caller is not None  # else only by itself
        closure = closure_of([definition], [args.tree]) if is_found_again else None
        instance = Instance(len(self.instances), definition, args, names, closure, caller)
        self._made.append(instance)
        self._objects += [x.value for _, x in definition.static if isinstance(x, Identity)]
        if instance.specialised > _MAX_SPECIALISED:
            raise RecursionLimitError(ever_new(instance))
        self.instances.append(instance)
        known = self._by_definition.setdefault(definition, [])
        known.append(instance)
        if sum(x.args == args for x in known) > _MAX_ALIKE:
            raise UnsupportedError(ever_changing(instance))
        return instance

    def _check_width(self, avals: Sequence[ShapedArray], where: Sequence[str]) -> None:
        """Checks that calls take and return types that JAX has where the entry is called."""
        for aval, name in zip(avals, where, strict=True):
            if _compat.is_wide(aval) and not (self._has_wide_types or aval.weak_type):
                raise SignatureError(
                    f"{name} is {show(aval)}, and types of 64 bits are off where "
                    f"{self._name} is called. A body may compute with them for itself, in a "
                    "with jax.enable_x64(True): convert what it passes on or returns. Calls take "
                    "and return them with jax.config.update('jax_enable_x64', True)."
                )

    def callee(
        self,
        caller: Pass,
        definition: Definition,
        args: Sequence[Any],
        leaves: list[Any],
        tree: Any,
        captured: Sequence[Any],
    ) -> tuple[Instance, list[Any]]:
        """Finds the instance that a call enters, and the operands cast to its types.

        Its result type is known then, and, where the caller stages the call, all its captures.
        """
        names = leaf_names(definition.arg_names, args)
        where = [f"argument {n} of {definition.name}, called by {caller.name}," for n in names]
        given = Signature(tree, tuple(map(leaf_aval, leaves, where)))
        while True:
            got = self._widest(definition, given)
            found = self._known(caller.instance, definition, got, names)
            if found is None:
                found = self._add(definition, got, names, caller.instance)
            found.capture(captured)
            try:
                self.result_of(found)
                if not caller.probing:
                    self._trace_where_called(found)
            except Widened as widened:
                if widened.instance is not found:
                    raise
                self._widen(widened)
            else:
                return found, _cast(leaves, found.args)

    def _widen(self, found: Widened) -> None:
        self._widened[found.instance.definition, found.instance.args] = found.after
        self._widenings += found.lines

    def _widest(self, definition: Definition, args: Signature) -> Signature:
        while (definition, args) in self._widened:
            args = self._widened[definition, args]
        return args

    def _known(
        self, caller: Instance, definition: Definition, got: Signature, names: tuple[str, ...]
    ) -> Instance | None:
        """The instance that a call with arguments of type `got` enters, if it exists.

        A call that is recursive enters the instance that is being defined, whose types are those
        of the first call; a call of another function makes an instance for each type.
        """
        known = self._by_definition.get(definition, [])
        recursive = [x for x in caller.chain() if x.definition == definition]
        for instance in recursive:
            if accepts(instance.args, got) and not is_firmer(got, instance.args):
                return instance
        for instance in recursive:
            wider = common(instance.args, got)
            if wider is not None:
                raise Widened(instance, wider, names)
        alike = (x for x in known if x.args == got)
        same = next((x for x in alike if x.closure is None or x.closure.holds()), None)
        if same is not None or not recursive:
            return same
        raise SignatureError(mismatch(caller.name, recursive[0], got, names))

    def result_of(self, instance: Instance) -> Signature:
        """The result type of a function, inferred now if it is not known."""
        if instance.result is None:
            if instance in self._probed:
                raise Unresolved
            instance.result = declared(instance) or self._probe(instance)
        return instance.result

    def _probe(self, instance: Instance) -> Signature:
        if self._nested >= _NESTED:
            known = self._answers.to(instance, self._probed)
            if known is not None:
                return known
        begins = self._nested == 0
        with self._probing(instance):
            while True:
                try:
                    return self._run(instance, probing=True)[1]
                except Postponed as found:
                    if not begins:
                        raise
                    first = found.instance
                except Unresolved:
                    if instance is not self._probed[0]:
                        raise
                    break
                self._infer(first)
        raise RecursionLimitError(
            f"{instance.name} never ends: every path through its body calls {instance.name} again "
            "before it returns, so no base case gives its result type. A base case that "
            "jax.lax.cond, jax.lax.switch or a loop of JAX chooses is not seen: choose with "
            "jaxrec.cond or jaxrec.switch, which take the same arguments, or declare the result "
            "type: rec_fn(out=...), such as out=jax.ShapeDtypeStruct((), jnp.float32)."
        )

    @contextlib.contextmanager
    def _probing(self, instance: Instance) -> Iterator[None]:
        outside, self._nested = len(self._probed), self._nested + 1
        self._probed.append(instance)
        try:
            yield
        finally:
            self._nested -= 1
            del self._probed[outside:]

    def _infer(self, instance: Instance) -> None:
        """Infers the result type of a function, or has it be unknown while others are probed."""
        nested, self._nested = self._nested, 0
        try:
            self.result_of(instance)
        except Unresolved:
            self._probed.append(instance)
        finally:
            self._nested = nested

    def _run(self, instance: Instance, probing: bool) -> tuple[ClosedJaxpr, Signature]:
        check_initialised(instance)
        trees: list[Any] = []
        avals: list[ShapedArray] = []

        def body(*args: Any) -> list[Any]:
            _context.own_trace()
            with kept_by(instance, args), self._bodies.entered(_compat.current_trace()):
                out = instance.definition.fun(*args)
            if out is None:
                raise SignatureError(f"{instance.name} returns None: is a return missing?")
            outs, tree = jax.tree.flatten(out)
            outs = self._as_declared(instance, tree, outs)
            trees.append(tree)
            avals.extend(result_aval(instance.name, x) for x in outs)
            self._check_width(avals, [f"a result of {instance.name}"] * len(avals))
            return outs

        running = Pass(self, instance, probing)
        with _context.entered(running), lanes_apart():
            jaxpr = to_end(lambda fun: trace_body(fun, instance), body)
            if not probing:
                around = jaxpr.consts
                jaxpr = without_loops(lambda args: Scope(running, [*args, *around]), jaxpr)
                instance.capture(self._bodies.captured(instance, jaxpr.consts))
                closed_over = [f"a value that {instance.name} closes over"] * len(instance.captures)
                self._check_width(list(map(traced_aval, instance.captures)), closed_over)
                jaxpr = with_captures(jaxpr, instance.captures)
        return jaxpr, Signature(trees[-1], tuple(avals[-len(jaxpr.out_avals) :] if avals else ()))

    def _as_declared(self, instance: Instance, tree: Any, leaves: list[Any]) -> list[Any]:
        """The results of a body; numbers of Python give way to the types that out= declares."""
        declared = instance.result if instance.definition.out is not None else None
        if declared is None or tree != declared.tree:
            return leaves
        found = Signature(tree, tuple(result_aval(instance.name, x) for x in leaves))
        return _cast(leaves, declared) if accepts(declared, found) else leaves

    def _trace_where_called(self, instance: Instance) -> None:
        """Traces a function where it is called first: what it closes over is what it is there.

        One that is called by very many, each called by the next, is traced when the first has been.
        """
        is_inner = any(x.name == instance.name for x in self._open)
        if instance in self._open or self._holds(instance):
            return
        if len(self._open) >= (_NESTED if is_inner else _NESTED * 3 // 2):
            if instance.left is None:
                instance.left = closure_of([instance.definition], [instance.args.tree])
            return
        if is_inner:
            self._settle(instance)
        else:
            self._settle_all(instance)

    def _settle_all(self, instance: Instance) -> None:
        """Traces a function and all that it reaches, but for what is being traced."""
        while unsettled := [x for x in self._reached(instance) if not x.is_settled()]:
            self._settle(unsettled[0])

    def _holds(self, instance: Instance) -> bool:
        """Whether a function is traced, and all that it reaches as it is known now."""
        if instance.jaxpr is None:
            return False
        return all(x.jaxpr is None or x.is_settled() for x in self._reached(instance))

    def _settle(self, instance: Instance) -> None:
        """Traces a function until calls in what it reaches are as the functions are known then."""
        while self._retrace(instance) and not self._holds(instance):
            pass

    def _retrace(self, instance: Instance) -> bool:
        """Traces a function with what is known now; returns whether more is known then."""
        if instance.left is not None and not instance.left.holds():
            raise UnsupportedError(changed_before(instance))
        before, known = self.result_of(instance), len(instance.captures)
        self._open.append(instance)
        try:
            instance.jaxpr, after = self._run(instance, probing=False)
        finally:
            self._open.pop()
        instance.calls = [call for eqn in instance.jaxpr.eqns for call in calls_made(eqn)]
        changed = self._update_result(instance, before, after)
        return changed or len(instance.captures) > known

    def _reached(self, start: Instance) -> dict[Instance, None]:
        """The instances that one calls, directly or not, less those that are being traced."""
        found: dict[Instance, None] = {}
        todo = [start]
        while todo:
            instance = todo.pop()
            if instance not in found and instance not in self._open:
                found[instance] = None
                todo.extend(callee for callee, _ in instance.calls)
        return found

    def _update_result(self, instance: Instance, before: Signature, after: Signature) -> bool:
        if before.tree == after.tree:
            joined = join(before, after)
            if not differences(joined, before) and not differences(joined, after):
                grew = joined.avals != before.avals
                instance.result = joined
                return grew
            if not differences(joined, after) and instance.definition.out is None:
                instance.result = joined
                return True
        if accepts(before, after):
            return False
        lines = listed(differences(before, after), "\n  ")
        source = "declared by out=" if instance.definition.out is not None else "of its base case"
        raise SignatureError(
            f"the result of {instance.name} differs from the type {source}:\n  {lines}\n"
            "All paths through a recursive function return one type; convert one of them."
        )


def _check_apart(definition: Definition, around: Pass) -> None:
    """An error for a derivative of a function of which the bodies around are a part."""
    outer: Pass | None = around
    while outer is not None:
        if any(x.definition.key == definition.key for x in outer.instance.chain()):
            raise UnsupportedError(no_derivative(definition.name))
        outer = outer.program._around


def _cast(leaves: list[Any], expected: Signature) -> list[Any]:
    return [
        jax.lax.convert_element_type(x, want.dtype)
        if strong(traced_aval(x)).dtype != want.dtype
        else x
        for x, want in zip(leaves, expected.avals, strict=True)
    ]
