"""Chat templates: programs of strangers, which run in processes with limits of the system."""
