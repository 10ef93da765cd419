"""OLMo 2 (2501.00656): norms after attention and feed-forward layer, and over all heads of q and of k together."""

from spec_kernels.model.ops import Add, Attend, Rotate, Store
from spec_targets.architectures import Family
from spec_targets.architectures.names import ATTENTION, ENDS, MLP


def from_gguf(keys):
    return keys.decoder()


def from_hf(json):
    json.refuse(attention_bias=(None, False), clip_qkv=(None,))
    return json.decoder()


def block(b, c, i):
    heads = b.shape.heads
    yield b.projection(("q", "k", "v"), biases=False, x="x")
    yield b.norm("q", "q", "attn_q_norm.weight", heads.q_width)
    yield b.norm("k", "k", "attn_k_norm.weight", heads.kv_width)
    yield Rotate("q", heads)
    yield Rotate("k", heads)
    yield Store("k", "v", heads, b.layer)
    yield Attend("q", "a", heads, b.layer)
    yield b.linear("a", "h", "attn_output", (c.width, heads.q_width))
    yield b.norm("h", "h", "post_attention_norm.weight")
    yield Add("x", "h", "x")
    yield from b.mlp(c.ff, residual=False, x="x")
    yield b.norm("h", "h", "post_ffw_norm.weight")
    yield Add("x", "h", "x")


OLMO2 = Family(
    name="olmo2",
    classes=("Olmo2ForCausalLM",),
    model_types=("olmo2",),
    gguf=from_gguf,
    hf=from_hf,
    block=block,
    names=ENDS
    | {name: where for name, where in ATTENTION.items() if name != "attn_norm.weight"}
    | MLP
    | {
        "post_attention_norm.weight": "post_attention_layernorm.weight",
        "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
    },
)
