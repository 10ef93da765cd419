"""Conversations that exercise chat templates: tools, calls, reasoning, parts, system messages."""

from __future__ import annotations

from typing import Any

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather <of> a city & its 'days'",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "größer"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
CALL = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln"}}}
USER = {"role": "user", "content": "Wie wird das Wetter? <b>"}
CONVERSATIONS: dict[str, dict[str, Any]] = {
    "one": {"messages": [USER]},
    "system": {"messages": [{"role": "system", "content": "Be brief."}, USER]},
    "turns": {"messages": [USER, {"role": "assistant", "content": " Gut.\n"}, {"role": "user", "content": "Und?"}]},
    "whole": {"messages": [USER, {"role": "assistant", "content": "Gut."}], "add_generation_prompt": False},
    "reasoning": {
        "messages": [USER, {"role": "assistant", "content": "Gut.", "reasoning_content": "Hm."}, USER],
    },
    "thinking-off": {"messages": [USER], "enable_thinking": False},
    "tools": {"messages": [USER], "tools": [TOOL]},
    "calls": {
        "messages": [
            USER,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": '{"sky": "blue"}'},
        ],
        "tools": [TOOL],
    },
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Wie?"}]}]},
    "documents": {"messages": [USER], "documents": [{"title": "a", "text": "b"}]},
}  # fmt: skip
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
