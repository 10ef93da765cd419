"""A server with OpenAI's API over a toy language model with real speculative sampling, and faults to switch on.

The model is a bigram: after every token but the prompt's end, three tokens follow with 0.60, 0.25 and 0.15. The
drafter draws up to four tokens from q; a draft is accepted with min(1, p/q), else a token is drawn from the residual.
"""

from __future__ import annotations

import json
import math
import threading
import zlib
from bisect import bisect
from collections import Counter
from contextlib import contextmanager
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from random import Random

import httpx

WORDS = "ba ce di fo gu ha je ki lo mu na pe qi ro su ta ve wi xo yu".split()
VOCABULARY = [f" {a}{b}" for a in WORDS for b in ("", "n", "r", "s", "l", "k", "é")]
FIRST_ID = 200
SHARES = (0.60, 0.25, 0.15)
DRAFT_SHARES = ((0.45, 0.25, 0.30), (0.45, 0.10, 0.45), (0.30, 0.20, 0.50))
"""q by the token before: with the third, greedy drafts are rejected."""
WEAK = -14.0
DRAFT = 4
FAULTS = (
    "noise", "wrong_q", "no_residual", "favoured", "stop_leak", "logprobs_zero", "penalties_ignored", "penalties_twice",
    "stale_state", "other_prefix", "seeds_ignored", "usage_of_drafts", "characters_cut", "grammar_passed", "slot_kept",
)  # fmt: skip
VALID = ['{"colour": "red", "sure": true}', '{"colour": "green", "sure": false}', '{"colour": "blue", "sure": true}']


@lru_cache(maxsize=1 << 16)
def successors(key, token):
    """Tokens that may follow one, the most likely first; the first token of a text is nearly certain."""
    return Random(f"{key}/{token}").sample(range(len(VOCABULARY)), 3)


@lru_cache(maxsize=1 << 16)
def scores(key, token, drafter):
    shares = (0.97, 0.02, 0.01) if token < 0 else DRAFT_SHARES[token % 3] if drafter else SHARES
    return {t: math.log(s) for t, s in zip(successors(key, token), shares, strict=True)}


@lru_cache(maxsize=1 << 16)
def plain_distribution(key, token, drafter, temperature):
    """Tokens, probabilities and their running sums, without other parameters."""
    return cut(dict(scores(key, token, drafter)), temperature, {})


def cut(logits, temperature, fields):
    """The distribution after temperature and samplers: (tokens, probabilities, running sums)."""
    best = max(logits.values())
    weights = {t: math.exp((x - best) / temperature) for t, x in logits.items()}
    order = sorted(weights, key=lambda t: (-weights[t], t))
    total = sum(weights.values())
    if fields.get("top_k"):
        order = order[: fields["top_k"]]
    if fields.get("min_p"):
        order = [t for t in order if weights[t] >= fields["min_p"] * weights[order[0]]]
    if fields.get("top_p", 1) < 1:
        sums = list(accumulate(weights[t] / total for t in order))
        order = order[: 1 + next(i for i, s in enumerate(sums) if s >= fields["top_p"])]
    total = sum(weights[t] for t in order)
    chances = [weights[t] / total for t in order]
    return order, chances, list(accumulate(chances))


class Text:
    """One text that is generated."""

    def __init__(self, server, key, body, rng, drafting):
        self.server, self.key, self.body, self.rng, self.drafting = server, key, body, rng, drafting
        self.temperature = body.get("temperature", 1.0)
        names = ("presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "top_k", "top_p", "min_p")
        self.fields = {name: body[name] for name in names if body.get(name) is not None}
        self.tokens, self.drafted, self.accepted, self.from_draft, self.stale = [], 0, 0, [], False
        self.limit = body.get("max_tokens", 16)

    def fault(self, name):
        """Whether a fault happens now."""
        strength = self.server.faults.get(name, 0) if self.drafting else 0
        return bool(strength) and (strength >= 1 or self.rng.random() < strength)

    def distribution(self, tokens, drafter=False):
        """p or q after these tokens."""
        last = tokens[-1] if tokens else -1
        if self.stale and not drafter and len(tokens) > 1:
            last = tokens[-2]
        temperature = self.temperature or 1.0
        if not self.fields or drafter:
            return plain_distribution(self.key, last, drafter, temperature)
        logits, seen = dict(scores(self.key, last, drafter)), Counter(tokens)
        for name, value in (self.fields.get("logit_bias") or {}).items():
            token = int(name) - FIRST_ID
            if 0 <= token < len(VOCABULARY) and (token in logits or value > 0):
                logits[token] = logits.get(token, WEAK) + value
        times = 1
        if self.drafting and self.server.faults.get("penalties_ignored"):
            times = 0
        elif self.drafting and self.server.faults.get("penalties_twice"):
            times = 2
        for token in logits:
            if seen[token]:
                logits[token] -= times * self.fields.get("presence_penalty", 0)
                logits[token] -= times * self.fields.get("frequency_penalty", 0) * seen[token]
                logits[token] -= times * 3 * math.log(self.fields.get("repetition_penalty", 1))
        if all(x < -50 for x in logits.values()):
            logits = {FIRST_ID // 2 + i: -float(i) for i in range(3)}
        return cut(logits, temperature, self.fields)

    def choose(self, distribution):
        tokens, _, sums = distribution
        return tokens[0] if not self.temperature else tokens[min(bisect(sums, self.rng.random()), len(tokens) - 1)]

    def step(self):
        """Draft, verify, commit."""
        draft, chances, noises = [], [], []
        room = min(DRAFT, self.limit - len(self.tokens) - 1) if self.drafting and self.tokens else 0
        for _ in range(room):
            tokens, shares, sums = self.distribution(self.tokens + draft, drafter=True)
            u = self.rng.random()
            i = 0 if not self.temperature else min(bisect(sums, u), len(tokens) - 1)
            draft.append(tokens[i])
            chances.append(dict(zip(tokens, shares, strict=True)))
            noises.append(u)
        self.drafted += len(draft)
        for i, token in enumerate(draft):
            p = self.distribution(self.tokens)
            chosen = self.verify(p, chances[i], token, noises[i])
            self.tokens.append(chosen)
            self.from_draft.append(chosen == token)
            if chosen != token:
                self.stale = self.fault("stale_state")
                return
            self.accepted += 1
        self.tokens.append(self.choose(self.distribution(self.tokens)))
        self.from_draft.append(False)
        self.stale = False

    def verify(self, p, q, token, noise):
        """The token of a position: the draft, or one of the target."""
        tokens, shares, _ = p
        if not self.temperature:
            return tokens[0]
        chances = dict(zip(tokens, shares, strict=True))
        claimed = 1 / 3 if self.fault("wrong_q") else q[token]
        if self.fault("favoured"):
            return tokens[0]
        if self.rng.random() * claimed < chances.get(token, 0):
            return token
        rest = chances if self.fault("no_residual") else {t: max(0.0, c - q.get(t, 0)) for t, c in chances.items()}
        total = sum(rest.values())
        if not total:
            return self.choose(p)
        sums = list(accumulate(c / total for c in rest.values()))
        u = noise if self.fault("noise") else self.rng.random()
        return list(rest)[min(bisect(sums, u), len(sums) - 1)]

    def run(self):
        """Text pieces, and why it ended."""
        stops = self.body.get("stop") or []
        while len(self.tokens) < self.limit:
            before = len(self.tokens)
            self.step()
            text = self.text()
            ends = [text.index(stop) for stop in stops if stop in text]
            if ends:
                inside = len(self.tokens) - before > 1 and any(self.from_draft[before:])
                return (text if inside and self.fault("stop_leak") else text[: min(ends)]), "stop"
        del self.tokens[self.limit :]
        return self.text(), "length"

    def text(self):
        return "".join(VOCABULARY[t] for t in self.tokens)

    def logprobs(self):
        """(token, log-probability, two best) of each token, before samplers."""
        rows = []
        for i, token in enumerate(self.tokens):
            tokens, shares, _ = plain_distribution(self.key, self.tokens[i - 1] if i else -1, False, 1.0)
            own = dict(zip(tokens, shares, strict=True))
            value = math.log(own.get(token, 1e-9))
            if self.drafting and self.from_draft[i] and self.server.faults.get("logprobs_zero"):
                value = 0.0
            rows.append((VOCABULARY[token], value, {VOCABULARY[t]: math.log(s) for t, s in own.items()}))
        return rows


class StandIn:
    """The server. faults: {name: how often it happens}, of ``FAULTS``. refused: fields. drafts: whether it drafts.

    counts: whether answers count draft tokens. one_draw: a fixed seed for every text.
    """

    def __init__(self, refused=(), counts=True, drafts=True, one_draw=False, **faults):
        assert set(faults) <= {*FAULTS}
        self.faults, self.refused, self.counts, self.last, self.cancelled = faults, refused, counts, "", 0
        self.drafts, self.one_draw = drafts, one_draw
        self.requests, self.lock, self.chance = 0, threading.Lock(), Random(5)

    def handle(self, request):
        """The response to a request of httpx."""
        body = json.loads(request.content) if request.content else {}
        status, kind, parts = self.answer(request.url.path, body)
        return httpx.Response(status, headers={"content-type": kind}, content=iter(parts))

    def answer(self, path, body):
        if path == "/v1/models":
            return 200, "application/json", [b'{"data": [{"id": "toy"}]}']
        if path not in ("/v1/completions", "/v1/chat/completions"):
            return 404, "application/json", [b'{"error": {"message": "no such path"}}']
        for name in self.refused:
            if body.get(name):
                return 400, "application/json", [json.dumps({"error": {"message": f"{name} is refused"}}).encode()]
        chat = "messages" in body
        prompt = body["messages"][0]["content"] if chat else body["prompt"]
        with self.lock:
            self.requests += 1
            answer = self.generate(prompt, body, chat)
        return 200, *answer

    def generate(self, prompt, body, chat):
        drafting = body.get("speculative.n_max") != 0
        key = zlib.crc32(prompt.encode())
        if drafting and self.faults.get("other_prefix") and self.last[:6] == prompt[:6] and self.last != prompt:
            key = zlib.crc32(self.last.encode()) if self.chance.random() < self.faults["other_prefix"] else key
        if drafting and self.faults.get("slot_kept") and self.cancelled:
            key += 1
        if drafting:
            self.last, self.cancelled = prompt, bool(body.get("stream")) and self.faults.get("slot_kept", 0)
        texts, usage, drafts = [], 0, [0, 0]
        for i in range(body.get("n", 1)):
            ignored = drafting and self.faults.get("seeds_ignored")
            seed = None if ignored or "seed" not in body else f"{body['seed']}/{i}/{drafting}"
            rng = Random(1 if self.one_draw else seed or self.chance.random())
            text = Text(self, key, body, rng, drafting and self.drafts)
            written, finish = text.run()
            if "response_format" in body:
                broken = (
                    drafting and self.faults.get("grammar_passed") and text.rng.random() < self.faults["grammar_passed"]
                )
                written, finish = (
                    "Sure: red" if broken else text.rng.choice(VALID) if text.temperature else VALID[0],
                    "stop",
                )
            usage += len(text.tokens)
            if drafting and self.faults.get("usage_of_drafts"):
                usage += text.drafted - text.accepted
            drafts = [drafts[0] + text.drafted, drafts[1] + text.accepted]
            texts.append((text, written, finish))
        counts = {"draft_n": drafts[0], "draft_n_accepted": drafts[1]}
        extra = {
            "usage": {"prompt_tokens": len(prompt), "completion_tokens": usage},
            **({"timings": counts} if self.counts else {}),
        }
        if body.get("stream"):
            return "text/event-stream", self.events(texts[0], extra, chat, drafting)
        choices = [self.choice(i, *text, body, chat) for i, text in enumerate(texts)]
        return "application/json", [json.dumps({"choices": choices, **extra}).encode()]

    def choice(self, i, text, written, finish, body, chat):
        choice = {"index": i, "finish_reason": finish}
        choice |= {"message": {"role": "assistant", "content": written}} if chat else {"text": written}
        if body.get("logprobs"):
            rows = text.logprobs()
            choice["logprobs"] = {
                "content": [
                    {"token": t, "logprob": x, "top_logprobs": [{"token": k, "logprob": v} for k, v in top.items()]}
                    for t, x, top in rows
                ]
            } if chat else {
                "tokens": [t for t, _, _ in rows],
                "token_logprobs": [x for _, x, _ in rows],
                "top_logprobs": [top for _, _, top in rows],
            }  # fmt: skip
        return choice

    def events(self, text, extra, chat, drafting):
        """The pieces of a stream, one per token."""
        _, written, finish = text
        pieces = [written[i : i + 3] for i in range(0, len(written), 3)]
        if drafting and self.faults.get("characters_cut"):
            pieces = [piece.replace("é", "\ufffd\ufffd") for piece in pieces]
        for piece in pieces:
            choice = {"index": 0, "delta": {"content": piece}} if chat else {"index": 0, "text": piece}
            yield f"data: {json.dumps({'choices': [choice]})}\n\n".encode()
        end = {"index": 0, "finish_reason": finish, **({"delta": {}} if chat else {"text": ""})}
        yield f"data: {json.dumps({'choices': [end]})}\n\n".encode()
        yield f"data: {json.dumps({'choices': [], **extra})}\n\ndata: [DONE]\n\n".encode()


@contextmanager
def listen(answer):
    """A real server on a free port; answer: (path, body) to (status, content type, pieces of bytes)."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.reply({})

        def do_POST(self):
            self.reply(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def reply(self, body):
            status, kind, parts, *headers = answer(self.path, body)
            self.send_response(status)
            self.send_header("content-type", kind)
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()
            try:
                for part in parts:
                    self.wfile.write(part)
                    self.wfile.flush()
            except OSError:
                return  # the client left

        def log_message(self, *args):
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
