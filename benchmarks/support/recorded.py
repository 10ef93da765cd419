"""Data of a model for a replay: its texts, what methods draft at every position of them, and what steps take."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from time import perf_counter
from typing import Any

import attrs
import numpy as np
from spec_commands.prompts import Prompt

from spec_core import Compat, Draft, Run, Step, Target, Verdict, hookimpl
from spec_core.toolkit import choosers

LONGEST = 16
"""Tokens of the longest draft."""
RUN = {"control": "fixed", "reuse": False, "max_sequences": 1, "draft_max": LONGEST}
LOOKUPS = ("ngram", "suffix")
"""Methods that are replayed themselves, as they only read the text; of others the drafts are recorded."""


@attrs.define(eq=False)
class RejectAll:
    """A rule that accepts no drafted token, so that every position of a text gets a draft."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(noise="shared")

    @hookimpl
    def accept(self, step: Step) -> None:
        for seq, choice in choosers(step):
            step.decide(seq, Verdict((), choice(0)))


@attrs.define(eq=False)
class Lengths:
    """Drafts of every length in turn, to see what a forward takes."""

    made: int = 0

    @hookimpl
    def compat(self) -> Compat:
        return Compat()

    @hookimpl
    def draft(self, step: Step) -> None:
        for seq, budget in step.undrafted:
            self.made += 1
            if length := min(budget, self.made % (LONGEST + 1)):
                step.propose(seq, Draft([0] * length))


@attrs.frozen
class Seen:
    """A step: its draft and the chances of its tokens, and seconds by label; ``beside`` is what has none."""

    ids: list[int]
    chances: list[float]
    seconds: dict[str, float]

    @classmethod
    def of(cls, step: Step) -> Seen:
        draft = step.parts[0].draft
        ids, chances = ([], None) if draft is None else (list(draft.ids), draft.confidence)
        beside = perf_counter() - step.began - sum(step.seconds.values())
        chances = [1.0] * len(ids) if chances is None else [round(float(chance), 4) for chance in chances]
        return cls(ids, chances, {**step.seconds, "beside": beside})

    @property
    def host(self) -> float:
        """Seconds beside the forward."""
        return sum(self.seconds.values()) - self.seconds["verify"]


Texts = list[tuple[list[int], list[int], list[Seen]]]
"""Tokens of each prompt and of its text, and its steps after the first token."""


@attrs.frozen
class Recorder:
    """Generates the texts of prompts with several runs in turns; the first text loads and allocates."""

    target: Target
    prompts: list[Prompt]
    tokens: int
    temperature: float

    def texts(self, **runs: dict[str, Any]) -> dict[str, Texts]:
        """runs: arguments of each."""
        watched = {name: self._watch(given) for name, given in runs.items()}
        texts_by_run: dict[str, Texts] = {name: [] for name in runs}
        for prompt in [self.prompts[0], *self.prompts]:
            for name, (run, seen) in watched.items():
                seen.clear()
                seq = run.submit(
                    prompt.given, max_tokens=self.tokens, temperature=self.temperature, seed=prompt.seed(0)
                )
                for _ in run:
                    pass
                texts_by_run[name].append((seq.tokens[: seq.prompt_len], seq.tokens[seq.prompt_len :], seen[1:]))
        return {name: texts[1:] for name, texts in texts_by_run.items()}

    def _watch(self, given: dict[str, Any]) -> tuple[Run, list[Seen]]:
        """A run, and the list to which its steps with a token are added."""
        run, seen = Run(self.target, **{**RUN, **given}), list[Seen]()
        run.observe(lambda step: seen.append(Seen.of(step)) if step.parts and step.parts[0].verdict else None)
        return run, seen


def record_methods(methods: Iterable[str], recorder: Recorder) -> dict[str, Any]:
    """Record methods. forward: seconds by rows. host: of a step beside it. See ``of_method`` and ``of_plans``."""
    names = [*methods]
    lengths, auto = {"methods": [("lengths", Lengths())]}, {"methods": ["ngram"], "control": "auto"}
    texts = recorder.texts(plain={}, lengths=lengths, auto=auto, **{name: {"methods": [name]} for name in names})
    rejected = {
        name: {"methods": [(name, {"p_min": 0.0})], "rule": ("reject-all", RejectAll())}
        for name in names
        if name not in LOOKUPS
    }
    drafts = recorder.texts(**rejected)
    host = statistics.median(step.host for *_, seen in texts["plain"] for step in seen)
    recordings = {name: of_method(texts[name], host) for name in names}
    for name, drafted in drafts.items():
        recordings[name]["drafts"] = [[(step.ids, step.chances) for step in seen] for *_, seen in drafted]
    return {
        "vocab": recorder.target.info.vocab,
        "texts": [{"prompt": prompt, "ids": ids} for prompt, ids, _ in texts["plain"]],
        "forward": of_forwards(texts["lengths"]),
        "host": host,
        "methods": recordings,
        "plan": of_plans(texts["auto"]),
    }


def of_forwards(texts: Texts) -> list[float]:
    """Seconds of a forward with 1, 2, ... rows, which never fall; they are linear between measured numbers of rows."""
    times = medians((len(step.ids), step.seconds["verify"]) for *_, seen in texts for step in seen)
    lengths = sorted(times)
    each = np.interp(range(LONGEST + 1), lengths, [times[length] for length in lengths])
    return [float(seconds) for seconds in np.maximum.accumulate(each)]


def of_method(texts: Texts, host: float) -> dict[str, Any]:
    """Times of steps beside the forward and beside ``host``, the time of plain decoding there.

    idle: where it offers nothing. first, each: of a draft, and of each of its tokens. row: of the first draft for a
    text, for each token of the prompt.
    """
    times = medians((len(step.ids), step.host - host) for *_, seen in texts for step in seen[1:])
    lengths = [k for k in times if k]
    each, first = np.polyfit(lengths, [times[k] for k in lengths], 1) if len(lengths) > 1 else (0.0, times[lengths[0]])
    more = [(seen[0].host - host - first - each * len(seen[0].ids)) / len(prompt) for prompt, _, seen in texts]
    row = statistics.median(more)
    return {"idle": max(0.0, times.get(0, 0.0)), "first": first, "each": each, "row": max(0.0, row)}


def of_plans(texts: Texts) -> list[float]:
    """Seconds of a plan, and of each step that it learns from."""
    plans, passed = [], 0
    for step in (step for *_, seen in texts for step in seen):
        if seconds := step.seconds.get("draft.auto"):
            plans.append((passed, seconds))
            passed = 0
        passed += 1
    each, first = np.polyfit([passed for passed, _ in plans], [seconds for _, seconds in plans], 1)
    return [float(first), float(each)]


def medians(pairs: Iterable[tuple[int, float]], few: int = 5) -> dict[int, float]:
    """Medians by number, where there are a few values of it."""
    times_by_rows = defaultdict[int, list[float]](list)
    for number, value in pairs:
        times_by_rows[number].append(value)
    return {number: statistics.median(values) for number, values in times_by_rows.items() if len(values) >= few}
