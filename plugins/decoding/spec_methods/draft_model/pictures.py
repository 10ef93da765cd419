"""Prompts with pictures, as the draft model reads them."""

from __future__ import annotations

from spec_core import Sequence, Target
from spec_core.toolkit import ImageEncoder, image_encoder
from spec_methods.draft_model.state import DraftModelState

SEEN = "pictures: the draft model reads them itself"
UNSEEN = "pictures: the draft model reads the text without them"


def picture_note(target: Target, draft: Target, same_words: bool) -> tuple[str, ...]:
    """What the draft model knows of pictures, for a target that reads them."""
    if image_encoder(target) is None:
        return ()
    return (SEEN if same_words and image_encoder(draft) is not None else UNSEEN,)


def read_prompt(encoder: ImageEncoder | None, state: DraftModelState, seq: Sequence) -> list[int]:
    """The tokens of a sequence as the draft model reads them. encoder: None leaves the rows of pictures out."""
    if state.owner is not seq:
        state.prompt = prompt_of(encoder, state, seq)
        state.owner = seq if seq.embeds else None
    return state.prompt + seq.tokens[seq.prompt_len :]


def prompt_of(encoder: ImageEncoder | None, state: DraftModelState, seq: Sequence) -> list[int]:
    """The prompt, -1 at rows of pictures, which the draft model's sequence holds from now on."""
    first = next((i for i, token in enumerate(state.held) if token < 0), len(state.held))
    state.held, state.sure = state.held[:first], min(state.sure, first)  # the pictures may be others
    if encoder is None or seq.encoded is None or (pictured := seq.encoded.pictured) is None:
        state.seq.embeds, state.seq.encoded = {}, None
        return [token for token in seq.tokens[: seq.prompt_len] if token >= 0]
    encoded = encoder.encode_prompt(pictured.prompt, pictured.pictures, **pictured.keywords)
    state.seq.embeds, state.seq.encoded, state.seq.prompt_len = encoded.embeds, encoded, len(encoded.tokens)
    return encoded.tokens
