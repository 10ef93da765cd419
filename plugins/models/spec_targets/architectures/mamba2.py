"""What the families with Mamba-2 layers share: their sizes and kinds of blocks in both formats, and their tensors."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from spec_kernels.model.shapes import ScanShape
from torch import Tensor

from spec_core.errors import UsageError
from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.keys import Keys
from spec_targets.formats.damage import AGAIN
from spec_targets.formats.stored_names import Name, stored_as

UNLIMITED = (None, [0, math.inf], [0, {"__float__": "Infinity"}])
"""Values of ``time_step_limit`` that limit nothing."""
KEYS = {
    "groups": "mamba_n_groups",
    "heads": "mamba_n_heads",
    "state": "mamba_d_state",
    "head": "mamba_d_head",
    "kernel": "mamba_d_conv",
}
"""Where most configs have the sizes."""


def scan_names(stem: str) -> dict[str, Name]:
    """Names of a layer's tensors. stem: of the layer in a block of a checkpoint."""
    return {
        "ssm_in.weight": f"{stem}.in_proj.weight",
        "ssm_conv1d.weight": stored_as(f"{stem}.conv1d.weight", change=lambda value, c: value[:, 0]),
        "ssm_conv1d.bias": f"{stem}.conv1d.bias",
        "ssm_dt.bias": f"{stem}.dt_bias",
        "ssm_a": stored_as(f"{stem}.A_log", change=lambda value, c: -value.float().exp()),
        "ssm_d": f"{stem}.D",
        "ssm_norm.weight": stored_as(f"{stem}.norm.weight", change=_by_group),
        "ssm_out.weight": f"{stem}.out_proj.weight",
    }


def _by_group(value: Tensor, c: Config) -> Tensor:
    """The weight of the gated norm, [groups, width of a group]."""
    assert c.scan is not None
    return value.view(c.scan.key_heads, -1)


def scan_in_keys(keys: Keys) -> ScanShape:
    """The sizes in a GGUF file."""
    heads, inner = keys.integer("ssm.time_step_rank"), keys.integer("ssm.inner_size")
    if heads < 1 or inner % heads:
        raise UsageError(
            f"{keys.where}: {keys.arch}.ssm.inner_size is {inner}, a multiple of {heads} was needed", hint=AGAIN
        )
    groups, state = keys.integer("ssm.group_count"), keys.integer("ssm.state_size")
    return ScanShape(groups, heads, state, inner // heads, keys.integer("ssm.conv_kernel"))


def scan_in_json(json: ConfigJson, inner: int, names: Mapping[str, str] = KEYS) -> ScanShape:
    """The sizes in a config.json. inner: width of all heads, 0: it is not stated. names: its keys, see ``KEYS``."""
    json.refuse(
        mamba_proj_bias=(None, False),
        mamba_hidden_act=(None, "silu"),
        use_bias=(None, False),
        projectors_bias=(None, False),
    )
    head = json.raw.get(names["head"])
    heads = json.integer(names["heads"])
    width = max(1, inner // heads) if head in (None, "auto") and inner else json.integer(names["head"])
    if inner and width * heads != inner:
        raise UsageError(
            f"{json.where}: config.json has {heads} Mamba-2 heads of {width}, {inner} numbers in all were needed",
            hint="its sizes do not belong together; get the model again",
        )
    groups, state, kernel = (json.integer(names[name]) for name in ("groups", "state", "kernel"))
    return ScanShape(groups, heads, state, width, kernel)


def block_numbers(kinds: Sequence[Any], *members: Any) -> frozenset[int]:
    """The blocks of these kinds."""
    return frozenset(i for i, kind in enumerate(kinds) if kind in members)


def one_number(keys: Keys, key: str, numbers: Collection[int]) -> int:
    """The number that all blocks have that have one."""
    counts = set(numbers) - {0}
    if len(counts) != 1:
        raise UsageError(
            f"{keys.where}: {keys.arch}.{key} is {str(numbers)[:60]}, 0 and one other number were needed",
            hint="such models are not supported",
        )
    return counts.pop()


def rotates_heads(keys: Keys) -> bool:
    """Whether heads rotate: a file without positions says that its scaling is not finetuned."""
    return bool(keys.get("rope.scaling.finetuned", True, bool))
