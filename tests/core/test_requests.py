"""Everything about a request is checked when it is submitted; after that, no request can end another."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import DENSE, dense, finish, ones, plain, requests, sampling_keywords

from spec_core import Request, Run, Sampling, UsageError
from spec_core.errors import NoTokenAllowed
from spec_core.testing import ToyTarget

WIDTH = 12
VECTOR = torch.ones(WIDTH, dtype=torch.float64)


def beside(**fields) -> None:
    """Submit a request beside healthy ones: it is refused by UsageError, or runs; theirs are plain in both cases."""
    run = dense([ones()])
    seqs = [run.submit(r) for r in requests(2, 6)]
    run.step()
    try:
        run.submit(Request(**{"prompt": [1, 2], "max_tokens": 4, **fields}))
    except UsageError as error:
        assert error.reason and error.hint
    finish(run)

    assert [plain(r, **DENSE).tokens for r in requests(2, 6)] == [run.take(s).tokens for s in seqs]


MALFORMED = {
    "prompt-none": ({"prompt": None}, "the prompt is of type NoneType"),
    "prompt-number": ({"prompt": 5}, "the prompt is of type int"),
    "prompt-fraction": ({"prompt": [1.5, 2]}, "prompt token 1.5 at position 0 is not a whole number"),
    "prompt-whole-float": ({"prompt": [1, 2.0]}, "prompt token 2.0 at position 1"),
    "prompt-bool": ({"prompt": [1, True]}, "prompt token True at position 1"),
    "prompt-text-inside": ({"prompt": ["1"]}, "prompt token '1'"),
    "prompt-bytes": ({"prompt": b"ab"}, "the prompt is of type bytes"),
    "prompt-dict": ({"prompt": {1: 2}}, "the prompt is of type dict"),
    "prompt-set": ({"prompt": {1, 2}}, "the prompt is of type set"),
    "prompt-iterator": ({"prompt": iter([1, 2])}, "the prompt is of type list_iterator"),
    "prompt-bool-tensor": ({"prompt": torch.tensor([True, False])}, "prompt token True"),
    "prompt-float-array": ({"prompt": np.array([1.0, 2.0])}, "prompt token 1.0"),
    "prompt-two-dimensions": ({"prompt": np.array([[1, 2]])}, "prompt token \\[1, 2\\]"),
    "prompt-half-a-pair": ({"prompt": "a\ud800"}, "half a surrogate pair at character 1"),
    "n-fraction": ({"max_tokens": 2.5}, "max_tokens = 2.5"),
    "n-none": ({"max_tokens": None}, "max_tokens = None"),
    "n-bool": ({"max_tokens": True}, "max_tokens = True"),
    "n-negative": ({"max_tokens": -1}, "max_tokens = -1"),
    "sampling-dict": ({"sampling": {"temperature": 1}}, "sampling is of type dict"),
    "seed-fraction": ({"seed": 1.5}, "seed 1.5 is not a 64-bit number"),
    "seed-text": ({"seed": "1"}, "seed '1' is not a 64-bit number"),
    "seed-bool": ({"seed": True}, "seed True"),
    "stop-number": ({"stop": (1,)}, "stop holds 1, which is not a text"),
    "stop-bytes": ({"stop": b"no"}, "stop is of type bytes"),
    "stop-none": ({"stop": None}, "stop is of type NoneType"),
    "stop-token-fraction": ({"stop_tokens": {1.5}}, "stop token 1.5"),
    "stop-token-bool": ({"stop_tokens": [True]}, "stop token True"),
    "stop-tokens-number": ({"stop_tokens": 3}, "stop_tokens is of type int"),
    "ignore-eos-text": ({"ignore_eos": "no"}, "ignore_eos = 'no'"),
    "methods-number": ({"methods": 3}, "methods is of type int"),
    "methods-holds-none": ({"methods": [None]}, "methods holds None"),
    "draft-max-fraction": ({"draft_max": 1.5}, "draft_max = 1.5"),
    "draft-max-text": ({"draft_max": "2"}, "draft_max = '2'"),
    "offset-fraction": ({"offset": 0.5}, "offset = 0.5"),
    "offset-negative": ({"offset": -1}, "offset = -1"),
    "stream-fraction": ({"noise_stream": 0.5}, "noise_stream = 0.5"),
    "stream-too-large": ({"noise_stream": 1 << 16}, "noise_stream = 65536"),
    "name-none": ({"name": None}, "the name None is not a text"),
    "bias-list": ({"sampling": Sampling(logit_bias=[1])}, "logit_bias is of type list"),
    "bias-float-key": ({"sampling": Sampling(logit_bias={1.0: 1.0})}, "logit bias for token 1.0"),
    "bias-bool-key": ({"sampling": Sampling(logit_bias={True: 1.0})}, "logit bias for token True"),
    "bias-text": ({"sampling": Sampling(logit_bias={1: "much"})}, "logit bias 'much' for token 1"),
    "bias-bool": ({"sampling": Sampling(logit_bias={1: True})}, "logit bias True for token 1"),
    "bias-nan": ({"sampling": Sampling(logit_bias={1: np.float32("nan")})}, "logit bias nan for token 1"),
    "embeds-list": ({"embeds": [VECTOR]}, "embeds is of type list"),
    "embeds-float-place": ({"embeds": {0.0: VECTOR}}, "an embedding is given for position 0.0"),
    "embeds-bool-place": ({"embeds": {True: VECTOR}}, "an embedding is given for position True"),
    "embedding-list": ({"embeds": {0: [0.0] * WIDTH}}, "the embedding at position 0 is of type list"),
    "embedding-whole": ({"embeds": {0: torch.ones(WIDTH, dtype=torch.int64)}}, "a tensor of torch.int64"),
    "embedding-sparse": ({"embeds": {0: VECTOR.to_sparse()}}, "torch.sparse_coo"),
    "embedding-nowhere": ({"embeds": {0: VECTOR.to("meta")}}, "on meta"),
    "embedding-array-of-objects": ({"embeds": {0: np.array([None] * WIDTH)}}, "of type ndarray"),
    "embedding-nan": ({"embeds": {0: VECTOR * math.nan}}, "NaN or infinite"),
    "embedding-two-dimensions": ({"embeds": {0: np.ones((1, WIDTH))}}, r"shape \[1, 12\]"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_request_is_refused_and_its_neighbours_run_on(name):
    """The error names the value as the user wrote it, with a hint, before the request joins."""
    fields, message = MALFORMED[name]
    with pytest.raises(UsageError, match=message) as error:
        dense([]).submit(Request(**{"prompt": [1, 2], **fields}))
    assert error.value.hint

    beside(**fields)


ANYTHING = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 60),
        st.integers(),
        st.floats(),
        st.text(max_size=3),
        st.binary(max_size=3),
        st.sampled_from([np.int64(3), np.float32(0.5), np.bool_(True), np.ones(WIDTH), np.array([1, 2]), np.zeros(())]),
        st.sampled_from([VECTOR, VECTOR.bfloat16(), VECTOR.requires_grad_(), torch.tensor(3), torch.tensor([True])]),
        st.sampled_from([object(), int, Sampling(temperature=0.7), Fraction(1, 3), 1j]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.integers(-2, 50), st.floats(), st.booleans()), inner, max_size=3),
    ),
    max_leaves=4,
)
NAMES = "prompt max_tokens seed stop stop_tokens ignore_eos methods draft_max embeds offset noise_stream name sampling"
FIELDS = st.sampled_from(NAMES.split())


@given(st.dictionaries(FIELDS, ANYTHING, min_size=1, max_size=3))
@settings(max_examples=150, deadline=None)
def test_whatever_is_submitted_ends_nobody_else(fields):
    """Any value in any field is either refused or runs."""
    if isinstance(fields.get("max_tokens"), int):
        fields["max_tokens"] = min(fields["max_tokens"], 5)
    beside(**fields)


NUMBERS = st.one_of(
    st.floats(), st.integers(-2, 2), st.just(10**400), st.floats(width=32).map(np.float32), st.fractions()
)
SAMPLINGS = dict.fromkeys(("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty"), NUMBERS)


@given(
    st.fixed_dictionaries({}, optional={**SAMPLINGS, "top_k": st.integers(0, 60), "logprobs": st.integers(0, 60)}),
    st.dictionaries(st.integers(0, 47), st.floats(allow_nan=False).filter(lambda x: x < math.inf), max_size=48),
)
@settings(max_examples=150, deadline=None)
def test_no_sampling_ends_somebody_else(fields, bias):
    """A request whose token cannot be chosen ends alone, for small, large and narrow logits."""
    try:
        sampling = Sampling(**fields, logit_bias=bias)
    except UsageError:
        return
    beside(sampling=sampling)


@pytest.mark.parametrize(
    "fields, same",
    [
        ({"prompt": np.array([1, 2])}, {}),
        ({"prompt": torch.tensor([1, 2])}, {}),
        ({"prompt": (np.int32(1), np.uint8(2))}, {}),
        ({"prompt": range(1, 3)}, {}),
        (
            {"max_tokens": np.int64(4), "seed": np.uint64(3), "offset": np.int8(2)},
            {"max_tokens": 4, "seed": 3, "offset": 2},
        ),
        ({"draft_max": np.int64(1), "noise_stream": torch.tensor(1)}, {"draft_max": 1, "noise_stream": 1}),
        ({"stop": ["zzz"], "stop_tokens": [np.int64(47)]}, {"stop": ("zzz",), "stop_tokens": {47}}),
        (sampling_keywords(1, np.float32(0.5)), sampling_keywords(1, 0.5)),
        (sampling_keywords(1, Fraction(1, 2), top_k=np.int64(5)), sampling_keywords(1, 0.5, top_k=5)),
        (
            sampling_keywords(1, 1, logit_bias={np.int64(3): np.float32(2)}),
            sampling_keywords(1, 1.0, logit_bias={3: 2.0}),
        ),
        ({"embeds": {np.int64(1): np.ones(WIDTH)}}, {"embeds": {1: VECTOR}}),
        ({"embeds": {1: np.ones(WIDTH, dtype=np.float16)}}, {"embeds": {1: VECTOR}}),
        ({"embeds": {1: torch.ones(WIDTH, dtype=torch.bfloat16, requires_grad=True)}}, {"embeds": {1: VECTOR}}),
    ],
    ids=str,
)
def test_a_number_counts_whatever_its_type(fields, same):
    """numpy's and torch's whole numbers, every kind of real number, arrays as prompts and embeddings."""
    request = Request(**{"prompt": [1, 2], "max_tokens": 4, **same})
    result = Run(ToyTarget(**DENSE)).generate(Request(**{"prompt": [1, 2], "max_tokens": 4, **fields})).result

    assert Run(ToyTarget(**DENSE)).generate(request).result.tokens == result.tokens


def test_what_the_user_changes_after_submit_changes_nothing():
    """Lists, tables and tensors are copied: they may be used for the next request."""
    prompt, bias, vector = [1, 2, 3], {5: -math.inf}, VECTOR.detach().clone()
    request = Request(prompt, max_tokens=6, embeds={1: vector}, **sampling_keywords(2, logit_bias=bias))
    expected = Run(ToyTarget()).generate(request).result.tokens
    run = Run(ToyTarget())
    generation = run.generate(request)

    prompt[0], bias[99], vector[:] = 40, 1.0, math.nan

    assert expected == generation.result.tokens


# nothing is left to choose from


@pytest.mark.parametrize("cut", [{}, {"top_p": 0.9}, {"top_k": 3}, {"min_p": 0.1}], ids=str)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_banning_every_token_ends_the_request_alone(temperature, cut):
    """No banned token is emitted, at no temperature; the neighbours run on."""
    banned = dict.fromkeys(range(48), -math.inf)
    run = dense([ones()])
    seqs = [run.submit(r) for r in requests(2, 6)]
    none = run.submit([1, 2], sampling=Sampling(temperature, logit_bias=banned, **cut))
    finish(run)

    assert run.results[none].tokens == []
    with pytest.raises(NoTokenAllowed, match="every token is banned"):
        run.take(none)
    assert [plain(r, **DENSE).tokens for r in requests(2, 6)] == [run.take(s).tokens for s in seqs]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_last_token_that_is_not_banned_is_emitted(temperature):
    """All but one: that one, again and again."""
    bias = {i: -math.inf for i in range(48) if i != 7}

    tokens = (
        dense([ones()]).generate([1, 2], max_tokens=5, sampling=Sampling(temperature, logit_bias=bias)).result.tokens
    )

    assert tokens == [7] * 5
