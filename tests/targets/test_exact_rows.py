"""A row's result alone, with drafts and in a batch, with this machine's product and with a misbehaving one."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from spec_kernels.model import tiles
from spec_kernels.model.tiles import TILE, WIDE, product
from spec_targets.runtime.probe import explain_inexact

from spec_core import Draft, Request, Run, Sampling, load
from tests.support.draws import draws, rows
from tests.support.misbehaving import badly, misbehaving
from tests.support.small_models import tiny_gguf, tiny_hybrid
from tests.targets.drive import EVERYTHING, forward, part, sequence

PRODUCTS = {"real": nullcontext, "misbehaving": misbehaving}


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=PRODUCTS)
def multiply(request):
    with PRODUCTS[request.param]():
        yield request.param


@pytest.mark.parametrize("threads", [1, 2])
def test_the_misbehaving_product_misbehaves(threads):
    torch.set_num_threads(threads)
    x, w = torch.randn(9, 64), torch.randn(64, 32)
    whole = badly(x, w)

    torch.testing.assert_close(x @ w, whole, rtol=0, atol=1e-4)
    assert not any(torch.equal(whole[:n], badly(x[:n], w)) for n in (1, 2, 3, 5))
    assert torch.equal(whole[:4], badly(x[:4], w))


@pytest.mark.parametrize("rows", [1, 2, 3, TILE, TILE + 1, 3 * TILE, WIDE, WIDE + 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_product_gives_every_row_the_same_bits(multiply, rows, threads):
    torch.set_num_threads(threads)
    x, w = torch.randn(2 * WIDE, 192), torch.randn(192, 320)

    assert torch.equal(product(x, w)[:rows], product(x[:rows], w))
    assert torch.equal(product(x, w)[-rows:], product(x[-rows:], w))


def test_rows_of_a_prompt_are_computed_together_only_where_that_is_equal(monkeypatch):
    monkeypatch.setattr(torch, "mm", lambda a, b, out=None: _store(badly(a, b) * (1 + 1e-6 * (len(a) > TILE)), out))
    tiles.forget_measurements()
    x, w = torch.randn(WIDE, 64), torch.randn(64, 32)

    assert not tiles.wide_is_equal(w, x.dtype)
    assert torch.equal(product(x, w)[:1], product(x[:1], w))


@pytest.mark.parametrize("make", [tiny_gguf, tiny_hybrid])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_model_is_exact_and_says_so(multiply, make, threads):
    target = load(make(), threads=threads, kernels="reference")

    assert (target.info.exact, target.info.exact_why) == ("rows", "")
    assert Run(target).stats.report()["exact"] == "rows"


def test_a_product_by_place_is_found_out(monkeypatch):
    """If a result depends on a row's place in a tile, no tile is exact, and the run must say so."""
    monkeypatch.setattr(torch, "mm", lambda a, b, out=None: _store(_by_place(a, b), out))
    tiles.forget_measurements()
    target = load(tiny_gguf(), kernels="reference")

    assert target.info.exactness.startswith("no: a row in another place of a tile differs by")


def test_a_sum_by_number_of_rows_between_products_is_found_out(monkeypatch):
    rsqrt = torch.rsqrt
    target = load(tiny_gguf(), kernels="reference")
    monkeypatch.setattr(torch, "rsqrt", lambda x: rsqrt(x) * (1 + 1e-6 * (len(x) > TILE)))

    assert explain_inexact(target.executor, torch.device("cpu"), torch.float32, target.info.context).startswith(
        "a row before drafts differs by"
    )


def test_lower_precision_is_not_called_exact():
    assert load(tiny_gguf(), dtype="bfloat16").info.exactness.startswith("no: on cpu in bfloat16")


def _by_place(a, b):
    return badly(a, b) * (1 + 1e-6 * torch.arange(len(a))[:, None])


def _store(result, out):
    return result if out is None else out.copy_(result)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_of_a_model_has_the_same_bits_among_drafts(multiply, threads):
    target = load(tiny_gguf(), kernels="reference")
    torch.set_num_threads(threads)

    assert rows(target, seed=0, count=40) == 0


@pytest.mark.parametrize("context", [125, 250, 510])
def test_bits_do_not_depend_on_the_masked_context_behind(multiply, context):
    """The drafts begin a new block of the cache, and a longer cache; the single row does not."""
    target = load(tiny_gguf(context=600), kernels="reference")
    tokens = [(7 * i) % 300 for i in range(context + 1)]
    seen = []
    for draft in (None, Draft([(3 * i) % 300 for i in range(1, 18)])):
        seq = sequence(target, tokens)
        forward(target, part(seq, 0, tokens[:-1], decides=False))
        seen.append(forward(target, part(seq, context, tokens[-1:], draft), needs=EVERYTHING).logits[0])

    assert torch.equal(*seen)


@pytest.mark.slow
@pytest.mark.parametrize("multiply, threads", [("real", 2), ("misbehaving", 1)], indirect=["multiply"])
def test_draws_of_the_zoo_are_the_same_alone_and_among_drafts(multiply, threads):
    target = load("zoo:pico", kernels="reference")
    torch.set_num_threads(threads)

    assert draws(target, seed=threads, count=60) == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_draws_of_native_kernels_are_the_same_alone_and_among_drafts(threads):
    assert draws(load("zoo:pico", kernels="native", threads=threads), seed=threads, count=300) == 0


@pytest.mark.repeats(1)
@pytest.mark.slow
def test_a_text_at_a_near_tie_is_that_of_plain_decoding(multiply):
    """Once left plain decoding's text at token 38, where two scores lie 2.3e-6 apart."""
    target, sampling = load("zoo:pico", threads=1, kernels="reference"), Sampling(temperature=0.8)
    request = Request("if __name__", max_tokens=48, seed=1447, sampling=sampling, ignore_eos=True)
    plain, *others = (Run(target, m).generate(request).result.tokens for m in ([], ["ngram"], ["recycling"]))

    assert others == [plain, plain]
