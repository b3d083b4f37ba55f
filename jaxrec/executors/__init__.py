"""Who runs an invocation: the choice, and the definitional interpreter."""
