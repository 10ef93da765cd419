"""Figures of recorded laps: rates, intervals, bounds and the tables that show them."""
