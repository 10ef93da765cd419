"""Requests as coding agents build them, answered without ``--lenient``.

What cannot be offered is left out and logged. Bodies follow the public sources of Codex (responses API), Claude Code
(Anthropic's API), and opencode and Cline (AI SDK).
"""

# ruff: noqa: E501
from __future__ import annotations

import json
import logging

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from tests.support.scripted import script_target
from tests.support.served import serving

SHELL = {
    "type": "function", "name": "shell", "description": "Runs a command.", "strict": False,
    "parameters": {"type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}}},
                   "required": ["command"], "additionalProperties": False},
}  # fmt: skip
PATCH = {
    "type": "custom", "name": "apply_patch", "description": "Edits files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
}  # fmt: skip
MCP = {
    "type": "namespace", "name": "mcp__docs__", "description": "An MCP server.",
    "tools": [{"type": "function", "name": "find", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}],
}  # fmt: skip
CODEX = {
    "model": "any", "instructions": "You are an agent.", "tool_choice": "auto", "parallel_tool_calls": True,
    "reasoning": {"effort": "medium", "summary": "auto"}, "store": False, "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "0199", "text": {"verbosity": "low"}, "service_tier": "priority",
    "client_metadata": {"x-codex-installation-id": "1"}, "max_output_tokens": 6,
    "tools": [SHELL, PATCH, {"type": "web_search", "external_web_access": True}, MCP,
              {"type": "image_generation", "output_format": "png"}, {"type": "tool_search", "execution": "client"},
              {"type": "local_shell"}],
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list files"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "content": None, "encrypted_content": "gAAA"},
        {"type": "function_call", "name": "shell", "arguments": '{"command": ["ls"]}', "call_id": "c1"},
        {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin Patch", "call_id": "c2", "status": "completed"},
        {"type": "function_call", "name": "find", "namespace": "mcp__docs__", "arguments": '{"a": 1}', "call_id": "c3"},
        {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "done"}]},
        {"type": "function_call_output", "call_id": "c3", "output": [{"type": "input_text", "text": "none"}]},
        {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}], "phase": "commentary"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]},
    ],
}  # fmt: skip
BASH = {"name": "Bash", "description": "Runs a command.", "input_schema": {"$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}  # fmt: skip
CLAUDE = {
    "model": "claude-x", "max_tokens": 6, "stream": False, "metadata": {"user_id": "u"}, "temperature": 1,
    "betas": ["interleaved-thinking"], "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "high", "task_budget": {"type": "tokens"}},
    "system": [{"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
    "tools": [{**BASH, "cache_control": {"type": "ephemeral"}, "eager_input_streaming": True}, {**BASH, "name": "Read", "defer_loading": True},
              {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
              {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"},
              {"type": "bash_20250124", "name": "bash"}, {"type": "mcp_toolset", "mcp_server_name": "m"}],
    "tool_choice": {"type": "auto"}, "mcp_servers": [{"type": "url", "url": "https://x", "name": "m"}], "service_tier": "standard_only",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "list", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "redacted_thinking", "data": "x"},
            {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "q"}},
            {"type": "web_search_tool_result", "tool_use_id": "srv", "content": [{"type": "web_search_result", "url": "u"}]},
            {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}, "caller": {"type": "direct"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "is_error": False,
             "content": [{"type": "text", "text": "a"}, {"type": "tool_reference", "tool_name": "Read"}]},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}, "title": "d"},
            {"type": "text", "text": "go on"}]},
    ],
}  # fmt: skip
AI_SDK = {
    "model": "m", "max_tokens": 6, "temperature": 0, "stream_options": {"include_usage": True}, "stream": True,
    "tools": [{"type": "function", "function": {"name": "read", "description": "d", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}],
    "tool_choice": "auto",
    "messages": [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": "", "reasoning_content": "t", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "r"}]},
    ],
}  # fmt: skip
REQUESTS = {
    "codex": ("/v1/responses", CODEX, ["custom", "web_search", "image_generation", "tool_search", "local_shell"]),
    "codex-probe": ("/v1/responses", {"model": "m", "input": [], "max_output_tokens": 1}, []),
    "codex-local-shell": (
        "/v1/responses",
        {"max_output_tokens": 2, "input": [
            {"role": "user", "content": "x"},
            {"type": "local_shell_call", "call_id": "c", "status": "completed", "action": {"type": "exec", "command": ["ls"]}},
            {"type": "local_shell_call_output", "call_id": "c", "output": "a"}]},
        [],
    ),
    "only-others": ("/v1/responses", {"input": "x", "max_output_tokens": 2, "tool_choice": "auto", "tools": [PATCH]}, ["custom"]),
    "claude": ("/v1/messages", CLAUDE, ["web_search_20250305", "bash_20250124", "mcp_toolset", "mcp_servers"]),
    "claude-count": ("/v1/messages/count_tokens", {k: v for k, v in CLAUDE.items() if k != "stream"}, ["web_search_20250305"]),
    "ai-sdk": ("/v1/chat/completions", AI_SDK, []),
}  # fmt: skip
REFUSED = {
    "stored": ("/v1/responses", {"input": [{"type": "item_reference", "id": "msg_1"}]}, "input.0.type"),
    "compaction": ("/v1/responses", {"input": [{"type": "compaction", "encrypted_content": "x"}]}, "input.0.type"),
    "conversation": ("/v1/responses", {"input": "x", "conversation": "conv_1"}, "conversation"),
    "no-items": ("/v1/responses", {"input": []}, "input"),
    "demanded": ("/v1/responses", {"input": "x", "tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tool_choice"),
    "required": ("/v1/responses", {"input": "x", "tools": [PATCH], "tool_choice": "required"}, "tool_choice"),
    "custom": ("/v1/responses", {"input": "x", "tools": [SHELL, PATCH], "tool_choice": {"type": "custom", "name": "apply_patch"}}, "tool_choice"),
    "picture": ("/v1/responses", {"input": [{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": "data:"}]}]}, "input[0].output"),
    "a-tool-without-type": ("/v1/responses", {"input": "x", "tools": [{"name": "f"}]}, "tools.0.type"),
    "a-function-in-a-namespace": ("/v1/responses", {"input": "x", "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "a b"}]}]}, "tools.0.tools.0.name"),
    "demanded-by-name": ("/v1/messages", {"max_tokens": 2, "messages": [{"role": "user", "content": "x"}], "tools": CLAUDE["tools"],
                         "tool_choice": {"type": "tool", "name": "web_search"}}, "tool_choice"),
    "any-of-none": ("/v1/messages", {"max_tokens": 2, "messages": [{"role": "user", "content": "x"}], "tools": CLAUDE["tools"][2:], "tool_choice": {"type": "any"}}, "tool_choice"),
    "pdf": ("/v1/messages", {"max_tokens": 2, "messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "base64", "data": "x"}}]}]}, "messages[0].content"),
    "block": ("/v1/messages", {"max_tokens": 2, "messages": [{"role": "user", "content": [{"type": "audio"}]}]}, "messages[0].content"),
}  # fmt: skip


@pytest.mark.parametrize("name", REQUESTS)
def test_the_request_of_an_agent_is_answered(name, server, caplog):
    path, body, left_out = REQUESTS[name]
    with caplog.at_level(logging.WARNING, "spec_serve"):
        answer = server.post(path, body)
    lines = [record.getMessage() for record in caplog.records if "left out of" in record.getMessage()]

    assert answer.status_code == 200, answer.text
    for part in left_out:
        assert sum(part in line for line in lines if "of tools" in line) == 1, lines


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["codex", "claude"])
def test_an_agent_is_answered_whole_and_streamed(name, stream, server):
    path, body, _ = REQUESTS[name]
    answer = server.post(path, {**body, "stream": stream})

    assert answer.status_code == 200, answer.text
    if name == "codex" and not stream:
        assert [tool["type"] for tool in answer.json()["tools"]] == ["function", "namespace"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_change_the_answer_is_refused_by_name(name, server):
    path, body, param = REFUSED[name]
    answer = server.post(path, body)
    error = answer.json()["error"]

    assert answer.status_code == 400, answer.text
    assert param in str(error.get("param")) or param in error["message"], error


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_of_an_mcp_server_names_its_namespace(stream):
    call = '<tool_call>\n{"name": "mcp__docs____find", "arguments": {"a": 1}}\n</tool_call>'
    with serving(script_target(call.replace("docs____", "docs__"))) as server:
        answer = server.post("/v1/responses", {**CODEX, "max_output_tokens": 80, "stream": stream})
    if stream:
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        (item,) = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    else:
        (item,) = answer.json()["output"]

    assert (item["type"], item["name"], item["namespace"]) == ("function_call", "find", "mcp__docs__")
    assert json.loads(item["arguments"]) == {"a": 1}


def test_prompts_have_the_functions_that_are_offered(server):
    messages = server.post("/v1/messages/count_tokens", {**CLAUDE, "tools": CLAUDE["tools"][:2]}).json()

    assert messages == server.post("/v1/messages/count_tokens", CLAUDE).json()


def test_only_allowed_tools_may_be_called(server):
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "b"}]}
    tools = [{"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}} for name in "abc"]
    answer = server.post(
        "/v1/responses",
        {"input": "x", "tools": tools, "tool_choice": choice, "max_output_tokens": 60, "parallel_tool_calls": False},
    )

    assert [item["name"] for item in answer.json()["output"]] == ["b"]
