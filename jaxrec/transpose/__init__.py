"""Stage 6: the same schedule in reverse, for cotangents."""
