"""Calls of functions in the text of a model: the forms in which families write them, and a reader of each."""
