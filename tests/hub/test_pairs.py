"""The table of pairs: its form, and which rows a target's names find."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from spec_hub.hub_name import parse_name
from spec_hub.pairs import FILE, NOT_MEASURED, Pair, pairs, plain_name, published_pairs, target_names

from spec_core.commands import discover_plugins

MEASURED = re.compile(r"[^;]+; \d+\.\d+×; \d{4}-\d\d-\d\d")
"""Machine, speedup and date."""


def test_the_table_has_many_rows_and_no_pair_twice():
    names = [(pair.target, pair.drafter) for pair in pairs()]

    assert len(names) >= 20
    assert len({*names}) == len(names)
    assert FILE.read_text("utf-8").isascii()


@pytest.mark.parametrize("pair", pairs(), ids=lambda pair: pair.drafter)
def test_a_row_has_the_form(pair: Pair):
    assert parse_name(pair.drafter).repository == pair.drafter
    assert pair.kind in {entry.name for entry in discover_plugins(("method",))}
    assert re.compile(pair.target)
    assert pair.size == "unknown" or re.fullmatch(r"\d+(\.\d+)?[MB]", pair.size)
    assert pair.license and pair.license == pair.license.strip()
    address = urlsplit(pair.source)
    assert address.scheme == "https" and "." in address.netloc and address.path.strip("/")
    assert pair.measured == NOT_MEASURED or MEASURED.fullmatch(pair.measured)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("Qwen/Qwen3-8B", "Qwen3-8B"),
        ("unsloth/Qwen3-8B-GGUF", "Qwen3-8B"),
        ("Qwen3-8B-UD-Q4_K_XL", "Qwen3-8B"),
        ("Qwen3.5-4B.IQ4_XS", "Qwen3.5-4B"),
        ("Qwen3-8B-Q8_0-00001-of-00003", "Qwen3-8B"),
        ("Qwen3 8B", "Qwen3-8B"),
        ("gpt-oss-20b-MXFP4", "gpt-oss-20b"),
        ("gemma-4-E2B-it-BF16", "gemma-4-E2B-it"),
    ],
)
def test_a_models_name_is_found_in_that_of_its_file(name, plain):
    assert plain_name(name) == plain


@pytest.mark.parametrize(
    ("names", "kinds"),
    [
        (["Qwen3-8B-Q4_K_M"], {"dflash", "eagle3", "dspark"}),
        (["unsloth/gemma-4-E2B-it-GGUF"], {"assistant"}),
        (["Meta-Llama-3.1-8B-Instruct"], {"dflash", "eagle3"}),
        (["Qwen3-8B-Base"], set()),
        (["Qwen3x5-4B"], set()),
        (["pico"], set()),
    ],
)
def test_names_find_the_drafters_of_their_target_and_of_no_other(names, kinds):
    assert {pair.kind for pair in published_pairs(names)} == kinds


def test_a_file_in_the_cache_has_the_name_of_its_repository():
    file = "/home/u/.cache/huggingface/hub/models--Qwen--Qwen3-8B-GGUF/snapshots/abc/model.gguf"

    assert {pair.kind for pair in published_pairs(target_names("model", file))} == {"dflash", "eagle3", "dspark"}
