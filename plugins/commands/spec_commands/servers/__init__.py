"""Servers with OpenAI's API as they are met from outside: their answers, counters, models and switches."""
