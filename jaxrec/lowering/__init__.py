"""Stage 5: cells and a schedule to one XLA program."""
