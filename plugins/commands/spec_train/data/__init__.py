"""Texts, answers of the target, and its hidden states and distributions on them."""
