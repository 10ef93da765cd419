"""The torch runtime that all targets share."""
