"""From the user's arguments to a sequence: keywords and prompts, checks, admission."""
