"""Every instruction set of an emulated ARM processor gives the bits of this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.native.arches import ARM, FOLDERS, HERE

ALL, FEW = 748, 60
"""Seeds of each part; there are 748 of products, and fewer of others."""
MISSING = ARM.problem() or HERE.problem()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(MISSING is not None, reason=f"{MISSING}")]


@pytest.fixture(scope="module")
def program() -> Path:
    return ARM.build()


@pytest.fixture(scope="module")
def here() -> list[str]:
    """A hash of every trial on this machine."""
    done = HERE.run(HERE.build(), ALL)
    assert done.code == 0, done.said
    return done.hashes


def test_neon_and_its_matrix_products_give_the_bits_of_this_machine(program, here):
    done = ARM.run(program, ALL, "-cpu", "max")

    assert done.said == [f"{part}: generic i8mm neon" for part in ("products", "operators")] + [
        "choices: generic neon",
        "forwards: generic i8mm neon",
    ]
    assert done.code == 0
    assert len(done.hashes) == len(set(done.hashes)) > 1500
    assert done.hashes == here


def test_a_processor_without_matrix_products_takes_dot_products(program, here):
    done = ARM.run(program, FEW, "-cpu", "cortex-a76")

    assert done.said == [
        "products: generic neon",
        "operators: generic i8mm neon",
        "choices: generic neon",
        "forwards: generic neon",
    ]
    assert done.code == 0
    assert done.hashes == [line for line in here if int(line.split()[1]) < FEW]


def test_a_processor_without_dot_products_takes_the_portable_ones(program, here):
    done = ARM.run(program, FEW, "-cpu", "cortex-a72")

    assert done.said == [
        "products: generic",
        "operators: generic i8mm neon",
        "choices: generic neon",
        "forwards: generic",
    ]
    assert done.code == 0
    assert done.hashes == [line for line in here if int(line.split()[1]) < FEW]


def test_the_pool_does_every_job_once_on_arm(tmp_path):
    """Without a fork: qemu 7.2 itself fails after one, in a quarter of the runs."""
    program, pool = Path(__file__).with_name("pool_races.c"), FOLDERS[0] / "program" / "thread_pool.c"
    command = [ARM.compiler, "-std=gnu11", "-O2", "-static", "-pthread", f"-I{FOLDERS[0]}", "-o", tmp_path / "races"]
    subprocess.run([*command, program, pool], check=True)
    done = subprocess.run([*ARM.runner, tmp_path / "races"], capture_output=True, text=True, timeout=120)

    assert (done.returncode, done.stdout) == (0, "0 wrong, child 0\n"), done.stderr
