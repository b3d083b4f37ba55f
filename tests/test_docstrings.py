"""Every example in a docstring of the package runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import jaxrec


def modules():
    """The names of the modules of the package, without those that are programs."""
    found = pkgutil.walk_packages(jaxrec.__path__, "jaxrec.")
    return [m.name for m in found if not m.name.endswith("__main__")]


def examples_of(name: str):
    """The docstrings of a module that hold examples."""
    module = importlib.import_module(name)
    return [test for test in doctest.DocTestFinder().find(module, name) if test.examples]


EXAMPLES = {test.name: test for name in modules() for test in examples_of(name)}


def test_there_are_examples():
    assert "jaxrec._rec_fn.rec_fn" in EXAMPLES


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=flags)
    example = EXAMPLES[name]
    example.globs = {}  # who pastes it has not the names of the module
    runner.run(example, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)
