"""One promise, or one family of promises, per file."""
