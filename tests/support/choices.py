"""Random choices, made natively and by the reference: in seconds for the suite, for long in tests/campaigns/soak.py."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
import torch

from spec_core import Sampling
from spec_core.sampling import native, reference
from spec_core.sampling.choose import adjust_row, most_likely, place, support
from spec_core.sampling.logprob import logprob
from spec_core.sampling.noise import gumbel

SIZES = (1, 2, 3, 15, 16, 17, 48, 63, 64, 65, 127, 128, 129, 300, 1000)
TEMPERATURES = (0.0, 1e-320, 1e-3, 0.1, 0.5, 0.8, 1.0, 1.5, 10.0, 100.0)
TOP_K = (0, 0, 0, 1, 2, 5, 40, 2000)
TOP_P = (1.0, 1.0, 1e-9, 0.1, 0.5, 0.8, 0.95, 0.999999, 1 - 2**-53)
MIN_P = (0.0, 0.0, 1e-9, 0.01, 0.1, 0.5, 1.0)
REPETITION = (1.0, 1.0, 1.0, 1.1, 0.5, 100.0)
PENALTY = (0.0, 0.0, 0.0, 0.3, -0.7, 2.0)


@attrs.frozen(eq=False)
class Case:
    """A row and all inputs of a choice from it."""

    row: torch.Tensor
    sampling: Sampling
    source: tuple[int, int, int]
    t: int
    tokens: list[int]
    prompt: int
    drafted: tuple[int, ...]

    def native(self) -> tuple[int, float, float]:
        history = self.tokens, self.prompt, self.drafted
        return native.module.draw(
            (*place(self.row, stride=0), self.sampling._terms, self.source, self.t, *history, None)
        )

    def choose_in_python(self) -> tuple[int, float, float]:
        row = adjust_row(self.row, self.sampling, [*self.tokens, *self.drafted], self.prompt)
        return reference.choose_token(row.numpy(), self.sampling, self.source, self.t)


def cases(seed: int, count: int, sizes: tuple[int, ...] = SIZES) -> Iterator[Case]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n = int(rng.choice(sizes))
        tokens = rng.integers(-1, n, int(rng.integers(0, 20))).tolist()
        prompt = int(rng.integers(0, len(tokens) + 1))
        drafted = tuple(rng.integers(0, n, int(rng.integers(0, 4))).tolist())
        source = int(rng.integers(0, 2**63)), int(rng.integers(0, 2**16)), int(rng.integers(0, 2**32))
        yield Case(row(rng, n), sampling(rng, n), source, int(rng.integers(0, 2**32)), tokens, prompt, drafted)


def row(rng: np.random.Generator, n: int) -> torch.Tensor:
    """Peaked, flat, with ties, with banned tokens, of both types, some with NaN."""
    values = rng.normal(size=n) * rng.choice([1e-3, 0.3, 3.0, 30.0, 1e6]) + rng.choice([0.0, 50.0])
    kind = int(rng.integers(0, 12))
    if kind in (0, 1):
        values = np.round(values)
    elif kind == 2:
        values[:] = values[0]
    elif kind in (3, 4):
        values[rng.random(n) < rng.choice([0.1, 0.9, 1.0])] = -math.inf
    elif kind == 5:
        values[rng.integers(n)] = rng.choice([math.nan, math.inf])
    return torch.from_numpy(values.astype(rng.choice([np.float32, np.float64])))


def sampling(rng: np.random.Generator, n: int) -> Sampling:
    one = lambda values: float(rng.choice(values))
    bias = {int(i): float(rng.choice([-math.inf, -2.0, 0.3, 5.0])) for i in rng.integers(0, n, int(rng.integers(0, 3)))}
    return Sampling(
        one(TEMPERATURES),
        int(rng.choice(TOP_K)),
        one(TOP_P),
        one(MIN_P),
        one(REPETITION),
        one(PENALTY),
        one(PENALTY),
        bias if rng.random() < 0.3 else {},
    )


def same(a: Any, b: Any) -> bool:
    """Equal, and NaN is equal to NaN."""
    return all(x == y or (x != x and y != y) for x, y in zip(a, b, strict=True))


def differing(isa: str, seed: int, count: int, sizes: tuple[int, ...] = SIZES) -> list[Case]:
    """Cases with different results in the two forms."""
    native.module.use(isa)
    try:
        with np.errstate(invalid="ignore"):
            return [case for case in cases(seed, count, sizes) if not same(case.native(), case.choose_in_python())]
    finally:
        native.module.use(None)


class Place(ctypes.Structure):
    """``spec_choice`` of chooser.h."""

    _fields_ = (
        ("path", ctypes.c_void_p),
        ("depth", ctypes.c_int32),
        ("n", ctypes.c_int32),
        ("logits", ctypes.c_void_p),
        ("ids", ctypes.c_void_p),
    )


class Chooser(ctypes.Structure):
    """The structure that a capsule of ``spec_chooser`` points to (chooser.h), called as a loop that drafts calls it."""

    _fields_ = (
        ("context", ctypes.c_void_p),
        ("choose", ctypes.CFUNCTYPE(ctypes.c_char_p, *[ctypes.c_void_p] * 4)),
        ("rank", ctypes.CFUNCTYPE(ctypes.c_char_p, *[ctypes.c_void_p] * 2, ctypes.c_int32, *[ctypes.c_void_p] * 3)),
    )

    @classmethod
    def of(cls, capsule: Any) -> Chooser:
        """Valid as long as the capsule is alive."""
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        return cls.from_address(get(capsule, b"spec.chooser.2"))

    def token(self, path: list[int], row: torch.Tensor, ids: torch.Tensor | None = None) -> tuple[int, float] | str:
        """The token after a drafted path by a row float32 [n], and its chance, or why there is none. ids: int64 [n]."""
        token, chance, before = ctypes.c_int64(-1), ctypes.c_double(-1), torch.tensor(path, dtype=torch.int64)
        where = Place(before.data_ptr(), len(path), len(row), row.data_ptr(), None if ids is None else ids.data_ptr())
        wrong = self.choose(self.context, *map(ctypes.addressof, (where, token, chance)))
        return wrong.decode() if wrong else (token.value, chance.value)

    def tokens(
        self, path: list[int], row: torch.Tensor, count_max: int, ids: torch.Tensor | None = None
    ) -> list[tuple[int, float]]:
        """The best tokens after a drafted path, and their chances."""
        tokens, chances, count = (ctypes.c_int64 * count_max)(), (ctypes.c_double * count_max)(), ctypes.c_int32(-1)
        before = torch.tensor(path, dtype=torch.int64)
        where = Place(before.data_ptr(), len(path), len(row), row.data_ptr(), None if ids is None else ids.data_ptr())
        wrong = self.rank(
            self.context, ctypes.addressof(where), count_max, *map(ctypes.addressof, (tokens, chances, count))
        )
        assert wrong is None, wrong
        return list(zip(tokens[: count.value], chances[: count.value], strict=True))


def choose_path(case: Case, count_max: int, part: float) -> list[Any]:
    """Tokens and chances of a chooser along their path, one more than it has room for; its rows have a part of the
    tokens."""
    n, row = len(case.row), case.row.float()
    terms = case.sampling._terms, case.source, case.t, (1, 1 << 16), case.tokens, case.prompt
    capsule = native.module.chooser(*terms, n, count_max)
    ids = torch.randperm(n)[: max(1, int(part * n))] if part < 1 else None
    logits = row if ids is None else row[ids]
    of = Chooser.of(capsule)
    wrong = [
        of.token([], torch.zeros(n + 1)),
        of.token([], logits[:1], torch.tensor([n])),
        of.token([], logits[:1], torch.tensor([-1])),
    ]
    assert all(isinstance(reason, str) for reason in wrong)
    path: list[Any] = []
    while len(path) <= count_max:
        path.append(of.token([token for token, _ in path], logits, ids))
    return path


def rank(case: Case, count_max: int, ids: torch.Tensor | None, noise: bool) -> list[tuple[int, float]]:
    """The best tokens after the drafted path of a case, by noise or by probability; its row has those of ``ids``."""
    n, row = len(case.row), case.row.float()
    sampling = case.sampling._terms if noise else None
    terms = sampling, case.source, case.t, (1, 1 << 16), case.tokens, case.prompt
    capsule = native.module.chooser(*terms, n, len(case.drafted) + 1)
    return Chooser.of(capsule).tokens(list(case.drafted), row if ids is None else row[ids], count_max, ids)


def everything(count: int) -> None:
    """Every function of the extension over random rows, its result unread: for sanitizers."""
    for case in cases(3, count):
        values = case.row[None]
        most_likely(values, 8), most_likely(values, 100), logprob(case.row, 0, 5)
        if case.sampling.temperature and math.isfinite(case.row.max()):
            support(case.row, case.sampling)
        terms = case.sampling._terms, case.source, case.t, case.tokens, case.prompt
        place_of = place(case.row, stride=0)
        drafts = (None, None), (case.drafted, None), (case.drafted, tuple(-1 for _ in case.drafted))
        choose_path(case, 3, 1.0), choose_path(case, 3, 0.4)
        rank(case, 5, None, False), rank(case, 64, None, case.sampling.temperature > 0)
        native.module.walk([(*place_of, *terms, *draft) for draft in drafts])
    for n in (1, 63, 64, 65, 1000):
        gumbel(1, 2, n), gumbel(1, 2, torch.arange(n))
