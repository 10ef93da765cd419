"""Assembly of the plugins of a run from their names: discovery, construction, matching, loading."""
