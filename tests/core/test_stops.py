"""The end of a text: stop tokens, stop texts, limits; inside and outside of drafts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import (
    DRAFTERS,
    STRATEGIES,
    drafter,
    finish,
    finish_checked,
    plain,
    sampling_keywords,
    texts,
    together,
    toy_run,
)

from spec_core import Request, Run, UsageError
from spec_core.sampling.stop import Text
from spec_core.testing import ToyTarget

PROMPT = [7, 7, 1]
N = 14


def plain_tokens(**more) -> list[int]:
    return plain(Request(PROMPT, max_tokens=N, **more)).tokens


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("at", range(0, 10, 3))
def test_a_stop_token_ends_the_text_wherever_it_stands(at, kind):
    """In a draft, as the target's own token, as the first: part of the tokens but not of the text, and the last one."""
    text = plain_tokens(**sampling_keywords(2, 1.5))
    cut = text.index(text[at])
    request = Request(PROMPT, max_tokens=N, name="a", stop_tokens={text[at]}, **sampling_keywords(2, 1.5))

    result = together(toy_run(drafter(kind, {"a": PROMPT + text})), [request])[0]

    assert (text[: cut + 1], "stop") == (result.tokens, result.finish_reason)
    assert "".join(chr(32 + t) for t in text[:cut]) == result.text


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("length", [1, 2, 3, 5])
@pytest.mark.parametrize("at", [0, 2, 5])
def test_a_stop_text_ends_the_text_across_tokens(at, length, kind):
    """A stop text of several tokens, inside a draft or over its border: cut off, and the text before it is whole."""
    tokens = plain_tokens(**sampling_keywords(2, 1.5))
    text = "".join(chr(32 + t) for t in tokens)
    stop = text[at : at + length]
    cut = text.index(stop)
    request = Request(PROMPT, max_tokens=N, name="a", stop=(stop,), **sampling_keywords(2, 1.5))

    result = together(toy_run(drafter(kind, {"a": PROMPT + tokens})), [request])[0]

    assert (text[:cut], "stop") == (result.text, result.finish_reason)
    assert tokens[: cut + length] == result.tokens


@pytest.mark.parametrize("kind", DRAFTERS)
def test_pieces_of_text_concatenate_to_the_result(kind):
    """Text that may begin a stop text is held back until it cannot; the pieces add up to the text."""
    tokens = plain_tokens(**sampling_keywords(2, 1.5))
    text = "".join(chr(32 + t) for t in tokens)
    for stop in (text[3:5] + "!", text[8:10], text[-1] + "x", text[4:7]):
        request = Request(PROMPT, max_tokens=N, name="a", stop=(stop,), **sampling_keywords(2, 1.5))
        run = toy_run(drafter(kind, {"a": PROMPT + tokens}))
        generation = run.generate(request)
        events = list(generation)
        assert generation.result.text == "".join(e.text for e in events)
        assert generation.result.tokens == [e.token for e in events]
        assert [e.t for e in events] == list(range(len(events)))


def test_text_that_may_begin_a_stop_is_held_back():
    """Text that a stop text may still cut off is held back, and shown at the end."""
    text = Text(ToyTarget().tokenizer.stream(), ("abc",))
    shown = []
    for c in "xabab":
        assert not text.put(ord(c) - 32)
        shown.append(text.take())
    text.end()
    shown.append(text.take())

    assert shown == [["x"], [""], [""], ["ab"], [""], ["ab"]]
    assert text.whole == "xabab"


@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
@settings(max_examples=200, deadline=None)
def test_stop_texts_agree_with_a_search_of_the_whole(whole, stops):
    """Token by token: the text ends with the first token that completes a stop, before its earliest occurrence."""
    text = Text(ToyTarget(vocab=128).tokenizer.stream(), tuple(stops))
    pieces, ended = [], False
    for c in whole:
        ended = text.put(ord(c) - 32)
        pieces += text.take()
        if ended:
            break
    if not ended:
        text.end()
        pieces += text.take()

    ends = [i for i in range(1, len(whole) + 1) if any(stop in whole[:i] for stop in stops)]
    expected = whole
    if ends:
        seen = whole[: ends[0]]
        expected = seen[: min(seen.find(s) for s in stops if s in seen)]
    assert (expected, bool(ends)) == ("".join(pieces), ended)
    assert expected == text.whole


@pytest.mark.parametrize("kind", DRAFTERS)
def test_the_models_own_end_stops_unless_ignored(kind):
    """``ignore_eos`` goes on after the model's end tokens; stop tokens of the request still count."""
    tokens = plain_tokens(**sampling_keywords(2, 1.5))
    eog = {"eog": frozenset({tokens[4]})}
    cut = tokens.index(tokens[4])
    by_name = {"a": PROMPT + tokens}

    ended = toy_run(drafter(kind, by_name), target=eog).generate(
        Request(PROMPT, max_tokens=N, name="a", **sampling_keywords(2, 1.5))
    )
    assert tokens[: cut + 1] == ended.result.tokens and ended.result.finish_reason == "stop"

    through = Request(PROMPT, max_tokens=N, name="a", ignore_eos=True, **sampling_keywords(2, 1.5))
    result = toy_run(drafter(kind, by_name), target=eog).generate(through).result
    assert (tokens, "length") == (result.tokens, result.finish_reason)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", ["all-right", "trees"])
def test_a_stop_in_one_sequence_leaves_the_others_alone(kind, strategy):
    """A batch in which sequences end at different places inside their drafts."""
    requests = [Request([i, 5], max_tokens=16, name=f"{i}", **sampling_keywords(i, 1.5)) for i in range(4)]
    by_name = texts(requests)
    stopping = [
        Request(
            [i, 5], max_tokens=16, name=f"{i}", stop_tokens={by_name[f"{i}"][4 + 2 * i]}, **sampling_keywords(i, 1.5)
        )
        for i in range(4)
    ]
    run = toy_run(drafter(kind, by_name), strategy)
    seqs = [run.submit(r) for r in stopping]

    finish_checked(run)

    assert [plain(r).tokens for r in stopping] == [run.take(s).tokens for s in seqs]


def test_a_rejected_draft_neither_ends_a_text_nor_leaves_text_behind():
    """Stops depend on committed tokens: a rejected draft of a stop token has no effect."""
    tokens = plain_tokens()
    wrong = next(t for t in range(48) if t not in tokens)
    from toys import Fixed

    from spec_core import Draft

    run = toy_run(Fixed(lambda step, seq, budget: Draft([wrong] * budget)))
    result = run.generate(Request(PROMPT, max_tokens=N, stop_tokens={wrong}, stop=(chr(32 + wrong),))).result

    assert (tokens, "length") == (result.tokens, result.finish_reason)
    assert "".join(chr(32 + t) for t in tokens) == result.text


def test_a_stop_text_in_the_prompt_does_not_count():
    """Only generated text is searched, also across the border of prompt and output."""
    tokens = plain_tokens()
    stop = chr(32 + PROMPT[-1]) + chr(32 + tokens[0])

    result = Run(ToyTarget()).generate(Request(PROMPT, max_tokens=3, stop=(stop,))).result

    assert tokens[:3] == result.tokens


def test_a_stop_text_may_stand_alone():
    """A string is one stop text, not one for each letter."""
    assert Request([1], stop="no").stop == ("no",)


def test_a_stop_token_outside_the_vocabulary_is_refused():
    target = ToyTarget()

    with pytest.raises(UsageError, match=f"stop token {target.info.vocab} is outside"):
        Run(target).submit([1], stop_tokens={target.info.vocab})


def test_stop_texts_need_a_tokenizer_and_letters():
    """Refused with a hint, before anything runs."""
    target = ToyTarget()
    with pytest.raises(UsageError, match="empty stop text"):
        Run(target).submit([1], stop=("",))
    target.tokenizer = None
    with pytest.raises(UsageError, match="need a tokenizer"):
        Run(target).submit([1], stop=("x",))
    with pytest.raises(UsageError, match="no tokenizer"):
        Run(target).submit("text")
    assert Run(target).generate([1], max_tokens=3).result.text == ""


def test_a_cancelled_text_keeps_what_was_shown():
    """The text is the pieces so far; text that was held back is not part of it."""
    run = Run(ToyTarget())
    generation = run.generate(PROMPT, max_tokens=50, stop=("\x00",))
    pieces = [next(generation).text for _ in range(4)]
    generation.close()

    rest = [e.text for e in generation]

    assert generation.result.finish_reason == "cancelled"
    assert generation.result.text == "".join(pieces + rest)


def test_interleaved_iterators_each_get_all_their_events():
    """An event waits for its own iterator, whichever caller runs the step."""
    run = toy_run(drafter("chains", {}))
    one, other = run.generate([1, 2], max_tokens=9), run.generate([3, 4, 5], max_tokens=7)
    first = [e.token for e in one]
    second = [e.token for e in other]

    assert plain(Request([1, 2], max_tokens=9)).tokens == first
    assert plain(Request([3, 4, 5], max_tokens=7)).tokens == second
    finish(run)


@pytest.mark.parametrize("seed", [-1, 1 << 64])
def test_a_seed_that_would_be_cut_is_refused(seed):
    """Two seeds with the same noise would be mistaken for two samples."""
    with pytest.raises(UsageError, match="not a 64-bit number"):
        Run(ToyTarget()).generate(Request([1, 2], max_tokens=2, seed=seed))
