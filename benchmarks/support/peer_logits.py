"""Logits of llama.cpp as a program of its own, in an interpreter that has llama-cpp-python 0.3.36.

    PYTHON benchmarks/support/peer_logits.py FILE TEXTS OUT

TEXTS: JSON, lists of tokens, each at most ``peer.BATCH``. OUT: float32 [all tokens, V], as numpy writes it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from peer import BATCH, Llama


def main() -> None:
    file, texts, out = sys.argv[1:]
    llama, rows = Llama(file, BATCH, threads=1, repacked=False), []
    for tokens in json.loads(Path(texts).read_text()):
        llama.keep(0)
        llama.decode(tokens, 0, every=True)
        rows.append(llama.logits(0, len(tokens)).copy())
    np.save(out, np.concatenate(rows))


if __name__ == "__main__":
    main()
