"""Settings of the test process, and data that several tests read."""

from __future__ import annotations

import gc
import itertools
import mmap
import os
import signal
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jaxlib
import pytest

QUICK = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_cpu_use_fusion_emitters=false",
)

TREEBANK = """(3 (3 good) (2 film))
(1 (0 bad) (2 (2 the) (2 film)))
(2 (2 a) (2 film))
(4 (2 it) (4 (3 very) (4 good)))
"""


def known(flags: Iterable[str]) -> list[str]:
    """Those of some flags of XLA that it has: at others it ends the process."""
    found = []
    for path in Path(jaxlib.__file__).parent.glob("*.so"):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            # A name that ends here, as that of a field does not which XLA keeps and does not read.
            names = {flag: flag[2:].partition("=")[0].encode() + b"\0" for flag in flags}
            found += [flag for flag, name in names.items() if text.find(name) >= 0]
    return sorted(set(found))


# The tests compile hundreds of small programs and run each once: in half the time without what
# makes them quick. XLA's own passes, which decide about copies, run as ever.
if "XLA_FLAGS" not in os.environ:
    os.environ["XLA_FLAGS"] = " ".join(known(QUICK))

# A shell that starts the tests in the background has them ignore interrupts, which some tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)


# What is traced and compiled stays, and looking through it again and again is a tenth of the time.
gc.set_threshold(20_000, 20, 20)


def share_contexts() -> None:
    """Has JAX write the programs of a thread in one context of MLIR.

    It makes one for each, which takes a fifth of the time of the tests and most of their memory.
    """
    from jax.interpreters import mlir
    from jaxlib.mlir import ir

    make, own = mlir.make_ir_context, threading.local()

    def context_of_thread() -> Any:
        if ir.Context.current is not None:  # one program is written while another one is
            return make()
        if not hasattr(own, "context"):
            own.context = make()
        return own.context

    make.__globals__[make.__name__] = context_of_thread


share_contexts()


@pytest.fixture
def no_garbage_collection():
    """For tests that send an interrupt: a collection that meets one reports it and goes on."""
    gc.disable()
    yield
    gc.enable()


MAPS = Path("/proc/self/maps")


TESTS = itertools.count(1)


@pytest.fixture(autouse=True)
def room_for_programs():
    """Forgets compiled programs in time: each has several memory maps, and Linux allows 65,530 in a
    process. The compiler crashes when there are no more. To count them takes up to 0.1 s.
    """
    yield
    if next(TESTS) % 16 == 0 and MAPS.exists() and MAPS.read_bytes().count(b"\n") > 40_000:
        forget_programs()


def forget_programs() -> None:
    """Frees what is compiled, of JAX's functions and of all recursive ones."""
    import jax

    from jaxrec._rec_fn import RecFn

    for function in gc.get_objects():
        if isinstance(function, RecFn):
            function.clear_cache()
    jax.clear_caches()
    gc.collect()


@pytest.fixture(scope="session")
def sst():
    """The Stanford Sentiment Treebank, where it is there."""
    from jaxrec.data import read_treebank

    default = Path(__file__).parents[2] / "shared" / "data" / "sst"
    path = Path(os.environ.get("JAXREC_SST", default))
    if not path.is_dir():
        pytest.skip(f"the Stanford Sentiment Treebank is not at {path}; set JAXREC_SST")
    return read_treebank(path)


@pytest.fixture
def no_tapes(monkeypatch):
    """Has the native machine run all derivatives of scalar recursion, none a schedule."""
    from jaxrec.primitives import _native_jvp

    runs = _native_jvp.native_jvp

    def native_jvp(*args):
        made = runs(*args)
        assert made is not None
        return made

    monkeypatch.setattr("jaxrec.primitives._rec.native_jvp", native_jvp)


@pytest.fixture
def treebank(tmp_path):
    folder = tmp_path / "bank"
    folder.mkdir()
    for part in ("train", "dev", "test"):
        (folder / f"{part}.txt").write_text(TREEBANK, encoding="utf-8")
    return folder
