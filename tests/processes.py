"""Programs that run in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path


def check_in_a_process(script: str, devices: int = 1, **environment: str) -> None:
    """Runs a program that prints "done" at its end, where JAX sees so many devices.

    Args:
        script: the program.
        devices: see above.
        environment: variables of its environment.
    """
    jax = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, **jax, **environment},
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    assert done.stdout == "done\n", done.stderr
    assert done.returncode == 0, done.stderr
