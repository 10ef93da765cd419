"""The parts of a draft head: what a method with layers of its own is made of.

A head is a list of operations (``Model``) over its own tensors and some of the target's. ``Builder`` makes them,
``executor_of(target).with_layers(model, source)`` runs them where the target runs, ``PairLayer`` and ``PairChain``
keep a layer's cache in step with committed text, and ``Drafted`` is a finished draft. docs/write-a-head.md is a whole
head in a file.

This module is public, as ``spec_core`` is; the modules that it takes these names from are not.
"""

from spec_kernels.layer_executor import executor_of
from spec_kernels.model.batch import ForwardBatch, SequenceRows, embedding, numbers
from spec_kernels.model.build import Builder
from spec_kernels.model.drafts import Drafted, DraftOptions, rows_at, sigmoid
from spec_kernels.model.executor import Executor, LayerExecutor
from spec_kernels.model.head import (
    PREFIX,
    block_shape,
    matrix_name,
    output_matrix,
    shared_weights,
    spread_logits,
    target_weights,
    tokens_of,
)
from spec_kernels.model.lattice import LatticeScores, pack_scores, scores_after
from spec_kernels.model.messages import code_ops, embed_codes, feature_ops, first_rows, message_ops, pass_ops
from spec_kernels.model.nextn import trunk_weights
from spec_kernels.model.ops import (
    Add,
    AddRelative,
    BlockConv,
    Clusters,
    Concat,
    Embed,
    Gate,
    Input,
    Linear,
    Model,
    Norm,
    Op,
    Pick,
    Tap,
)
from spec_kernels.model.pair_chain import PairChain
from spec_kernels.model.pairs import PairLayer, Pairs
from spec_kernels.model.shapes import BlockShape, HeadShape
from spec_kernels.model.source import LoadedTensors, TensorSource, TensorSubset

__all__ = [
    "PREFIX", "Add", "AddRelative", "BlockConv", "BlockShape", "Builder", "Clusters", "Concat", "DraftOptions",
    "Drafted", "Embed", "Executor", "ForwardBatch", "Gate", "HeadShape", "Input", "LatticeScores", "LayerExecutor",
    "Linear", "LoadedTensors", "Model", "Norm", "Op", "PairChain", "PairLayer", "Pairs", "Pick", "SequenceRows",
    "Tap", "TensorSource", "TensorSubset", "block_shape", "code_ops", "embed_codes", "embedding", "executor_of",
    "feature_ops", "first_rows", "matrix_name", "message_ops", "numbers", "output_matrix", "pack_scores",
    "pass_ops", "rows_at", "scores_after", "shared_weights", "sigmoid", "spread_logits", "target_weights",
    "tokens_of", "trunk_weights",
]  # fmt: skip
