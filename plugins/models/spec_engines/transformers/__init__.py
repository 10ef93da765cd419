"""``transformers:DIRECTORY``: any causal language model that ``AutoModelForCausalLM`` loads, as a target.

The model computes with transformers' own code; the cache is cropped after every step. Only local directories with
safetensors are read, and no code of theirs is run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from spec_core.errors import UsageError
from spec_engines.declared import OWN_LOOP, Engine
from spec_engines.options import KERNELS, check_options

if TYPE_CHECKING:
    from spec_engines.transformers.transformers_target import TransformersTarget

CHAINS = "models with sliding windows or recurrent layers take chains only"
PARTS = "models with sliding windows or recurrent layers run as a whole"
ENGINE = Engine(
    scheme="transformers",
    extra="transformers",
    models="directories with config.json and safetensors of any architecture that `AutoModelForCausalLM` knows; "
    "quantised ones with their library, tried with torchao",
    devices="CPU, CUDA; float32, bfloat16, float16, float64",
    logits="yes",
    hidden="between all blocks, and after the final norm",
    trees="if the model follows a mask of the caller, which is measured when it is loaded; not with sliding windows, "
    "not with recurrent layers",
    recurrent="copied after the pending rows; a partly accepted draft is evaluated again",
    weights="embedding and output matrix",
    rules="all",
    exact="no: libraries sum each shape of a product in their own order",
    serves=OWN_LOOP | {"trees": True},
    cache="of Gemma 4, copied for the drafter",
    skipped={
        "test_tree_rows_equal_chains": CHAINS,
        "test_kept_paths_are_moved_together": CHAINS,
        "test_rows_are_as_exact_as_declared": "it declares no exact rows",
        "test_a_prefix_can_be_copied": "it does not copy rows: a prefix serves one sequence at a time",
        "test_the_next_token_layer_is_readable": "most models have no layer that predicts one token further",
        "test_a_part_of_the_blocks_changes_nothing": PARTS,
        "test_rows_of_a_part_are_those_from_the_first_on": PARTS,
        "test_drafts_that_follow_drafts_are_as_in_one_forward": "the engine keeps no rows of drafts",
        "test_draft_rows_are_void_after_another_forward": "the engine keeps no rows of drafts",
        "test_probe_rows_are_evaluated_and_not_kept": "the engine evaluates committed tokens and drafts alone",
        "test_the_next_token_layer_rotates_its_heads": "most models have no layer that predicts one token further",
        "test_the_layer_executor_has_the_weights_of_the_target": "this project runs further layers",
        "test_the_cache_reader_shows_the_rows_of_the_text": "it shows the cache of Gemma 4 alone",
        "test_training_texts_are_texts": "no texts belong to a model",
    },
)
ALLOWED = KERNELS | {"weights": (True, False, "auto"), "cache_dtype": ("auto",)}


def load(
    location: str | Path,
    *,
    weights: bool | str = "auto",
    device: str = "auto",
    dtype: str = "auto",
    threads: int = 0,
    context: int = 0,
    compiled: bool = False,
    **others: Any,
) -> TransformersTarget:
    """Load a model. options: see ``spec_core.load``; options of native kernels are refused.

    dtype: ``float64`` too. threads: 0 leaves torch's number. compiled: by torch.compile, for steps in which one
    sequence decodes. Raises UsageError for a directory without a model, an architecture that transformers does not
    know, a model that torch cannot compile, and an option that this target does not have.
    """
    check_options(ENGINE.scheme, {"weights": weights, **others}, ALLOWED)
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"transformers is not installed: {error}", hint="pip install 'spec-core[transformers]'"
        ) from error
    from spec_engines.transformers.transformers_loading import LoadOptions, load_target

    return load_target(Path(location), LoadOptions(device, dtype, threads, context, weights is not False, compiled))


def load_compiled(location: str | Path, **options: Any) -> TransformersTarget:
    """``transformers-compiled:DIRECTORY``: as ``load``, and torch compiles the steps of decoding."""
    return load(location, compiled=True, **options)
