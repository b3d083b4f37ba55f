"""The command line: ``python -m jaxrec.train --help``."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import jax

from jaxrec import JaxRecError
from jaxrec.data import TreebankError
from jaxrec.train._errors import TrainError
from jaxrec.train._loop import train
from jaxrec.train._report import last_line
from jaxrec.train._settings import parse_settings

_NO_MEMORY = re.compile("RESOURCE_EXHAUSTED|Out of memory")
"""As XLA says it where it compiles, and where it runs."""


def main(argv: Sequence[str] | None = None) -> int:
    """Trains, prints the result as a last line of JSON, and returns the exit status.

    Args:
        argv: Arguments without the program's name; those of the process if ``None``.

    Returns:
        0; 2 where the settings or the data are at fault; 130 when interrupted.
    """
    try:
        result = train(parse_settings(argv))
    except (TrainError, TreebankError, JaxRecError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not isinstance(error, MemoryError) and not _NO_MEMORY.search(str(error)):
            raise
        print(
            "error: not enough memory for this run: choose a smaller --hidden, --embed or --batch",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print(
            "interrupted: --resume goes on from the last checkpoint, if there is one yet",
            file=sys.stderr,
        )
        return 130
    print(last_line(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
