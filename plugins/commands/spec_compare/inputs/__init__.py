"""Prompts in the formats of others: text files, Spec-Bench, SPEED-Bench, HumanEval."""
