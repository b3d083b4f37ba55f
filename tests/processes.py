"""Programs that run in a process of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path


def check_in_a_process(script: str) -> None:
    """Runs a program that prints "done" at its end, with settings of JAX of its own."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    assert done.stdout == "done\n", done.stderr
