"""Stage 3: the graph to outer values, control bytecode and cells."""
