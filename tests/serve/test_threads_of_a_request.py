"""Number of times that a request changes its thread before the run has it."""

from __future__ import annotations

from threading import current_thread

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

import anyio.to_thread
from spec_serve.threads import SHORT

from spec_core import Run

CHAT = {"messages": [{"role": "user", "content": "x"}]}
PARAMETERS = {"type": "object", "properties": {f"a{i}": {"type": "string"} for i in range(80)}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}
ENGINE = "spec-serve-engine"
REQUESTS = {
    "chat": ("/v1/chat/completions", CHAT, 1),
    "completion": ("/v1/completions", {"prompt": "x"}, 1),
    "responses": ("/v1/responses", {"input": "x"}, 1),
    "llama": ("/completion", {"prompt": "x"}, 1),
    "several": ("/v1/completions", {"prompt": ["x", "y", "z"]}, 1),
    "constraint": ("/v1/completions", {"prompt": "x", "json_schema": {"enum": ["a"]}}, 3),
    "many-messages": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}] * 80}, 3),
    "long-tool": ("/v1/chat/completions", {**CHAT, "tools": [TOOL]}, 3),
    "long-mixed": ("/completion", {"prompt": [5, "    return x\n" * (SHORT // 12)]}, 3),
    "long": ("/v1/completions", {"prompt": "    return x\n" * (SHORT // 12)}, 3),
}
"""Bodies, and changes of thread: into a worker and back for what is slow, and to the engine."""


@pytest.mark.parametrize("name", REQUESTS)
def test_only_slow_work_has_a_thread_of_its_own(name, server, monkeypatch):
    path, body, expected = REQUESTS[name]
    changes, run_sync, submit = [], anyio.to_thread.run_sync, Run.submit

    async def count_worker(*arguments, **options):
        changes.append("to a worker")
        result = await run_sync(*arguments, **options)
        changes.append("back")
        return result

    def count_submit(run, request):
        changes.append(current_thread().name)
        return submit(run, request)

    monkeypatch.setattr(anyio.to_thread, "run_sync", count_worker)
    monkeypatch.setattr(Run, "submit", count_submit)
    answer = server.post(path, {**body, "max_tokens" if path != "/v1/responses" else "max_output_tokens": 1})
    assert answer.status_code == 200, answer.text

    before = changes[: changes.index(ENGINE) + 1]
    assert before == ["to a worker", "back"] * (expected // 2) + [ENGINE]
