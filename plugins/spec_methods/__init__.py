"""Methods: one file each where there are no weights, one folder where there are. None imports another."""
