"""EXAONE 4 (2507.11407): norms after attention and feed-forward layer; with windows, other blocks do not rotate."""

from spec_kernels.model.ops import Add
from spec_targets.architectures import Family
from spec_targets.architectures.names import ATTENTION, ENDS, MLP
from spec_targets.tokenizer.patterns import division

INTERVAL = 4
KINDS = ("layer_types", "sliding_window", "sliding_window_pattern")


def from_gguf(keys):
    window = keys.integer("attention.sliding_window", 0)
    if not window:
        return keys.decoder()
    flags = keys.flags("attention.sliding_window_pattern", keys.layers())
    windows = keys.windows(window, INTERVAL) if flags is None else tuple(window * flag for flag in flags)
    return keys.decoder(windows=windows, still=True)


def from_hf(json):
    if json.raw.get("sliding_window") is None:
        json.kinds(json.layers(), ("full_attention",))
        return json.decoder(KINDS)
    return json.decoder(KINDS, windows=json.windows(INTERVAL), still=True)


def block(b, c, i):
    yield from b.attention(norms=True, biases=False, residual=False, x="x")
    yield b.norm("h", "h", "post_attention_norm.weight")
    yield Add("x", "h", "x")
    yield from b.mlp(c.ff, residual=False, x="x")
    yield b.norm("h", "h", "post_ffw_norm.weight")
    yield Add("x", "h", "x")


EXAONE4 = Family(
    name="exaone4",
    classes=("Exaone4ForCausalLM",),
    model_types=("exaone4",),
    gguf=from_gguf,
    hf=from_hf,
    block=block,
    names=ENDS
    | ATTENTION
    | MLP
    | {
        "post_attention_norm.weight": "post_attention_layernorm.weight",
        "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
    },
    divisions={"exaone4": division("gpt-2")},
)
