"""From a target and options to a trained head in its file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import click
import numpy as np
import torch
from spec_cli.common import note
from torch import Tensor

from spec_core import Sampling, Target
from spec_core.errors import UsageError
from spec_train import answers, begin, hops, induction, place, texts
from spec_train.course import Course, Plan
from spec_train.exam import Exam
from spec_train.follow import follow
from spec_train.lessons import Lessons, Row, Teacher
from spec_train.picking import pick
from spec_train.pupils import DFlashPupil, Eagle3Pupil, Pupil, parameters
from spec_train.shape import Shape, sized
from spec_train.show import Teller, curve
from spec_train.texts import Entry
from spec_train.write import Trained, write

MINUTES = 20.0
ASKED = 4000
"""Prompts that a zoo model answers unless it is told otherwise."""
ROOM = 1 << 30
"""Bytes of hidden states that are kept in memory; what does not fit is asked again."""
LOOKED_AT = 40
"""Rows that a beginning is fitted to."""
LEARNING = 2.5e-3
"""Learning rate at a width of 192 and below; it falls with the square root of the width."""


@attrs.frozen
class Reading:
    """What is learnt from: texts, prompts that the target may answer, its answers; and what is tried on."""

    rows: list[Row]
    prompts: list[Row]
    held: list[tuple[int, ...]]
    answers: list[Row] = attrs.field(factory=list)


def train_head(kind: Literal["eagle3", "dflash"], target: Target, **given: Any) -> None:
    """Train and write. Raises UsageError for data, options or places that will not do."""
    if target.tokenizer is None:
        raise UsageError(f"{target.info.name} has no tokenizer", hint="train on a model that has one")
    given["length"] = min(given["length"], target.info.context - 1)
    reading = answered(target, read(target, given), given)
    shape, d2t = shaped(kind, target, reading, given)
    pupil = begin.begun(shape, d2t, target, given["seed"], given.get("depth", 0))
    note(f"{kind} head of {parameters(pupil.head):,} parameters reads hidden states {shape.sources}")
    mark = fingerprint(kind, target, shape, reading, given)
    course = enrolled(target, shape, pupil, reading, mark, given)
    diary = course.run()
    finished(course, target, shape, d2t, given)
    note(f"loss {curve(diary.losses)}")
    click.echo(f"{diary.step} steps, loss {diary.loss:.8f}, {diary.marks[-1][1]}")
    click.echo(f"written: {given['out']}")


def read(target: Target, given: dict[str, Any]) -> Reading:
    """Texts and prompts; of a file of one's own some are held out, a zoo model has prompts for that."""
    own = given["data"] is not None
    entries = texts.read(given["data"]) if own else texts.brought(target)
    asked = [] if own else texts.asked(target, ASKED if given["generate"] is None else given["generate"])
    given["generate"] = given["generate"] or len(asked)
    shipped = None if own else target.info.extras.get("prompts")
    entries, held = texts.split(entries, given["seed"]) if shipped is None else (entries, texts.read(Path(shipped)))
    note(f"{len(entries)} texts to learn from, {len(held)} held out")
    rows = texts.tokenized(entries, target)
    prompts = [Row(tuple(p := e.prompt_tokens(target)), len(p)) for e in [*entries, *asked] if e.text is None]
    if not rows and not given["generate"]:
        raise UsageError("all lines are prompts without an answer", hint="let the target answer them: --generate N")
    return Reading(rows, prompts, held_prompts(held, target, given))


def held_prompts(held: list[Entry], target: Target, given: dict[str, Any]) -> list[tuple[int, ...]]:
    """Tokens of prompts, spread over all there are; the first half of a text is one. Room is left for the answer."""
    room = max(2, target.info.context - given["answer"] - 2)
    chosen = [held[i] for i in np.linspace(0, len(held) - 1, min(len(held), given["held_out"])).astype(int)]
    found = []
    for entry in chosen:
        tokens = entry.prompt_tokens(target) if entry.prompt else target.tokenizer.encode(entry.text)
        found.append(tuple(tokens if entry.prompt else tokens[: max(2, min(len(tokens) // 2, 256))])[-room:])
    return found


def answered(target: Target, reading: Reading, given: dict[str, Any]) -> Reading:
    """With what the target answers to as many prompts as were asked for."""
    if not given["generate"]:
        return reading
    room = max(2, min(given["length"], target.info.context - given["answer"] - 2))
    asked = answers.prompts(reading.prompts or reading.rows, given["generate"], room, given["seed"])
    tenth = max(1, len(asked) // 10)

    def told(done: int, of: int) -> None:
        if done % tenth == 0:
            note(f"answered {done} of {of} prompts")

    sampling = Sampling(temperature=given["temperature"])
    path = beside(given["out"], f"answers-{of_answers(target, asked, given)}.jsonl")
    written = answers.kept(path, target, asked, given["answer"], sampling, given["seed"], told)
    return attrs.evolve(reading, answers=written)


def of_answers(target: Target, asked: Sequence[tuple[int, ...]], given: dict[str, Any]) -> str:
    """What answers belong to: their model, the prompts, and how they were asked for."""
    options = {name: given[name] for name in ("answer", "temperature", "seed")}
    text = json.dumps([target.info.name, target.info.dtype, options, list(asked)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def shaped(
    kind: Literal["eagle3", "dflash"], target: Target, reading: Reading, given: dict[str, Any]
) -> tuple[Shape, Tensor | None]:
    """Sizes of the head, and which tokens it can draft."""
    info = target.info
    counts = texts.frequencies([*reading.rows, *reading.prompts, *reading.answers], info.vocab)
    most = min(given["draft_vocab"] or info.vocab, info.vocab)
    d2t = None
    if most < info.vocab:
        written = texts.frequencies([Row(row.tokens[row.start :]) for row in reading.answers], info.vocab)
        chosen, covered = texts.most_frequent(written, counts, most)
        note(f"{most} of {info.vocab} tokens can be drafted: {covered:.1%} of the texts")
        d2t = torch.from_numpy(chosen)
    if kind == "eagle3":
        sources = begin.eagle3_sources(info.layers, given["sources"])
        more = {"norm_before_residual": given["norm_before_residual"], "own_output": True}
        layers = 1
    else:
        layers = given["layers"]
        sources = begin.dflash_sources(info.layers, layers, given["sources"])
        mask = masked(given["mask"], info.vocab, counts)
        more = {"qk_norm": True, "block": given["block"], "mask": mask, "own_output": d2t is not None}
        more |= {"windows": (0,) * layers, "causal": (False,) * layers}
    common = {"draft_vocab": most, "inputs": len(sources), "sources": sources}
    return sized(kind, info, layers, given["heads"], given["ff"], **common, **more), d2t


def masked(given: int | None, vocab: int, counts: np.ndarray) -> int:
    """The token for unknown ones. Raises UsageError."""
    if given is not None and given >= vocab:
        raise UsageError(f"--mask {given}: the vocabulary has {vocab} tokens", hint=f"give one of 0 to {vocab - 1}")
    return texts.unused(counts) if given is None else given


def fingerprint(kind: str, target: Target, shape: Shape, reading: Reading, given: dict[str, Any]) -> str:
    """What a checkpoint belongs to: everything but how long it goes on."""
    digest = hashlib.sha256(repr(shape).encode())
    for row in (*reading.rows, *reading.prompts, *reading.answers):
        digest.update(np.array(row.tokens, dtype=np.int32).tobytes())
    names = ("generate", "answer", "temperature", "held_out", "batch", "length", "lr", "seed", "depth")
    options = {name: given.get(name) for name in names} | {"first": str(given["first"])}
    digest.update(json.dumps([kind, target.info.name, target.info.dtype, options], sort_keys=True).encode())
    return digest.hexdigest()[:16]


def enrolled(target: Target, shape: Shape, pupil: Pupil, reading: Reading, mark: str, given: dict[str, Any]) -> Course:
    """A course with everything it needs."""
    teacher = Teacher(target, shape.sources)
    lessons = Lessons(teacher, learnt_from(reading, pupil.least, given["length"]), ROOM)
    beginning(pupil, lessons, given)
    tried = [row for _, row in answers.answered(target, reading.held, given["answer"], Sampling(), given["seed"])]
    exam = Exam.of(teacher, tried)
    minutes = None if given["steps"] else given["minutes"] or MINUTES
    lr = given["lr"] or LEARNING * min(1.0, (192 / shape.width) ** 0.5)
    plan = Plan(given["seed"], lr, given["batch"], given["steps"], minutes)
    return Course(pupil, lessons, exam, plan, beside(given["out"], "checkpoint"), mark, Teller(plan))


def beginning(pupil: Pupil, lessons: Lessons, given: dict[str, Any]) -> None:
    """As the head that is gone on from, or as one that copies."""
    if given["first"] is not None:
        follow(pupil, given["first"], lessons.teacher.target.info.layers)
        return
    looked_at = pick(lessons, given["seed"], 0, LOOKED_AT)
    if isinstance(pupil, Eagle3Pupil):
        induction.start(pupil, looked_at)
    elif isinstance(pupil, DFlashPupil):
        hops.start(pupil, looked_at)


def learnt_from(reading: Reading, least: int, length: int) -> list[Row]:
    """The target's own answers where there are any, else the texts in pieces of ``length`` tokens."""
    if reading.answers:
        return texts.long_enough(reading.answers, least, "answer")
    return texts.long_enough(texts.pieces(reading.rows, length), least, "text")


def finished(course: Course, target: Target, shape: Shape, d2t: Tensor | None, given: dict[str, Any]) -> None:
    """The head under its final name; what was kept on the way is removed then."""
    name = f"{target.info.name}-{shape.kind}"
    write(Trained(shape, course.pupil.head.named(), d2t, name), target, given["out"], given["layout"], given["stored"])
    place.remove(course.place)
    for path in given["out"].parent.iterdir():
        if path.name.startswith(f"{given['out'].name}.answers-"):
            place.remove(path)


def beside(out: Path, what: str) -> Path:
    return out.with_name(f"{out.name}.{what}")
