"""Parts that adapters of engines with their own loop share; they know no engine."""
