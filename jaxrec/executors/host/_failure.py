"""What went wrong in a task, in terms of the user's function."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxrec._errors import RUN_TIME_ERRORS, JaxRecError
from jaxrec._texts import cut
from jaxrec.executors.host._tasks import Label, bad_rows

_LONGEST = 1200
"""Characters of another error's text that are told."""

_LET_PASS = "Turn off jax_debug_nans and jax_debug_infs to let it pass."


class _BadRow(Exception):
    """A row of a wave has what the checks look for; its argument is the number of the row."""


def bad_values(values: Sequence[Any], checks: tuple[bool, bool]) -> list[int]:
    """Which of some arrays have what the checks look for."""
    if not any(checks):
        return []
    return [k for k, x in enumerate(values) if bool(jnp.any(bad_rows([x], 1, checks)))]


def unlocated(name: str, arguments: Sequence[str]) -> FloatingPointError:
    """The error for what no wave made: it comes of the sum over calls."""
    return FloatingPointError(
        f"invalid value (nan or inf) in the gradient of {name} with respect to "
        f"{', '.join(arguments)}. {_LET_PASS}"
    )


class Failures:
    """Finds and describes the failures of launches.

    Args:
        name: of the function that is invoked.
        labels: of the launches, by number.
        path: the call path of a row of a wave.
        looks: whether rows of waves were searched for NaN or infinity.
    """

    def __init__(
        self,
        name: str,
        labels: Sequence[Label],
        path: Callable[[int, int], str],
        looks: bool,
    ) -> None:
        self._name, self._labels, self._path_of, self._looks = name, labels, path, looks

    def check(self, number: int, token: Any) -> None:
        """Waits for a launch; called on the thread that made it."""
        token.block_until_ready()
        label = self._labels[number]
        if self._looks and label.wave >= 0 and token.ndim:
            found = np.flatnonzero(np.asarray(token)[label.first : label.first + label.calls])
            if len(found):
                raise _BadRow(int(found[0]))

    def described(self, error: BaseException, number: int) -> BaseException:
        """The error to raise for one that a launch raised; below 0: one that is of no launch."""
        # Others come from outside, such as what the handler of a signal raises.
        is_of_a_launch = isinstance(error, (_BadRow, MemoryError, *RUN_TIME_ERRORS))
        if number < 0 or not is_of_a_launch:
            return error
        if re.search("^KeyboardInterrupt", str(error), re.MULTILINE):
            # It came while a callback of a cell ran, and XLA has made a text of it.
            return KeyboardInterrupt()
        label, row, name = self._labels[number], 0, self._name
        if isinstance(error, _BadRow):
            row = error.args[0]
        path = self._path(label, row)
        where = f"cell {label.name} of {name}" if label.wave >= 0 else f"{name}, {label.name}"
        if isinstance(error, _BadRow):
            return FloatingPointError(
                f"invalid value (nan or inf) made by {where}. Call path: {path}. {_LET_PASS}"
            )
        of = " of the first" if label.calls > 1 else ""
        told = f" Wave {label.wave}, {label.calls} calls. Call path{of}: {path}." if path else ""
        hint = ""
        if isinstance(error, MemoryError) or "Out of memory" in str(error):
            hint = (
                " There was not enough memory: call it on fewer roots at a time, or its "
                'gradient under jr.executor("graph") with jax.checkpoint.'
            )
        text = cut(f"{type(error).__name__}: {error}".strip().rstrip("."), _LONGEST)
        failure = JaxRecError(f"{where} failed: {text}.{told}{hint}")
        failure.__cause__ = error
        return failure

    def _path(self, label: Label, row: int) -> str:
        return self._path_of(label.wave, row) if label.wave >= 0 else ""
