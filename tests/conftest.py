"""One thread per test process: several run side by side, and small models gain nothing from more."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
