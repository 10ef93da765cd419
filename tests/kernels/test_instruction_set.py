"""``SPEC_INSTRUCTION_SET`` limits what compiled code uses, in both extensions."""

import os
import subprocess
import sys

import pytest
from spec_kernels import native

from spec_core import UsageError
from spec_core.sampling import instruction_set
from spec_core.sampling.native import module

SHOW = (
    "from spec_kernels import native; from spec_core.sampling.native import fact; "
    "print(native.instruction_sets()); print(fact())"
)
NAMED = (
    ("avx512vnni", ("avx512", "avx2", "generic")),
    ("avx512", ("avx512", "avx2", "generic")),
    ("avxvnni", ("avx2", "generic")),
    ("avx2", ("avx2", "generic")),
    ("generic", ("generic",)),
    ("", ("avx512", "avx2", "generic")),
)


needs_both = pytest.mark.skipif(native.problem() is not None or module is None, reason="needs both extensions")


@needs_both
def test_both_extensions_use_no_better_set_than_the_one_named():
    environment = os.environ | {instruction_set.VARIABLE: "generic"}
    shown = subprocess.run([sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines() == ["('generic',)", "native (generic; equal tokens with Python)"]


@pytest.mark.parametrize(("name", "left"), NAMED)
def test_better_sets_than_the_one_named_are_left_out(monkeypatch, name, left):
    monkeypatch.setenv(instruction_set.VARIABLE, name)
    assert instruction_set.allowed_sets(["avx512", "avx2", "generic"]) == left


@pytest.mark.parametrize("name", ["i8mm", "neon"])
def test_a_choice_without_matrix_products_uses_neon(monkeypatch, name):
    monkeypatch.setenv(instruction_set.VARIABLE, name)
    assert instruction_set.allowed_sets(["neon", "generic"]) == ("neon", "generic")


@needs_both
@pytest.mark.parametrize("name", native.instruction_sets())
def test_every_set_of_the_kernels_can_be_named(monkeypatch, name):
    monkeypatch.setenv(instruction_set.VARIABLE, name)
    assert instruction_set.allowed_sets(module.instruction_sets())[-1] == "generic"


@needs_both
def test_the_kernels_refuse_an_unknown_set_and_name_those_they_have(monkeypatch):
    monkeypatch.setenv(instruction_set.VARIABLE, "avx1024")
    native.instruction_sets.cache_clear()
    with pytest.raises(ValueError, match=r"SPEC_INSTRUCTION_SET=avx1024 is not an .*; name one of .*generic"):
        native.instruction_sets()


def test_a_set_that_the_processor_lacks_is_refused_by_name(monkeypatch):
    monkeypatch.setenv(instruction_set.VARIABLE, "avx512")
    with pytest.raises(UsageError, match="SPEC_INSTRUCTION_SET=avx512 is not an instruction set of this processor"):
        instruction_set.allowed_sets(["avx2", "generic"])
