"""Healthy heads before ``spec doctor``: six heads are trained, and examined at fourteen points of their training.

    python tests/campaigns/doctor.py --out build/doctor [--minutes 3] [--seed 0]

``--minutes``: of all steps of a head; its checkpoints are heads too, which the next part of the training starts from.
``--seed``: of the first part's training; each next part takes the seed after it.
Heads that are in the folder are not trained again. Prints the cause that is named for each, its acceptance and the
processor time; the exit code is 1 if a cause is named.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from time import process_time

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from spec_doctor.diagnosis import diagnose_head  # noqa: E402
from spec_doctor.texts import TEXTS  # noqa: E402

from spec_core import load  # noqa: E402

COMMON = ("-m", "zoo:pico", "--generate", "250", "--held-out", "4", "--threads", "1", "--batch", "4")
HEADS: dict[str, tuple[tuple[str, ...], tuple[float, ...]]] = {
    "pairs": (("eagle3", "--sources", "1,6,10", "--format", "safeailab"), (0.1, 0.4, 1.0)),
    "residual": (("eagle3", "--no-norm-before-residual", "--depth", "2", "--draft-vocab", "1536"), (0.3, 1.0)),
    "blocks": (("dflash", "--sources", "1,6,10", "--format", "z-lab"), (0.1, 0.4, 1.0)),
    "narrow": (("dflash", "--layers", "1", "--block", "6", "--format", "speculators"), (0.3, 1.0)),
    "spark": (("dspark", "--head", "zoo:pico-dflash", "--format", "speculators"), (0.2, 1.0)),
    "young": (("dspark", "--head", "{blocks}", "--rank", "16"), (0.2, 1.0)),
}
"""The words of ``spec train``, and the shares of its duration after which a head is examined."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    target = load("zoo:pico", device="cpu", threads=1)
    blamed = 0
    for name in HEADS:
        for head in train(name, options.out, options.minutes, options.seed):
            blamed += examine(head, target)
    print(f"{blamed} of {sum(len(shares) for _, shares in HEADS.values())} heads are blamed", flush=True)
    return int(blamed > 0)


def checkpoint_path(name: str, number: int, folder: Path) -> Path:
    """The file or directory of a head after a part of its training."""
    return folder / (f"{name}-{number}" if "--format" in HEADS[name][0] else f"{name}-{number}.gguf")


def train(name: str, folder: Path, minutes: float, seed: int) -> list[Path]:
    """Train a head part by part; returns what was written after each."""
    words, shares = HEADS[name]
    words = tuple(word.format(blocks=checkpoint_path("blocks", len(HEADS["blocks"][1]) - 1, folder)) for word in words)
    heads = [checkpoint_path(name, i, folder) for i in range(len(shares))]
    for i, (head, share) in enumerate(zip(heads, shares, strict=True)):
        if head.exists():
            continue
        part = minutes * (share - (shares[i - 1] if i else 0.0))
        command = [*words, *COMMON, "--minutes", f"{part:.3f}", "--seed", str(seed + i), "--out", str(head)]
        command += ["--from", str(heads[i - 1])] if i else []
        subprocess.run([sys.executable, "-m", "spec_cli.main", "train", *command], cwd=ROOT, check=True)
    return heads


def examine(head: Path, target: object) -> bool:
    """Print what is found of a head; returns whether a cause is named."""
    file = load(head, weights=False)
    began = process_time()
    diagnosis = diagnose_head(target, file.fit_to(target), TEXTS, min(7, (file.head.block or 9) - 1), 32)
    accepted = ", ".join(f"{share:.2f}" for share in diagnosis.whole.conditional)
    cause = "healthy" if diagnosis.cause is None else f"{diagnosis.cause}: {diagnosis.best.name}"
    print(f"{head.name}: {cause}; accepted {accepted}; {process_time() - began:.1f} s", flush=True)
    return diagnosis.cause is not None


if __name__ == "__main__":
    sys.exit(main())
