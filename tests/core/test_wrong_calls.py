"""Natural mistakes of an author of a method: each has a message that names the fix."""

from __future__ import annotations

import pytest

from spec_core import Compat, Needs, PluginError, Refused, Run, TargetInfo, describe, hookimpl
from spec_core.testing import ToyTarget
from tests.core.toys import Says


def dense(methods):
    return Run(ToyTarget(recurrent=False), methods)


class Reads(Says):
    """Reads the state after the final norm of every row."""

    @hookimpl
    def process(self, rows):
        for _, span in rows.by_sequence():
            assert len(span.final) == len(span.tokens)


def test_the_state_after_the_final_norm_must_be_requested():
    """As hidden states between blocks must."""
    assert dense([Reads(needs=Needs(final=True), drafts=())]).generate([1, 2], max_tokens=3).result.tokens
    with pytest.raises(PluginError, match=r"final was not requested: compat must return .*Needs\(final=True\)"):
        dense([Reads(drafts=())]).generate([1, 2], max_tokens=3).result


@pytest.mark.parametrize(
    "create, message",
    [
        (lambda: Needs(hiden={1}), "Needs has no 'hiden'; it has, nearest first: hidden, "),
        (lambda: Needs(cached_layer={1}), "Needs has no 'cached_layer'; it has, nearest first: cached_layers, "),
        (lambda: Compat(need=Needs()), "Compat has no 'need'; it has, nearest first: needs, "),
        (lambda: Compat(judge={"sampled"}), "Compat has no 'judge'; it has, nearest first: judges, "),
        (lambda: TargetInfo("x", 1, 1, 1, layer=1, context=1), "TargetInfo has no 'layer'; .* layers, "),
    ],
)
def test_a_misspelt_field_is_answered_with_the_nearest_one(create, message):
    """The constructors of what plugins declare."""
    with pytest.raises(TypeError, match=message):
        create()


def test_a_misspelt_weight_is_refused_before_weights_are_read():
    """From metadata, where the target knows its names."""
    with pytest.raises(Refused, match=r"says reads the target's token_embed.weight; .* gives no such weights"):
        Run("zoo:pico", [Says(needs=Needs(weights={"token_embed.weight"}), drafts=())])
    assert Run("zoo:pico", [Says(needs=Needs(weights={"token_embd.weight", "output.weight"}), drafts=())])


def test_a_trace_is_refused_to_a_plugin_that_owns_no_state():
    """It would cost memory in every step, and only owners read it."""
    with pytest.raises(Refused, match="says needs a trace of inputs and owns no state"):
        dense([Says(needs=Needs(trace="inputs"), drafts=())])


def test_a_target_says_its_rotation_base_and_the_epsilon_of_its_norms():
    """A method with blocks of its own in the target's cache needs both; other values are other attention."""
    info = describe("zoo:pico").target.info

    assert info.rotation_base == 1000000.0
    assert info.norm_epsilon == pytest.approx(1e-6)
