"""The JAX primitives: a call inside a body, and a whole invocation with its rules."""
