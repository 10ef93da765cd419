"""The report of a comparison: one HTML file that needs no other, without scripts."""
