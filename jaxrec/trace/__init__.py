"""Stage 1: the user's Python to jaxprs with `rec_call` equations."""
