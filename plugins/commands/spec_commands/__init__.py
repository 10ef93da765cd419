"""The library of the commands: options and settings, prompts, printing, and facts about the machine."""
