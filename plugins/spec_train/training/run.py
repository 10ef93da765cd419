"""From a target and options to a trained head in its file."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any, Literal

import attrs
import click
import numpy as np
import torch
from spec_cli.common import note
from torch import Tensor

from spec_core import Target
from spec_core.errors import UsageError
from spec_train import answers, begin, fitted, hops, induction, place, texts
from spec_train.answers import Asking, Desk
from spec_train.course import Course, Plan
from spec_train.exam import Exam
from spec_train.follow import follow
from spec_train.lessons import Lesson, Lessons, Row, Teacher
from spec_train.picking import pick
from spec_train.pupils import DFlashPupil, Eagle3Pupil, Pupil, parameters
from spec_train.shape import Shape, sized
from spec_train.shelf import Shelf
from spec_train.show import Progress, Teller, curve
from spec_train.texts import Entry
from spec_train.write import Trained, write

MINUTES = 20.0
ASKED = 4000
"""Prompts that a zoo model answers at most, unless it is told how many."""
ASKING = 0.5
"""How long it does that at most, beside the time of the training."""
ROOM, DISK = 1 << 30, 16 << 30
"""Bytes of hidden states that are kept in memory, and on disk; what does not fit is asked again."""
LOOKED_AT = 96
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
    sources = begin.sources(kind, target.info.layers, given)
    teacher = Teacher(target, sources)
    desk = Desk(teacher, Shelf(beside(given["out"], f"states-{of_states(teacher)}"), DISK, target.info.device))
    reading = answered(desk, read(target, given), given)
    shape, d2t = shaped(kind, target, sources, reading, given)
    pupil = begin.begun(shape, d2t, target, given["seed"], given.get("depth", 0))
    note(f"{kind} head of {parameters(pupil.head):,} parameters reads hidden states {shape.sources}")
    mark = fingerprint(kind, target, shape, reading, given)
    course = enrolled(desk, pupil, reading, mark, given)
    diary = course.run()
    finished(course, target, shape, d2t, given)
    note(f"loss {curve(diary.losses)}")
    click.echo(f"{diary.step} steps, loss {diary.loss:.8f}, {diary.marks[-1][1]}")
    click.echo(f"written: {given['out']}")


def read(target: Target, given: dict[str, Any]) -> Reading:
    """Texts and prompts; of a file of one's own some are held out, a zoo model has prompts for that.

    Texts of a zoo model are not read where it has prompts whose answers are learnt from."""
    own = given["data"] is not None
    asked = [] if own else texts.asked(target, ASKED if given["generate"] is None else given["generate"])
    entries = texts.read(given["data"]) if own else [] if asked else texts.brought(target)
    timed = given["generate"] is None and given["steps"] is None
    given["asking"] = 60 * ASKING * (given["minutes"] or MINUTES) if timed else math.inf
    given["generate"] = given["generate"] or len(asked)
    shipped = None if own else target.info.extras.get("prompts")
    entries, held = texts.split(entries, given["seed"]) if shipped is None else (entries, texts.read(Path(shipped)))
    note(f"{len(entries) or len(asked)} {'texts' if entries else 'prompts'} to learn from, {len(held)} held out")
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


def answered(desk: Desk, reading: Reading, given: dict[str, Any]) -> Reading:
    """With what the target answers to as many prompts as were asked for."""
    if not given["generate"]:
        return reading
    target = desk.teacher.target
    room = max(2, min(given["length"], target.info.context - given["answer"] - 2))
    asked = answers.prompts(reading.prompts or reading.rows, given["generate"], room, given["seed"])
    how = Asking(given["answer"], given["temperature"], given["seed"])
    path = beside(given["out"], f"answers-{of_answers(target, how)}.jsonl")
    if beside(given["out"], "checkpoint").exists():  # what was learnt from then
        return attrs.evolve(reading, answers=answers.held(path))
    written = desk.kept(path, asked, how, given["asking"], Progress(len(asked)))
    note(f"{len(written)} answers of {sum(len(row.tokens) - row.start for row in written):,} tokens to learn from")
    return attrs.evolve(reading, answers=written)


def of_answers(target: Target, how: Asking) -> str:
    """What answers belong to: their model, and how they were asked for."""
    return short([target.info.name, target.info.dtype, attrs.asdict(how)])


def of_states(teacher: Teacher) -> str:
    """What hidden states belong to."""
    return short([teacher.target.info.name, teacher.target.info.dtype, list(teacher.sources)])


def short(facts: Any) -> str:
    """Eight letters for anything JSON can say."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]


def shaped(
    kind: Literal["eagle3", "dflash"],
    target: Target,
    sources: tuple[int, ...],
    reading: Reading,
    given: dict[str, Any],
) -> tuple[Shape, Tensor | None]:
    """Sizes of the head, and which tokens it can draft."""
    info = target.info
    counts = texts.frequencies([*reading.rows, *reading.prompts, *reading.answers], info.vocab)
    most = min(given["draft_vocab"] or texts.enough(info.vocab), info.vocab)
    d2t = None
    if most < info.vocab:
        written = texts.frequencies([Row(row.tokens[row.start :]) for row in reading.answers], info.vocab)
        chosen, covered = texts.most_frequent(written, counts, most)
        note(f"{most} of {info.vocab} tokens can be drafted: {covered:.1%} of the texts")
        d2t = torch.from_numpy(chosen)
    if kind == "eagle3":
        more = {"norm_before_residual": given["norm_before_residual"], "own_output": True}
        layers = 1
    else:
        layers = given["layers"]
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


def enrolled(desk: Desk, pupil: Pupil, reading: Reading, mark: str, given: dict[str, Any]) -> Course:
    """A course with everything it needs."""
    lessons = Lessons(desk.teacher, learnt_from(reading, pupil.least, given["length"]), ROOM, desk.shelf)
    checkpoint = beside(given["out"], "checkpoint")
    if not checkpoint.exists():  # which has what it began with
        beginning(pupil, lessons, given)
    minutes = None if given["steps"] else given["minutes"] or MINUTES
    lr = given["lr"] or LEARNING * min(1.0, (192 / pupil.head.shape.width) ** 0.5)
    plan = Plan(given["seed"], lr, given["batch"], given["steps"], minutes)
    exam = examined(desk, reading.held, given)
    return Course(pupil, lessons, exam, plan, checkpoint, mark, Teller(plan))


def examined(desk: Desk, prompts: list[tuple[int, ...]], given: dict[str, Any]) -> Exam:
    """What the target says to held-out prompts, greedily."""
    how = Asking(given["answer"], (0.0,), given["seed"])
    path = beside(given["out"], f"held-out-{of_answers(desk.teacher.target, how)}.jsonl")
    rows = [row for row in desk.kept(path, prompts, how) if len(row.tokens) > row.start + 1]
    return Exam(list(Lessons(desk.teacher, rows, 0, desk.shelf)))


def beginning(pupil: Pupil, lessons: Lessons, given: dict[str, Any]) -> None:
    """As the head that is gone on from, or as one that says what can be told without training."""
    if given["first"] is not None:
        follow(pupil, given["first"], lessons.teacher.target.info.layers)
        return
    looked_at = pick(lessons, given["seed"], 0, LOOKED_AT)
    if isinstance(pupil, Eagle3Pupil):
        fitted.start(pupil, looked_at, finals(lessons.teacher, looked_at))
        induction.start(pupil, looked_at)
        fitted.sure(pupil, looked_at)
    elif isinstance(pupil, DFlashPupil):
        hops.start(pupil, looked_at)


def finals(teacher: Teacher, lessons: list[Lesson]) -> list[Tensor]:
    """[T, D] of each lesson, what the output matrix reads: asked for where it is no hidden state of the head."""
    last, width = teacher.target.info.layers, teacher.target.info.width
    if last in teacher.sources:
        at = teacher.sources.index(last) * width
        return [x.features[:, at : at + width] for x in lessons]
    asked = Teacher(teacher.target, (last,))
    return [asked.lesson(Row(tuple(x.tokens.tolist()), x.start)).features for x in lessons]


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
    kept = tuple(beside(given["out"], f"{what}-").name for what in ("answers", "held-out", "states"))
    for path in given["out"].parent.iterdir():
        if path.name.startswith(kept):
            place.remove(path)


def beside(out: Path, what: str) -> Path:
    return out.with_name(f"{out.name}.{what}")
