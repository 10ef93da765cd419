"""The contenders of a comparison, their prompts, and the laps that measure them in turns."""
