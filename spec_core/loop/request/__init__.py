"""From what a user gives to a sequence: keywords and prompts, checks, admission."""
