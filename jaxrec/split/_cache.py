"""What later stages make from a program, each once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

_MISSING = object()


class Cache(dict[Any, Any]):
    """Things by key, made when they are first asked for.

    It may be cleared at any time, also by another thread while something is made.
    """

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The thing of a key."""
        found = self.get(key, _MISSING)
        return self.setdefault(key, make()) if found is _MISSING else found
