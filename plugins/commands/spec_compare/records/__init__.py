"""The files of a comparison: their data classes, JSON schemas, and everything that reads or writes them."""
