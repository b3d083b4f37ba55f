"""One run over the body of a function: how the user's code reaches the program being traced."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax

from jaxrec.trace._call import rec_call
from jaxrec.trace._instance import Definition, Instance
from jaxrec.trace._signature import placeholder

if TYPE_CHECKING:
    from jaxrec.trace._program import TracedProgram


@dataclasses.dataclass(eq=False)
class Pass:
    """One run over the body of an instance: the context in which the user's code runs.

    Attributes:
        program: what it is traced for.
        instance: whose body runs.
        probing: whether only the type of its result is asked for.
        derivatives: numbers the recursions that it takes derivatives of.
    """

    program: TracedProgram
    instance: Instance
    probing: bool
    derivatives: Iterator[int] = dataclasses.field(default_factory=itertools.count)

    @property
    def name(self) -> str:
        """The function whose body is running."""
        return self.instance.name

    def call(
        self,
        definition: Definition,
        args: Sequence[Any],
        rules: int = 0,
        captured: Sequence[tuple[Any, Any]] = (),
    ) -> Any:
        """Stages a call of a recursive function, or stands for its result while probing.

        Args:
            definition: the function.
            args: its arguments.
            rules: how many derivative rules of this body the call stands inside of.
            captured: of values of the bodies around that the function closes over, what they are
                where the call is staged, if that is not where they were computed.
        """
        definition = definition.inside(self.instance.definition.order + rules)
        leaves, tree = jax.tree.flatten(tuple(args))
        closed = [value for value, _ in captured]
        callee, leaves = self.program.callee(self, definition, args, leaves, tree, closed)
        result = self.program.result_of(callee)
        if self.probing:
            outs = [placeholder(aval) for aval in result.avals]
        else:
            here = {id(value): now for value, now in captured}
            passed = [here.get(id(value), value) for value in callee.captures]
            outs = rec_call(callee, [*leaves, *passed], result.avals)
        return jax.tree.unflatten(result.tree, outs)
