"""The native choice of a token equals the reference bit for bit on every instruction set."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import attrs
import numpy as np
import pytest
import torch
from toys import DRAFTERS, WARPERS, drafter, texts, together, toy_run

from spec_core import Request, Sampling
from spec_core.sampling import arithmetic, native, reference
from spec_core.sampling.choose import KINDS, adjust_row, finite_choice, likeliest_on_device, most_likely, place, support
from spec_core.sampling.instruction_set import allowed_sets
from spec_core.sampling.logprob import logprob
from spec_core.sampling.noise import gumbel, noise
from spec_core.toolkit.token_drafter import TokenDrafter, agreement
from tests.support import choices

ISAS = ("avx512", "avx2", "neon", "generic")
with_native = pytest.mark.skipif(native.module is None, reason="needs the extension")


@pytest.fixture(params=ISAS)
def isa(request):
    """One instruction set at a time; skipped if this processor lacks it."""
    if native.module is None or request.param not in native.module.instruction_sets():
        pytest.skip(f"needs the extension and {request.param}")
    native.module.use(request.param)
    yield request.param
    native.module.use(None)


@pytest.fixture
def pure(monkeypatch):
    """As in an installation without a compiler."""
    monkeypatch.setattr(native, "module", None)


def rows(count: int, seed: int = 0) -> list[torch.Tensor]:
    """Logits without NaN or infinity."""
    return [case.row for case in choices.cases(seed, count) if math.isfinite(case.row.max())]


@pytest.mark.repeats(3)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_choice_is_that_of_the_reference(isa, seed):
    """10,000 over all settings, rows and instruction sets: token, largest logit, and distance of the two best."""
    assert not choices.differing(isa, seed, 1700)


@pytest.mark.repeats(3)
@pytest.mark.parametrize("part", [1.0, 0.4], ids=["whole", "reduced"])
def test_a_chooser_goes_on_behind_its_own_tokens(isa, part):
    """Every token with the noise and history of its position, and not more tokens than the buffer holds."""
    for case in choices.cases(5, 300):
        torch.manual_seed(case.t % 1000)
        *pairs, end = choices.choose_path(case, 3, part)
        torch.manual_seed(case.t % 1000)
        ids = torch.randperm(len(case.row))[: max(1, int(part * len(case.row)))] if part < 1 else slice(None)
        row = torch.full((len(case.row),), -math.inf)
        row[ids] = case.row.float()[ids]
        for i, pair in enumerate(pairs):
            (seed, stream, domain), before = case.source, [token for token, _ in pairs[:i]]
            history = adjust_row(row, case.sampling, case.tokens + before, case.prompt)
            source = seed, stream, domain + i * (1 << 16) & 0xFFFFFFFF
            with np.errstate(invalid="ignore"):
                token, logit, apart = reference.choose_token(history.numpy(), case.sampling, source, case.t + i)
            assert pair == (token, agreement(apart) if math.isfinite(logit) else 0.0)
        assert end == "the draft is longer than its chooser allows"


def noise_of(case):
    """``Step.noise`` of a case whose domain is another for every token."""
    seed, stream, domain = case.source
    return lambda seq, i, ids: gumbel(seed, case.t + i, ids, stream, domain + i * (1 << 16) & 0xFFFFFFFF)


@pytest.mark.repeats(12)
@pytest.mark.parametrize("part", [1.0, 0.4], ids=["whole", "reduced"])
@pytest.mark.parametrize("noise", [False, True], ids=["by probability", "by noise"])
@pytest.mark.parametrize("count_max", [2, 5, 64])
def test_a_chooser_ranks_tokens_as_a_drafter_does(isa, count_max, noise, part):
    """Tokens and chances of ``TokenDrafter.candidates``, to the bit, behind a drafted path."""
    for case in choices.cases(11, 150):
        sampling = attrs.evolve(case.sampling, temperature=case.sampling.temperature or 0.7) if noise else Sampling()
        case, n = attrs.evolve(case, sampling=sampling), len(case.row)
        ids = torch.randperm(n)[: max(1, int(part * n))] if part < 1 else None
        row = torch.full((n,), -math.inf)
        row[slice(None) if ids is None else ids] = case.row.float() if ids is None else case.row.float()[ids]
        step = SimpleNamespace(private=False, noise=noise_of(case))
        seq = SimpleNamespace(sampling=sampling, tokens=case.tokens, prompt_len=case.prompt, matcher=None)
        expected = TokenDrafter(0.0).candidates(step, seq, list(case.drafted), row, count_max)
        assert choices.rank(case, count_max, ids, noise) == expected, case


@pytest.mark.repeats(3)
@pytest.mark.slow
@pytest.mark.parametrize("size", [49_152, 151_936])
def test_a_choice_from_a_large_vocabulary_is_that_of_the_reference(isa, size):
    assert not choices.differing(isa, size, 60, (size,))


def test_a_difference_would_be_found(isa, monkeypatch):
    """Noise that differs in the last of 40 bits changes some choices."""
    monkeypatch.setattr(reference, "noise", lambda *args: noise(*args) * (1 + 2**-12))

    assert choices.differing(isa, 0, 300)


def test_the_support_is_that_of_the_reference(isa):
    for case in choices.cases(5, 600):
        if case.sampling.temperature and math.isfinite(case.row.max()):
            expected, got = reference.support(case.row.numpy(), case.sampling), support(case.row, case.sampling)
            assert all(np.array_equal(a, b.numpy()) for a, b in zip(expected, got, strict=True)), case


@pytest.mark.parametrize("n", [1, 63, 64, 65, 1000, 5000])
def test_noise_is_that_of_the_reference(isa, n):
    """Of the whole vocabulary and of some tokens."""
    whole, ids = noise(2**63 + 5, 7, n, 3, 1 << 31), torch.randint(0, n, (99,))

    assert np.array_equal(whole, gumbel(2**63 + 5, 7, n, 3, 1 << 31).numpy())
    assert np.array_equal(whole[ids.numpy()], gumbel(2**63 + 5, 7, ids, 3, 1 << 31).numpy())


def test_probabilities_are_those_of_the_reference(isa, monkeypatch):
    """With few and with many likeliest tokens, and log-probabilities with the best tokens."""
    samples = rows(300)
    ask = lambda row: [*(most_likely(row[None], n) for n in (0, 1, 8, 64, 65, 999)), logprob(row, len(row) // 2, 5)]
    natively = [ask(row) for row in samples]
    monkeypatch.setattr(native, "module", None)

    assert [ask(row) for row in samples] == natively


def test_probabilities_are_those_of_the_softmax(isa):
    """Of the whole row, of several rows in one call."""
    rows = torch.randn(5, 3000, generator=torch.Generator().manual_seed(0)) * 4
    exact = torch.softmax(rows.double(), -1)
    for pairs, chances in zip(most_likely(rows, 20), exact, strict=True):
        best = chances.sort(descending=True, stable=True)
        assert [token for token, _ in pairs] == best.indices[:20].tolist()
        assert np.allclose([chance for _, chance in pairs], best.values[:20], rtol=3e-6, atol=0)


@pytest.mark.repeats(3)
@pytest.mark.parametrize("warper", WARPERS)
def test_texts_are_the_same_without_the_extension(warper, monkeypatch):
    """Trees and histories with a drafted prefix, all in one run; the numbers of accepted drafts are equal too."""
    requests = [
        Request([1, i], max_tokens=12, seed=i, name=str(i), sampling=Sampling(0.9 * (i % 3), **WARPERS[warper]))
        for i in range(4)
    ]
    plain_texts = texts(requests)
    natively = [together(toy_run(drafter(kind, plain_texts)), requests) for kind in DRAFTERS]
    monkeypatch.setattr(native, "module", None)

    for kind, expected in zip(DRAFTERS, natively, strict=True):
        got = together(toy_run(drafter(kind, plain_texts)), requests)
        assert [(r.tokens, r.stats["accepted"]) for r in expected] == [(r.tokens, r.stats["accepted"]) for r in got]


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_a_row_without_a_choice_is_named_the_same(bad, pure):
    """Natively: tests of bad answers."""
    row = torch.full((9,), bad)

    assert most_likely(row[None], 2) == [[(0, 0.0), (1, 0.0)]]
    token, logit, _ = reference.choose_token(row.numpy(), Sampling(1.0, top_k=2), (0, 0, 0), 0)
    with pytest.raises(Exception, match=r"are NaN|no logit of the target is above"):
        finite_choice([token], [logit])


@with_native
def test_threads_do_not_share_what_they_work_in():
    """The interpreter's lock is released meanwhile: eight threads, rows of several sizes."""
    cases = list(choices.cases(3, 400, (65, 3000, 20_000)))
    expected = [case.native() for case in cases]
    with ThreadPoolExecutor(8) as pool:
        results = [list(pool.map(choices.Case.native, cases)) for _ in range(4)]

    assert all(choices.same(a, b) for some in results for a, b in zip(some, expected, strict=True))


@with_native
@pytest.mark.parametrize(
    "wrong",
    [
        (),
        (0, 0, 7, 5, Sampling()._terms, (0, 0, 0), 0, [], 0, None, None),
        (0, 0, 0, 0, Sampling()._terms, (0, 0, 0), 0, [], 0, None, None),
        (0, 0, 0, 5, (), (0, 0, 0), 0, [], 0, None, None),
        (0, 0, 0, 5, Sampling()._terms, (0, 0, 0), 0, [], 0, {1}, None),
        (0, 0, 0, 5, Sampling()._terms, (0, 0, 0), 0, [], 0, [1, 2], [0]),
        (0, 0, 0, 5, Sampling(presence_penalty=1.0)._terms, (0, 0, 0), 0, ["a"], 0, None, None),
    ],
    ids=["nothing", "type", "empty", "sampling", "tokens", "parents", "history"],
)
def test_wrong_arguments_are_errors(wrong):
    """A wrong argument is never used as an address."""
    for call in (native.module.draw, lambda job: native.module.walk([job])):
        with pytest.raises((TypeError, ValueError)):
            call(wrong)


@with_native
def test_plain_c_is_there_on_every_processor_and_comes_last():
    assert native.module.instruction_sets()[-1] == "generic"


@with_native
def test_an_instruction_set_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="sparc"):
        native.module.use("sparc")


def test_rows_of_other_types_and_layouts_are_read_as_they_are():
    """Half precision is converted to float32; a column of a matrix is not accepted as a row."""
    row = torch.randn(100, generator=torch.Generator().manual_seed(0))
    wide = torch.stack([row, -row], 1)

    assert most_likely(row[None].bfloat16(), 3) == most_likely(row[None].bfloat16().float(), 3)
    assert most_likely(wide[None, :, 0], 3) == most_likely(row[None], 3)
    assert place(row, stride=0) == (row.data_ptr(), 0, KINDS[torch.float32], 100)


@with_native
def test_the_environment_says_what_chooses(monkeypatch):
    """Native, or Python with the reason if there is no extension."""
    assert native.fact().startswith(f"native ({allowed_sets(native.module.instruction_sets())[0]}; ")
    monkeypatch.setattr(native, "module", None)
    assert native.fact().startswith("in Python") and native.problem() in native.fact()


# arithmetic


def test_the_logarithm_is_right_to_the_last_place():
    """Against libm, over all arguments that noise uses."""
    rng = np.random.default_rng(0)
    for x in (rng.random(20_000), rng.random(20_000) * 40, 1 - rng.random(20_000) * 2.0**-40, 2.0 ** -rng.random(999)):
        exact = np.array([math.log(v) for v in x])
        assert (np.abs(arithmetic.natural_log(x) - exact) <= np.spacing(np.abs(exact))).all()
    assert arithmetic.natural_log(np.array([1.0])) == 0


def test_weights_are_the_exponential():
    """Rounded down to 2^-30 from z as float32, or to the nearest of the fine ones."""
    z = -np.random.default_rng(0).random(20_000) * 30
    exact = np.exp(z)

    assert (np.abs(arithmetic.weights(z) * 2.0**-30 - exact) <= 2e-6 * exact + 2.0**-30).all()
    assert (np.abs(arithmetic.fine_weights(z, 50) * 2.0**-50 - exact) <= 3e-16 * exact + 2.0**-51).all()
    assert arithmetic.weights(np.array([0.0, -math.inf, -1e9, math.log(0.25)])).tolist() == [1 << 30, 0, 0, 1 << 28]


@pytest.mark.parametrize("count", [1, 48, 49_152, 1 << 23])
def test_sums_of_fine_weights_have_room(count):
    """Even if all logits are equal to the largest."""
    assert count << arithmetic.fine_bits(count) < 1 << 63


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_likeliest_tokens_of_a_device_are_those_of_the_host(dtype):
    """Ties, rows of -inf, NaN and inf, and fewer tokens than were requested."""
    rows = torch.randn(7, 300, generator=torch.Generator().manual_seed(0)) * 3
    rows[1] = (rows[1] * 2).round()
    rows[2], rows[3], rows[4, 7], rows[5, 9], rows[6, ::2] = -1e9, -math.inf, math.nan, math.inf, -0.0
    rows[6, 1::2] = 0.0
    for count in (1, 5, 400):
        expected, results = most_likely(rows.to(dtype), count), likeliest_on_device(rows.to(dtype), count)
        for row, of_device in zip(expected, results, strict=True):
            assert [token for token, _ in row] == [token for token, _ in of_device]
            assert all(abs(p - q) <= 2e-6 for (_, p), (_, q) in zip(row, of_device, strict=True))
