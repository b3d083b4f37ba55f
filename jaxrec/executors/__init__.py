"""Who runs an invocation: the definitional interpreter, and the launches of executor "host"."""
