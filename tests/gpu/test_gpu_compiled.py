"""Kernels are compiled for devices that are not here; compiled ones run where there is a device (``-m gpu``)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed: its kernels cannot be read, let alone run")
ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "kernels" / "compile_for_gpu.py"
TABLE = json.loads((ROOT / "benchmarks" / "results" / "compiled" / "gpu-kernels.json").read_text())
"""What the kernels of a step take, by card, type and number of rows."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "capability", ["90", pytest.param("89", marks=pytest.mark.release), pytest.param("80", marks=pytest.mark.release)]
)
def test_every_kernel_compiles_for_a_device_that_is_not_here(capability):
    """At the sizes of Qwen3-Next and Qwen3-8B: the types are right, and shared memory suffices."""
    environment = os.environ | {"TRITON_INTERPRET": "0"}

    done = subprocess.run([sys.executable, SCRIPT, capability], env=environment, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr[-2000:]
    compiled = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    assert len(compiled) >= 20
    # 99 KiB: what a program may have on the smallest devices since 8.6.
    assert not {kernel: size for kernel, size in compiled.items() if int(size) > 101376}


def products(kind: str, rows: str = "16", card: str = "90") -> list[dict]:
    return [row for row in TABLE["cards"][card][kind][rows] if "instructions a weight" in row]


@pytest.mark.parametrize("kind, instructions", [("Q8_0", 3.3), ("Q4_0", 3.0), ("Q4_K", 3.3), ("MXFP4", 4.0)])
def test_products_in_blocks_take_few_instructions_and_registers(kind, instructions):
    """Of 1 to 16 rows. With more than 128 registers fewer than eight programs of two warps fit."""
    for rows in ("1", "16"):
        for row in products(kind, rows):
            assert row["instructions a weight"] <= instructions, row
            assert row["registers"] <= (144 if kind == "Q4_K" and row["launch"] == "gated product" else 128), row


def test_tiles_of_floats_are_those_of_the_prototype():
    """Shared memory says how many stages of which tiles there are."""
    names = {"product q+k+v": "qkv", "product x": "out", "gated product": "up", "product logits": "head"}
    prototype = {row["launch"]: row for row in TABLE["prototype"]["kernels"]["BF16"]}
    for row in products("BF16"):
        expected = prototype[names[row["launch"]]]
        assert row["shared"] == expected["shared"] and row["warps"] == expected["warps"], row
        assert sorted(row["grid"]) == sorted(expected["grid"])


def test_no_kernel_of_a_step_spills_where_a_card_has_been_planned_for():
    assert not [
        row for kinds in TABLE["cards"]["90"].values() for own in kinds.values() for row in own if row["spilled"]
    ]


def test_every_type_and_card_is_in_the_table():
    assert sorted(TABLE["cards"]) == ["120", "80", "89", "90"]
    assert all(len(kinds) == 6 for kinds in TABLE["cards"].values())


@pytest.mark.release
def test_the_table_is_that_of_these_kernels(tmp_path):
    """Compiled anew, by the version of triton that wrote it."""
    triton = pytest.importorskip("triton")
    if triton.__version__ != TABLE["triton"]:
        pytest.skip(f"the table is of triton {TABLE['triton']}, this is {triton.__version__}")
    file, command = tmp_path / "table.json", [sys.executable, "-m", "tests.kernels.compile_for_gpu", "--table"]
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    subprocess.run([*command, file, "90", "Q8_0", "Q4_K"], env=environment, cwd=ROOT, check=True)
    compiled = json.loads(file.read_text())["cards"]["90"]

    assert compiled == {kind: TABLE["cards"]["90"][kind] for kind in ("Q8_0", "Q4_K")}
