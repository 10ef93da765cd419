"""Conformance of a target: ``make`` returns a new target."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from spec_core.assembly.hooks import ask_compat
from spec_core.contract.parts import decode_after
from spec_core.contract.request import Request
from spec_core.contract.target import Target, Tokenizer, lacking_protocol
from spec_core.contract.values import Compat, Draft, Needs
from spec_core.testing.conformance.base import describe_request, expect, expect_same, run_together
from spec_core.testing.conformance.drive import Row, expect_close, feed_tokens, forward, host, keep_paths
from spec_core.testing.conformance.exact_rows import TREE
from spec_core.testing.conformance.memory_kit import Checkpoints
from spec_core.testing.conformance.probes import Watched
from spec_core.testing.conformance.promise import Found, promise
from spec_core.testing.conformance.target_parts_kit import TargetPartChecks
from spec_core.testing.drafters import RandomTrees
from spec_core.toolkit.drive import open_sequence

COPIED = 70
"""Rows of a prompt whose beginning is worth a copy."""
MOST_CONTEXT = 4096
"""Longer contexts are not filled to the end."""


class TargetConformance(TargetPartChecks):
    """Inherit, and let ``make`` return a new target.

    tolerance: share of the largest value by which two ways to the same result may differ; None selects it by dtype.
    batch_tolerance: the same for rows computed alone and in a batch; 0 means equal bits, as kernels should have.
    """

    def make(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define what it tests: def make(self): return MyTarget()")

    def target(self) -> Target:
        return self.make()

    @promise("A prompt in chunks gives the same results as in one forward.")
    def test_chunks_give_what_the_whole_gives(self) -> None:
        for text in self.texts:
            whole = host(feed_tokens(self.model, open_sequence(self.model), text).logits[0])
            for size in (1, 2, 4):
                seq = open_sequence(self.model)
                for at in range(0, len(text), size):
                    output = feed_tokens(self.model, seq, text[at : at + size])
                expect_close(
                    host(output.logits[0]), whole, self.rounding, f"the last row of {text} in chunks of {size}"
                )

    @promise("Row 1 + j of a draft attends to committed text and the ancestors of j, at the position of its depth.")
    def test_tree_rows_equal_chains(self) -> None:
        if not self.model.info.trees:
            pytest.skip("this target accepts chains only")
        for text in self.texts:
            _, output = forward(self.model, [Row(open_sequence(self.model), text, TREE)], Needs(trees=True))
            for j in range(len(TREE)):
                chain = [*text, *(TREE.ids[i] for i in TREE.ancestry(j))]
                expected = host(feed_tokens(self.model, open_sequence(self.model), chain).logits[0])
                expect_close(host(output.logits[1 + j]), expected, self.rounding, f"draft {j} of a tree after {text}")

    @promise("A rejected draft has no effect: rows after the kept path are dropped, recurrent state is unchanged.")
    def test_rejected_rows_leave_no_trace(self) -> None:
        for text in self.texts:
            seq = open_sequence(self.model)
            step, _ = forward(self.model, [Row(seq, text, Draft([3, 2, 1]))])
            keep_paths(self.model, step, [()])
            row = host(feed_tokens(self.model, seq, [4, 5]).logits[0])
            expected = host(feed_tokens(self.model, open_sequence(self.model), [*text, 4, 5]).logits[0])
            expect_close(row, expected, self.rounding, f"the row after {[*text, 4, 5]}, a draft was rejected before,")

    @promise("Rows of a kept tree path are moved together: later rows attend to them as if they were committed tokens.")
    def test_kept_paths_are_moved_together(self) -> None:
        if not self.model.info.trees:
            pytest.skip("this target accepts chains only")
        requests = self.requests()
        for seed in range(2):
            trees = RandomTrees({r.name: self.text_of(r) for r in requests}, seed, self.model.info.vocab)
            self.run_and_compare(self.run([trees]), requests)

    @promise("Drafts do not change the text, for any number of kept tokens.")
    def test_text_equals_plain_decoding(self) -> None:
        requests = self.requests()
        for kept in (0, 2, 4):
            self.run_and_compare(self.run([self.right(requests, lambda seq, kept=kept: kept)]), requests)

    @promise("open(seq, want) returns a position up to want, and the text continues from there as from an empty slot.")
    def test_a_prefix_is_reused(self) -> None:
        text, other = self.texts[0], [2, 3, 2]
        for want in (0, 1, len(text) // 2, len(text) - 1):
            seq = open_sequence(self.model)
            for token in text:
                feed_tokens(self.model, seq, [token])
                seq.slot.checkpoints[seq.evaluated] = self.model.checkpoint(seq)
            seq.slot.checkpoints = {p: c for p, c in seq.slot.checkpoints.items() if p % 2 and c is not None}
            start = self.model.open(seq, want)
            expect(0 <= start <= want, f"open(seq, {want}) returned {start}")
            seq.evaluated = start
            row = host(feed_tokens(self.model, seq, [*text[start:want], *other]).logits[0])
            expected = host(feed_tokens(self.model, open_sequence(self.model), [*text[:want], *other]).logits[0])
            expect_close(row, expected, self.rounding, f"the row after {[*text[:want], *other]}, {start} rows reused,")

    @promise("A checkpoint does not change later, and restore returns the sequence to it.")
    def test_checkpoints_are_restored(self) -> None:
        text, other = self.texts[0], [2, 3, 2]
        seq = open_sequence(self.model)
        feed_tokens(self.model, seq, text[:5])
        seq.slot.checkpoints[5] = self.model.checkpoint(seq)
        expected = host(feed_tokens(self.model, open_sequence(self.model), [*text[:5], *other]).logits[0])
        for later in (text[5:], [1, 1, 1]):
            feed_tokens(self.model, seq, later)
            self.model.restore(seq, 5)
            seq.evaluated = 5
            row = host(feed_tokens(self.model, seq, other).logits[0])
            expect_close(row, expected, self.rounding, f"the row after {[*text[:5], *other]}, restored at 5,")
            self.model.restore(seq, 5)
            seq.evaluated = 5

    @promise("Needs.hidden gives {i: [R, D]}: the residual stream at block i, of every row, equal in any batch.")
    def test_hidden_states_are_streams_between_blocks(self) -> None:
        info, text = self.model.info, self.texts[0]
        needs = Needs(hidden=range(info.layers + 1))
        whole = feed_tokens(self.model, open_sequence(self.model), text, needs).hidden
        expect(set(whole) == set(needs.hidden), f"requested {sorted(needs.hidden)}, got {sorted(whole)}")
        for i, stream in whole.items():
            expect(tuple(stream.shape) == (len(text), info.width), f"hidden[{i}] has the shape {list(stream.shape)}")
        seq = open_sequence(self.model)
        for at, token in enumerate(text):
            alone = feed_tokens(self.model, seq, [token], needs).hidden
            for i, stream in alone.items():
                expect_close(
                    host(stream[0]), host(whole[i][at]), self.rounding, f"hidden[{i}] of row {at} of {text}, alone,"
                )

    @promise("A row given as an embedding enters block 0 unchanged; hidden[0] of a token is its embedding.")
    def test_embeddings_enter_the_first_block(self) -> None:
        text = self.texts[0]
        entered = feed_tokens(self.model, open_sequence(self.model), text, Needs(hidden={0})).hidden[0].clone()
        plain = host(feed_tokens(self.model, open_sequence(self.model), text).logits[0])
        embeds = {2: entered[2], 5: entered[5]}
        tokens = [-1 if i in embeds else token for i, token in enumerate(text)]
        seq = open_sequence(self.model, embeds)
        output = feed_tokens(self.model, seq, tokens, Needs(hidden={0}))
        expect_close(host(output.hidden[0]), host(entered), self.rounding, f"hidden[0] of {tokens}")
        expect_close(host(output.logits[0]), plain, self.rounding, f"the last row of {tokens}")

    @promise("Needs.final gives [R, D]: the input of the output matrix, from which it computes the logits.")
    def test_final_is_what_the_output_matrix_reads(self) -> None:
        info = self.model.info
        output = feed_tokens(self.model, open_sequence(self.model), self.texts[0], Needs(final=True, all_logits=True))
        shape = (len(self.texts[0]), info.width)
        final = output.final
        expect(final is not None and tuple(final.shape) == shape, f"final is not {list(shape)}")
        assert final is not None
        logits = host(final) @ host(self.model.tensor("output.weight")).T
        expect_close(logits, host(output.logits), max(self.rounding, 1e-4), "output.weight @ final")

    @promise("Other requested outputs do not change the logits.")
    def test_needs_change_no_logits(self) -> None:
        text = self.texts[0]
        plain = host(feed_tokens(self.model, open_sequence(self.model), text).logits[0])
        hidden = range(self.model.info.layers + 1)
        for needs in (Needs(hidden=hidden), Needs(final=True), Needs(all_logits=True), Needs(hidden={0}, final=True)):
            row = host(feed_tokens(self.model, open_sequence(self.model), text, needs).logits[-1])
            expect_close(row, plain, self.batch_tolerance, f"the last row of {text} with {needs}")

    @promise("Logits are [rows, V]: the last pending row and the drafts of deciding parts; or all rows.")
    def test_logits_of_the_rows_that_decide(self) -> None:
        first, second, third = (text[:n] for text, n in zip(self.texts, (3, 4, 5), strict=False))
        for needs, count in ((Needs(), 1 + 2 + 1), (Needs(all_logits=True), 3 + 2 + 4 + 5)):
            rows = [
                Row(open_sequence(self.model), first, Draft([1, 2])),
                Row(open_sequence(self.model), second, decides=False),
                Row(open_sequence(self.model), third),
            ]
            step, output = forward(self.model, rows, needs)
            shape = (count, self.model.info.vocab)
            expect(tuple(output.logits.shape) == shape, f"logits are {list(output.logits.shape)}, not {list(shape)}")
            expected = host(feed_tokens(self.model, open_sequence(self.model), third).logits[0])
            expect_close(
                host(output.logits[step.parts[2].logits_row]), expected, self.rounding, f"the last row of {third}"
            )

    @promise("tensor(name) is a weight by its GGUF name: embeddings are [V, D]; KeyError for an unknown name.")
    def test_tensors_are_found_by_name(self) -> None:
        info = self.model.info
        shape = tuple(self.model.tensor("token_embd.weight").shape)
        expect(shape == (info.vocab, info.width), f"token_embd.weight is {list(shape)}")
        try:
            tensor = self.model.tensor("no.such.weight")
        except KeyError:
            return
        raise Found(f"no.such.weight is {type(tensor).__name__}")

    @promise("The pieces of a tokenizer's stream joined equal the text of decode.")
    def test_pieces_of_text_make_the_whole(self) -> None:
        words = self.model.tokenizer
        if words is None:
            pytest.skip("this target has no tokenizer")
        tokens = [i * 37 % words.vocab_size for i in range(1, 60)]
        for ids in (tokens, tokens[::2], tokens[:1]):
            stream = words.stream()
            pieces = [*(stream.put(token) for token in ids), stream.end()]
            whole = words.decode(ids)
            expect("".join(pieces) == whole, f"streamed {''.join(pieces)!r}, decoded {whole!r}, tokens {ids}")

    @promise("The text after a prompt is what is decoded of both together, without the text of the prompt.")
    def test_the_text_after_a_prompt_is_a_part_of_the_whole(self) -> None:
        words = self.model.tokenizer
        if words is None:
            pytest.skip("this target has no tokenizer")
        tokens = words.encode(words.decode([i * 37 % words.vocab_size for i in range(1, 60)]), bos=False)
        for at in range(len(tokens)):
            before, after = tokens[:at], tokens[at:]
            whole, prompt = words.decode(tokens), words.decode(before)
            if "\ufffd" not in prompt:  # a prompt of whole characters
                text = decode_after(words, after, before)
                expect(prompt + text == whole, f"{prompt!r} and {text!r} are decoded together as {whole!r}")

    @promise("A tokenizer has all attributes of the contract, of the right types, and is the one that info names.")
    def test_the_tokenizer_is_whole(self) -> None:
        words, info = self.model.tokenizer, self.model.info
        if words is None:
            pytest.skip("this target has no tokenizer")
        expect(lacking_protocol(self.model) is None, str(lacking_protocol(self.model)))
        expect(0 < words.vocab_size <= info.vocab, f"vocab_size is {words.vocab_size}, info.vocab {info.vocab}")
        expect(words.identity == info.vocab_id != "", f"identity {words.identity!r}, info.vocab_id {info.vocab_id!r}")
        expect(words.eog == info.eog, f"eog is {sorted(words.eog)}, info.eog {sorted(info.eog)}")
        expect(words.bos is None or 0 <= words.bos < words.vocab_size, f"bos is {words.bos}")
        chat = words.chat_template is None or callable(getattr(words, "encode_chat", None))
        expect(chat, "there is a chat_template but no encode_chat")
        check_bytes(words)

    @promise("After a failed forward, slots are closed and opened again, and no other text changes.")
    def test_a_failed_forward_harms_nobody_else(self) -> None:
        requests = self.requests(n=6)
        count = [0]

        def fail(batch: Any, output: Any) -> None:
            count[0] += 1
            if count[0] in (2, 5):
                raise RuntimeError("device lost")

        run = self.run([self.right(requests, lambda seq: 2)], target=Watched(self.model, fail), max_sequences=2)
        seqs = [run.submit(r) for r in requests]
        while run.busy:
            run.step()
        right = [seq for seq in seqs if seq.finish != "error"]
        expect(0 < len(right) < len(seqs), f"{len(seqs) - len(right)} of {len(seqs)} requests failed")
        for seq, request in zip(seqs, requests, strict=True):
            if seq.finish != "error":
                expect(run.take(seq).tokens == self.plain(request), f"the text differs after a fault: {request.prompt}")

    @promise("TargetInfo matches the model: vocabulary, width, layers, kinds of state, tokens that end a text.")
    def test_info_matches_the_forward(self) -> None:
        info, seq = self.model.info, open_sequence(self.model)
        output = feed_tokens(self.model, seq, self.texts[0], Needs(hidden={0, info.layers}))
        expect(output.logits.shape[-1] == info.vocab, f"vocab is {info.vocab}, rows have {output.logits.shape[-1]}")
        width = output.hidden[info.layers].shape[-1]
        expect(width == info.width, f"width is {info.width}, hidden states have {width}")
        recurs = self.model.checkpoint(seq) is not None
        expect(recurs == ("recurrent" in info.states), f"states are {sorted(info.states)}, a checkpoint is {recurs}")
        expect(all(0 <= token < info.vocab for token in info.eog), f"eog is {sorted(info.eog)}")
        words = self.model.tokenizer
        expect(words is None or words.vocab_size <= info.vocab, f"the tokenizer has more than {info.vocab} tokens")

    @promise("Every position of the context can be used.")
    def test_the_whole_context_can_be_used(self) -> None:
        context = self.model.info.context
        if context > MOST_CONTEXT:
            pytest.skip(f"a context of {context} is not filled")
        request = Request((self.prompts()[0] * context)[: context - 3], max_tokens=9, ignore_eos=True)
        (tokens,) = run_together(self.run([], prefill_chunk=64), [request])
        expect(len(tokens) == 3, f"{len(tokens)} tokens were generated after {context - 3} of {context}")

    @promise("The target owns the rollback of its attention rows, if it has any, and of no state that it lacks.")
    def test_attention_is_owned(self) -> None:
        states, answer = self.model.info.states, ask_compat(self.model, "target", self.model) or Compat()
        answers = f"compat owns {sorted(answer.owns)}, states are {sorted(states)}"
        expect(states & {"attention"} <= answer.owns <= states, answers)

    @promise("A prompt that begins like an earlier one reuses its rows, and the text stays the same.")
    def test_requests_with_one_beginning_share_rows(self) -> None:
        first = self.requests(temperatures=(0.0,))[0]
        text = self.text_of(first)
        run = self.run([Checkpoints(), self.right([first], lambda seq: 2)], max_sequences=1)
        self.is_plain(run, [first])
        again = attrs.evolve(first, prompt=[*text[:-4], 1, 2], max_tokens=6)
        seq = run.submit(again)
        run_together(run, [])
        expect(seq.reused > 0, "no row was reused")
        expect(run.take(seq).tokens == self.plain(again), f"the text differs on {seq.reused} reused rows")

    @promise("copy(seq, source, want), if there is one: the texts of both sequences continue as from an empty slot.")
    def test_a_prefix_can_be_copied(self) -> None:
        """A runs, B begins with rows of A while it does, and A goes on after both."""
        if not hasattr(self.model, "copy"):
            pytest.skip("the target does not copy rows")
        room = min(8, self.model.info.context - COPIED - 8)
        if room < 2:
            pytest.skip(f"a context of {self.model.info.context} is shorter than a prefix that is copied")
        first = self.requests(n=room, temperatures=(0.0,))[0]
        first = attrs.evolve(first, prompt=(self.prompts()[0] * COPIED)[:COPIED])
        other = attrs.evolve(first, prompt=[*first.prompt[:-3], 1, 2], name="other")
        again = attrs.evolve(first, prompt=[*self.text_of(first)[:-2], 1], name="again", max_tokens=4)
        run = self.run(
            [Checkpoints(), self.right([first, other, again], lambda seq: 2)],
            max_sequences=2,
            prefill_chunk=11,
            draft_max=4,
        )
        one = run.submit(first)
        while one.verdict_count < 2:
            run.step()
        two = run.submit(other)
        run_together(run, [])
        expect(two.reused > 0, "no row was copied")
        for seq, request in ((one, first), (two, other)):
            expect_same(run.take(seq).tokens, self.plain(request), describe_request(request))
        self.is_plain(run, [again])


def check_bytes(tokenizer: Tokenizer) -> None:
    """Bytes of tokens make up the text of tokens, and a text becomes ids. Raises Found."""
    ids = [i * 37 % tokenizer.vocab_size for i in range(60)]
    parts = [tokenizer.token_bytes(i) for i in ids]
    expect(all(type(part) is bytes for part in parts), f"token_bytes({ids[0]}) is {parts[0]!r}")
    for token, part in zip(ids, parts, strict=True):
        text, decoded = part.decode("utf-8", "replace"), tokenizer.decode([token])
        expect(
            "\ufffd" in text or text.strip(" ") == decoded.strip(" "), f"token {token} is {part!r}, decoded {decoded!r}"
        )
    text = tokenizer.decode(ids[:9])
    for special, bos in ((False, True), (True, False)):
        encoded = tokenizer.encode(text, special=special, bos=bos)
        right = isinstance(encoded, list) and all(type(i) is int and 0 <= i < tokenizer.vocab_size for i in encoded)
        expect(right, f"encode({text!r}) is {encoded!r}")
