"""Settings of the test process, and the zoo as fixtures' parameters."""

from __future__ import annotations

import os
import signal

# The tests compile hundreds of small programs and run each once: LLVM need not optimise them.
# XLA's own passes, which decide about copies, run as ever.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

# A shell that starts the tests in the background has them ignore interrupts, which some tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)
