"""A small server with OpenAI's API whose streams are written down: for comparisons of servers."""

from __future__ import annotations

import json
from time import sleep

STREAM = "text/event-stream"
WORDS = [f" w{i}" for i in range(40)]


def event(body):
    return f"data: {json.dumps(body)}\n\n".encode()


class StoryServer:
    """Answers every prompt with words. pause: seconds before each piece. size: words of a piece, its draft included.

    usage, timings, metrics: what it counts. text: another one than the words. first, last: events around a stream.
    """

    def __init__(
        self, size=1, pause=0.001, usage=True, timings=True, metrics=False, words=WORDS, model="toy", key=None,
        count=None, before=(), instead=None, others=0,
    ):  # fmt: skip
        self.size, self.pause, self.usage, self.timings, self.metrics = size, pause, usage, timings, metrics
        self.words, self.model, self.key, self.count, self.before = words, model, key, count, before
        self.instead, self.others, self.bodies, self.counters = instead, others, [], [0, 0, 0, 0]

    def answer(self, path, body):
        if path == "/v1/models":
            return 200, "application/json", [json.dumps({"data": [{"id": self.model, "max_model_len": 99}]}).encode()]
        if path == "/metrics":
            return (200, "text/plain", [self.metric_text()]) if self.metrics else (404, "text/plain", [b"none"])
        self.bodies.append(body)
        if self.instead is not None and len(self.bodies) > 1:
            return self.instead
        return 200, STREAM, self.stream(body, "messages" in body)

    def metric_text(self):
        names = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
        lines = [f"vllm:spec_decode_{name}_total {self.counters[i]}" for i, name in enumerate(names)]
        return "\n".join([*lines, f"vllm:generation_tokens_total {self.counters[3]}", ""]).encode()

    def stream(self, body, chat):
        yield from self.before
        words = self.words[: body["max_tokens"]]
        pieces = ["".join(words[:1])]
        pieces += ["".join(words[i : i + self.size]) for i in range(1, len(words), self.size)]
        for piece in pieces:
            sleep(self.pause)
            choice = {"index": 0, "delta": {"content": piece}} if chat else {"index": 0, "text": piece}
            yield event({"choices": [choice]})
        drafting = body.get("speculative.n_max") != 0
        steps = len(pieces) - 1
        counts = [steps, 8 * steps, len(words) - 1 - steps] if drafting else [0, 0, 0]
        tokens = self.count or len(words)
        self.counters = [a + b for a, b in zip(self.counters, [*counts, tokens + self.others], strict=True)]
        yield event({"choices": [{"index": 0, "finish_reason": "length", **({"delta": {}} if chat else {"text": ""})}]})
        usage = {"usage": {"prompt_tokens": 5, "completion_tokens": tokens}} if self.usage else {}
        timings = {"timings": {"draft_n": counts[1], "draft_n_accepted": counts[2]}} if self.timings else {}
        yield event({"choices": [], **usage, **timings}) + b"data: [DONE]\n\n"
