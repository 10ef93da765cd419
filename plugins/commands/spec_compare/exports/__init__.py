"""Results as files: bundles, and the formats of other programs."""
