"""Stage 4: control bytecode and control values to a schedule of waves."""
