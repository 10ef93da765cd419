"""The contract as tests: a class per kind of plugin, inherited by its author. Every check is one promise."""
