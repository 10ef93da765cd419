"""From names to the plugins of a run: discovery, construction, matching, loading."""
