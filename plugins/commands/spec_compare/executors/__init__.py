"""Executors of contenders: this process, or the workers of a Ray cluster."""
