"""Hidden states of one call of a model, by hooks on its modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor

from spec_core import Needs
from spec_engines.transformers.layout import Layout


class Taps:
    """hidden: {i: [B, n, D]} of the last call; final: [B, n, D] or None."""

    def __init__(self) -> None:
        self.hidden: dict[int, Tensor] = {}
        self.final: Tensor | None = None


@contextmanager
def collect_taps(layout: Layout, needs: Needs, vectors: Mapping[tuple[int, int], Tensor]) -> Iterator[Taps]:
    """Collect what is needed of one call. vectors: {(line, row): [D]} that enter block 0 in place of embeddings."""
    taps, last = Taps(), len(layout.blocks)
    with ExitStack() as stack:
        if vectors:
            _enter(stack, layout.blocks[0], _replacing(vectors))
        for i in needs.hidden - {last}:
            _enter(stack, layout.blocks[i], _capture_input(taps, i))
        if last in needs.hidden:
            stack.callback(layout.blocks[-1].register_forward_hook(_capture_output(taps, last)).remove)
        if needs.final:
            stack.callback(layout.decoder.register_forward_hook(_capture_final(taps)).remove)
        yield taps


def _enter(stack: ExitStack, block: Any, hook: Any) -> None:
    stack.callback(block.register_forward_pre_hook(hook, with_kwargs=True).remove)


def _stream(args: tuple[Any, ...], keywords: dict[str, Any]) -> Tensor:
    return args[0] if args else keywords["hidden_states"]


def _replacing(vectors: Mapping[tuple[int, int], Tensor]) -> Any:
    def hook(module: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, Any]:
        stream = _stream(args, keywords).clone()
        for at, embedding in vectors.items():
            stream[at] = embedding
        return ((stream, *args[1:]), keywords) if args else (args, keywords | {"hidden_states": stream})

    return hook


def _capture_input(taps: Taps, i: int) -> Any:
    def hook(module: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        taps.hidden[i] = _stream(args, keywords)

    return hook


def _capture_output(taps: Taps, i: int) -> Any:
    def hook(module: Any, args: Any, output: Any) -> None:
        taps.hidden[i] = output if isinstance(output, Tensor) else output[0]

    return hook


def _capture_final(taps: Taps) -> Any:
    def hook(module: Any, args: Any, output: Any) -> None:
        taps.final = output.last_hidden_state

    return hook
