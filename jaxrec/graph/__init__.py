"""Stage 2: jaxprs to one static tagged dataflow graph."""
