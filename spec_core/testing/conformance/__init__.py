"""The contract as tests: one class per kind of plugin, for its author to inherit. Every check tests one promise."""
