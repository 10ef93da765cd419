"""The memory plan of a server: from metadata, before a weight is read."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from spec_cli.main import cli
from spec_serve import memory
from spec_serve.memory import MIB, plan

from spec_core import UsageError, load
from spec_core.assembly import description
from spec_core.commands import check_plugins


def plan_of(model="zoo:pico", methods=(), sequences=4, cache=10 * MIB, cached=None):
    target = load(model, weights=False)
    return target.info, plan(target.info, check_plugins(target, methods, None, None, {}), sequences, cache, cached)


def test_the_plan_counts_weights_drafters_slots_and_the_cache():
    info, plan_here = plan_of(methods=["draft-model"])
    draft = load("zoo:pico-draft", weights=False).info
    row = info.row_bytes + draft.row_bytes

    assert plan_here.weights == info.weight_bytes
    assert plan_here.drafters == {"draft-model": draft.weight_bytes}
    assert plan_here.slots == 4 * info.context * row
    assert plan_here.cached == 10 * MIB // row and plan_here.cache <= 10 * MIB
    parts = plan_here.weights, draft.weight_bytes, plan_here.slots, plan_here.cache
    assert plan_here.total == sum(parts) + memory.READING
    assert plan_of(methods=["ngram"])[1].drafters == {}


def test_a_hybrid_has_states_beside_its_rows():
    info, plan_here = plan_of("zoo:pico-hybrid")
    recurrent = info.recurrent

    states = 9 * recurrent.layers * recurrent.state_bytes
    assert plan_here.slots == 4 * (info.context * info.row_bytes + states)


def test_rows_that_were_asked_for_count_as_they_are():
    info, plan_here = plan_of(cached=100)

    assert plan_here.cached == 100 and plan_here.cache == 100 * info.row_bytes


def test_a_plan_that_does_not_fit_is_refused_with_what_takes_how_much(monkeypatch):
    _, plan_here = plan_of()
    memory.check_memory(plan_here, plan_here.total)
    with pytest.raises(UsageError, match="are allowed") as refused:
        memory.check_memory(plan_here, plan_here.total - 1)
    assert "prompt cache" in refused.value.reason and "--context" in refused.value.hint
    monkeypatch.setattr(memory, "available_bytes", lambda: plan_here.total - 1)
    with pytest.raises(UsageError, match="are free"):
        memory.check_memory(plan_here, 0)
    monkeypatch.setattr(memory, "free_bytes", lambda device: plan_here.total - (device == "cuda:1"))
    memory.check_memory(plan_here, 0, "cuda:0")
    with pytest.raises(UsageError, match="are free"):
        memory.check_memory(plan_here, 0, "cuda:1")
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    memory.check_memory(plan_here, 0)


def test_the_limit_of_a_container_counts(monkeypatch, tmp_path):
    file = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "LIMIT", file)
    file.write_text("1048576\n")
    assert memory.available_bytes() == MIB
    file.write_text("max\n")
    assert memory.available_bytes() > MIB


def test_the_command_refuses_before_it_loads(monkeypatch):
    pytest.importorskip("fastapi", reason="needs the extra serve")
    loaded = []
    original = description.load
    monkeypatch.setattr(
        description, "load", lambda *a, **options: loaded.append(options["weights"]) or original(*a, **options)
    )
    monkeypatch.setattr(description, "read_weights", lambda *a: loaded.append("weights"))
    result = CliRunner().invoke(cli, ["serve", "-m", "zoo:pico", "--port", "0", "-o", "serve.memory_mib=5"])

    assert isinstance(result.exception, UsageError) and "5 MiB are allowed" in result.exception.reason
    assert loaded == [False]
