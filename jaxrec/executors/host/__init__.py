"""Executor "host": the waves of a schedule launched from the host by workers that steal."""
