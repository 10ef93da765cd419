"""A request in words of the audit, for chats and completions alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

Side = Literal["drafts", "plain"]
DRAFTS: Side = "drafts"
PLAIN: Side = "plain"


@attrs.frozen
class Arm:
    """A way to be answered: an address, the model there, and the fields that each request has."""

    side: Side
    url: str
    model: str | None = None
    fields: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class Ask:
    """A request. fields: sampling parameters and others, as the API names them. events_max: leave the stream then."""

    side: Side
    prompt: str
    max_tokens: int
    fields: Mapping[str, Any] = attrs.field(factory=dict)
    stream: bool = False
    events_max: int | None = None

    def body(self, arm: Arm, api: str) -> dict[str, Any]:
        """The request as JSON."""
        body: dict[str, Any] = {} if arm.model is None else {"model": arm.model}
        if api == "chat":
            body["messages"] = [{"role": "user", "content": self.prompt}]
        else:
            body["prompt"] = self.prompt
        fields = dict(self.fields)
        if (top := fields.pop("logprobs", None)) is not None:
            fields |= {"logprobs": True, "top_logprobs": top} if api == "chat" else {"logprobs": top}
        streaming = {"stream": True, "stream_options": {"include_usage": True}} if self.stream else {}
        return {**body, "max_tokens": self.max_tokens, **fields, **streaming, **arm.fields}

    def on(self, side: Side) -> Ask:
        """The same request to an arm."""
        return attrs.evolve(self, side=side)
