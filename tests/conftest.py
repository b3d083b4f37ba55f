"""Settings of the test process, and the zoo as fixtures' parameters."""

from __future__ import annotations

import os

# The tests compile hundreds of small programs and run each once: LLVM need not optimise them.
# XLA's own passes, which decide about copies, run as ever.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
