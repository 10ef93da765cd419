"""Methods: one file each without weights, one folder each with weights. None imports another."""
