"""What a user sees of a call: its schedule, drawn, and where its time and memory go."""
