"""``llamacpp:FILE``: a GGUF model that llama.cpp runs, as a target, through the low-level API of llama-cpp-python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from spec_core.errors import UsageError
from spec_engines.declared import OWN_LOOP, Engine
from spec_engines.options import KERNELS, check_options

if TYPE_CHECKING:
    from spec_engines.llamacpp.target import LlamaCppTarget

VERSION = "0.3.36"
"""Version of llama-cpp-python. Its functions and structures are llama.cpp's own, which change without notice."""
CHAINS = "it takes chains only; run on `llamacpp-trees:`"
ENGINE = Engine(
    scheme="llamacpp",
    extra="llamacpp",
    models="GGUF files with a tokenizer that this project reads",
    devices="every device that the installed llama.cpp was built for",
    logits="yes",
    hidden="between all blocks, and after the final norm",
    trees="no; yes as `llamacpp-trees:`, and then no row is exact; not with recurrent layers",
    recurrent="by llama.cpp's snapshots; where it keeps none, copied after the pending rows",
    weights="embedding and output matrix, if this project knows the architecture",
    rules="all",
    exact="chains, if the rows that are compared when the model is loaded are equal; else no",
    serves=OWN_LOOP,
    skipped={
        "test_tree_rows_equal_chains": CHAINS,
        "test_kept_paths_are_moved_together": CHAINS,
        "test_rows_are_as_exact_as_declared": "a model declares no exact rows if drafts may branch, or if rows that "
        "are compared when it is loaded differ, as with the kit's random models in float32",
        "test_a_prefix_can_be_copied": "it does not copy rows: a prefix serves one sequence at a time",
        "test_the_next_token_layer_is_readable": "most models have no layer that predicts one token further",
        "test_a_part_of_the_blocks_changes_nothing": "the engine runs whole models",
        "test_rows_of_a_part_are_those_from_the_first_on": "the engine runs whole models",
        "test_drafts_that_follow_drafts_are_as_in_one_forward": "the engine keeps no rows of drafts",
        "test_draft_rows_are_void_after_another_forward": "the engine keeps no rows of drafts",
        "test_probe_rows_are_evaluated_and_not_kept": "the engine evaluates committed tokens and drafts alone",
        "test_the_next_token_layer_rotates_its_heads": "most models have no layer that predicts one token further",
        "test_the_layer_executor_has_the_weights_of_the_target": "this project runs further layers",
        "test_the_cache_reader_shows_the_rows_of_the_text": "its cache belongs to the engine",
        "test_training_texts_are_texts": "no texts belong to a model",
    },
)
ALLOWED = KERNELS | {"weights": (True, False, "auto"), "dtype": ("auto", "float32")}


def load(
    location: str | Path,
    *,
    weights: bool | str = "auto",
    device: str = "auto",
    dtype: str = "auto",
    threads: int = 0,
    context: int = 0,
    cache_dtype: str = "auto",
    trees: bool = False,
    **others: Any,
) -> LlamaCppTarget:
    """Load a model. options: see ``spec_core.load``; options of this project's kernels are refused.

    device: ``auto`` offloads all layers if the build can, ``cpu`` none. threads: 0 takes torch's number. trees: drafts
    may branch; then no rows are exact. Raises UsageError for a damaged file, a model that llama.cpp cannot load, trees
    on a model with recurrent layers, and another version of llama-cpp-python.
    """
    check_options(ENGINE.scheme, {"weights": weights, "dtype": dtype, **others}, ALLOWED)
    check_installed()
    from spec_engines.llamacpp.loading import LoadOptions, load_target

    return load_target(Path(location), LoadOptions(device, threads, context, cache_dtype, weights is not False, trees))


def load_with_trees(location: str | Path, **options: Any) -> LlamaCppTarget:
    """``llamacpp-trees:FILE``: as ``load``, and drafts may branch."""
    return load(location, trees=True, **options)


def check_installed() -> None:
    """Raise UsageError unless the known version of llama-cpp-python is installed."""
    hint = "pip install 'spec-core[llamacpp]'"
    try:
        import llama_cpp
    except Exception as error:  # importing it loads a shared library
        raise UsageError(f"llama-cpp-python cannot be imported: {str(error)[:200]}", hint=hint) from error
    if llama_cpp.__version__ != VERSION:
        raise UsageError(f"llama-cpp-python is {llama_cpp.__version__}, {VERSION} was needed", hint=hint)
