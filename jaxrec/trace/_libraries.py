"""What is installed, and so stays what it is: modules and classes that no one is writing."""

from __future__ import annotations

import functools
import os
import site
import sys
import sysconfig
from collections.abc import Mapping
from typing import Any

_LIBRARIES = frozenset(
    (*sys.builtin_module_names, "jax", "jaxlib", "jaxrec", "numpy", "flax", "optax")
)

_MADE_BY_CODE = 1 << 9
"""The flag of a class that Python code has made, as C's `Py_TPFLAGS_HEAPTYPE`."""


def is_library(space: Mapping[str, Any]) -> bool:
    """Whether the variables are those of a module that is installed, and so stays what it is."""
    name, file = space.get("__name__"), space.get("__file__")
    return isinstance(name, str) and _is_installed(name, file)


def is_standard(space: Mapping[str, Any]) -> bool:
    """Whether the variables are those of a module of Python itself."""
    name = space.get("__name__")
    return isinstance(name, str) and name.partition(".")[0] in sys.stdlib_module_names


@functools.cache
def _is_installed(name: str, file: str | None) -> bool:
    if name.partition(".")[0] in _LIBRARIES:
        return True
    folders = sysconfig.get_path("stdlib"), *site.getsitepackages(), site.getusersitepackages()
    return file is not None and file.startswith(tuple(f"{folder}{os.sep}" for folder in folders))


def is_of_library(kind: type) -> bool:
    """Whether a class is one of Python's own or of a module that is installed."""
    if not kind.__flags__ & _MADE_BY_CODE:
        return True
    if kind.__module__ == "builtins":  # where code is run that says no other name
        return False
    module = sys.modules.get(kind.__module__)
    return module is not None and is_library(vars(module))
