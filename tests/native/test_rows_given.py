"""Input and output rows chosen by a caller: reads outside their memory are refused."""

from __future__ import annotations

import pytest
import torch
from spec_kernels import native
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.model.ops import Input, Model, Pick, Tap
from spec_kernels.native.executor import Native

from tests.native.weightless import Nothing

pytestmark = pytest.mark.skipif(native.problem() is not None, reason=f"{native.problem()}")


def test_a_column_slice_narrower_than_the_input_is_refused():
    """Its rows are as far apart as the input is wide, or farther, but the last one ends with the memory."""
    executor = Native(Model((Input("x", 10), Tap("x", "t"))), Nothing())
    batch = ForwardBatch(
        *(None, torch.arange(4), [SequenceRows(None, 0, 4, 0)]), inputs={"x": torch.zeros(4, 16)[:, 10:]}, taps=("t",)
    )

    with pytest.raises(ValueError, match="input 'x' has rows of width 6, 10 is needed"):
        executor.run(batch)


def test_final_rows_cannot_be_picked_behind_logits():
    """They were looked for among the rows that were left, and behind them."""
    with pytest.raises(ValueError, match="'final' rows are picked after 'logits' rows"):
        Native(Model((Input("x", 16), Pick("x", "x", "logits"), Pick("x", "x", "final"), Tap("x", "t"))), Nothing())
