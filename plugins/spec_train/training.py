"""From a target and options to a trained head in its file."""

from __future__ import annotations

import hashlib
import json
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
from spec_train import answers, begin, induction, place, texts
from spec_train.course import Course, Plan
from spec_train.exam import Exam
from spec_train.lessons import Row, Teacher
from spec_train.pupils import Eagle3Pupil, Pupil, parameters
from spec_train.shape import Shape, sized
from spec_train.show import Teller, curve
from spec_train.texts import Entry, Rows
from spec_train.write import Trained, write

MINUTES = 20.0
LOOKED_AT = 24
"""Rows that a beginning is fitted to."""
LEARNING = 2.5e-3
"""Learning rate at a width of 192 and below; it falls with the square root of the width."""


@attrs.frozen
class Reading:
    """What is learnt from, and what is tried on: prompts for which the target writes the answers."""

    rows: list[Row]
    prompts: list[Row]
    held: list[tuple[int, ...]]


def train_head(kind: Literal["eagle3", "dflash"], target: Target, **given: Any) -> None:
    """Train and write. Raises UsageError for data, options or places that will not do."""
    if target.tokenizer is None:
        raise UsageError(f"{target.info.name} has no tokenizer", hint="train on a model that has one")
    given["length"] = min(given["length"], target.info.context - 1)
    reading = read(target, given)
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
    """Rows and prompts; of a file of one's own some texts are held out, a zoo model has prompts for that."""
    entries = texts.brought(target) if given["data"] is None else texts.read(given["data"])
    shipped = target.info.extras.get("prompts") if given["data"] is None else None
    if shipped is None:
        entries, held = texts.split(entries, given["seed"])
    else:
        held = texts.read(Path(shipped))
    note(f"{len(entries)} texts to learn from, {len(held)} held out")
    rows = texts.tokenized(entries, target)
    prompts = [Row(tuple(p := e.prompt_tokens(target)), len(p)) for e in entries if e.text is None]
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


def shaped(
    kind: Literal["eagle3", "dflash"], target: Target, reading: Reading, given: dict[str, Any]
) -> tuple[Shape, Tensor | None]:
    """Sizes of the head, and which tokens it can draft."""
    info, counts = target.info, texts.frequencies([*reading.rows, *reading.prompts], target.info.vocab)
    most = min(given["draft_vocab"] or info.vocab, info.vocab)
    d2t = None
    if most < info.vocab:
        chosen, covered = texts.most_frequent(counts, most)
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
    for row in (*reading.rows, *reading.prompts):
        digest.update(np.array(row.tokens, dtype=np.int32).tobytes())
    names = ("generate", "answer", "temperature", "held_out", "batch", "length", "lr", "seed", "depth")
    options = {name: given.get(name) for name in names}
    digest.update(json.dumps([kind, target.info.name, target.info.dtype, options], sort_keys=True).encode())
    return digest.hexdigest()[:16]


def enrolled(target: Target, shape: Shape, pupil: Pupil, reading: Reading, mark: str, given: dict[str, Any]) -> Course:
    """A course with everything it needs; the answers are written, here or in an earlier run."""
    teacher = Teacher(target, shape.sources)
    written = generated(target, reading, mark, given)
    rows = Rows(
        texts.long_enough(reading.rows, pupil.least, "text"),
        texts.long_enough(written, pupil.least, "answer"),
        given["length"],
    )
    if isinstance(pupil, Eagle3Pupil):
        rng = np.random.default_rng([given["seed"], 3])
        induction.start(pupil, [teacher.lesson(rows.pick(rng), logits=False) for _ in range(LOOKED_AT)])
    tried = [row for _, row in answers.answered(target, reading.held, given["answer"], Sampling(), given["seed"])]
    exam = Exam.of(teacher, tried)
    minutes = None if given["steps"] else given["minutes"] or MINUTES
    lr = given["lr"] or LEARNING * min(1.0, (192 / shape.width) ** 0.5)
    plan = Plan(given["seed"], lr, given["batch"], given["steps"], minutes)
    return Course(pupil, teacher, rows, exam, plan, beside(given["out"], "checkpoint"), mark, Teller(plan))


def generated(target: Target, reading: Reading, mark: str, given: dict[str, Any]) -> list[Row]:
    """What the target answers to as many prompts as were asked for."""
    if not given["generate"]:
        return []
    room = max(2, min(given["length"], target.info.context - given["answer"] - 2))
    asked = answers.prompts(reading.prompts or reading.rows, given["generate"], room, given["seed"])
    path = beside(given["out"], f"answers-{mark[:8]}.jsonl")
    tenth = max(1, len(asked) // 10)

    def told(done: int, of: int) -> None:
        if done % tenth == 0:
            note(f"answered {done} of {of} prompts")

    sampling = Sampling(temperature=given["temperature"])
    return answers.kept(path, target, asked, given["answer"], sampling, given["seed"], told)


def finished(course: Course, target: Target, shape: Shape, d2t: Tensor | None, given: dict[str, Any]) -> None:
    """The head under its final name; what was kept on the way is removed then."""
    name = f"{target.info.name}-{shape.kind}"
    write(Trained(shape, course.pupil.head.named(), d2t, name), target, given["out"], given["layout"], given["stored"])
    place.remove(course.place)
    place.remove(beside(given["out"], f"answers-{course.mark[:8]}.jsonl"))


def beside(out: Path, what: str) -> Path:
    return out.with_name(f"{out.name}.{what}")
