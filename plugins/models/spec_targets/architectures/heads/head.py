"""The description of a draft head, the same for every file format."""

from __future__ import annotations

from typing import Any, Literal

import attrs
from spec_kernels.model.source import TensorSource
from torch import Tensor

from spec_core import TargetInfo
from spec_targets.architectures.heads.dialects import Reading
from spec_targets.architectures.heads.lattice import Lattice
from spec_targets.architectures.heads.tapped_layers import layers_of, resolve_layers
from spec_targets.architectures.rope import Scaling, rope_frequencies

HeadKind = Literal["eagle3", "dflash", "dspark", "dflash2", "dspine", "lilicorr"]
TITLES = {
    "eagle3": "EAGLE-3", "dflash": "DFlash", "dspark": "DSpark", "dflash2": "DFlash2", "dspine": "DSpine",
    "lilicorr": "LiLiCorr",
}  # fmt: skip
Shapes = dict[str, tuple[int, ...]]
Problem = tuple[str, str]
"""A fault, and what to do about it."""


@attrs.frozen(eq=False)
class Head:
    """Sizes and flags of a head, and which hidden states of the target it reads."""

    kind: HeadKind
    """``eagle3`` (2503.01840), ``dflash`` (block diffusion), ``dspark`` (with Markov matrices), ``dflash2`` (with
    convolutions and a selector), ``dspine`` (with messages between rows) or ``lilicorr`` (with layers that choose among
    candidates)."""
    name: str
    producer: str
    """Dialect of the file."""
    width: int
    """Width of the head's own stream."""
    target_width: int
    """Width of the target's stream."""
    inputs: int
    """Number of hidden states that it reads per position."""
    heads: int
    """Attention heads, as in a decoder; so are ``kv_heads``, ``head``, ``ff``, ``layers``, ``eps``, ``context``,
    ``rope_base``, ``scaling`` and ``divisors``."""
    kv_heads: int
    head: int
    ff: int
    layers: int
    eps: float
    context: int
    rope_base: float
    vocab: int
    """Tokens of the target, 0: not known."""
    draft_vocab: int
    """Rows of the head's logits."""
    scaling: Scaling = Scaling()
    divisors: Tensor | None = None
    d2t: Tensor | None = None
    """[draft_vocab] int64, the target's id of every row, or None if rows are the target's ids."""
    own_embedding: bool = False
    """Whether the file has an embedding; otherwise the target's is used."""
    own_output: bool = False
    """Whether the file has an output matrix; otherwise the target's is used."""
    ids: tuple[int, ...] | None = None
    """Source layers as stated in the file, or None."""
    reading: Reading = "inputs"
    """Meaning of ``ids`` in the file."""
    certain: bool = False
    """Whether the file's format defines that meaning."""
    paper: bool = False
    """Whether, without ids, the method's paper says which states are read."""
    last: bool = False
    """Whether it reads the state after the final norm alone."""
    normed: bool = True
    """Whether the state after the last block is the one after the final norm too, where it is read among others."""
    repairs: tuple[str, ...] = ()
    """What the reader ignored or corrected, in words."""
    tied: bool = False
    """Whether its own embedding is its output matrix."""
    rotary: int = 0
    """Dimensions of an attention head that rotate, halves of them together; 0: all."""
    partial: float = 1.0
    """Share of an attention head that rotates as the file states it, which no known training reads."""
    sinks: bool = False
    """Whether attention heads have a score without a value."""
    projected: bool = True
    """Whether it has the matrix ``fc``."""
    norm_twice: bool = False
    """Whether a feature passes the embedding's norm before its own (Model-Optimizer's module)."""
    context_norm: bool = False
    """Whether features of committed positions pass each layer's norm."""
    logit_scale: float = 1.0
    """Factor of logits, see ``SoftCap``."""
    logit_cap: float = 0.0
    """Bound of logits, see ``SoftCap``."""
    norm_before_residual: bool = False
    """Whether the residual stream begins with the normed feature."""
    norm_before_fc: bool = False
    """Whether one norm stands over the joined hidden states."""
    fc_norm: bool = False
    """Whether each hidden state has a norm instead."""
    norm_output: bool = False
    """Whether the final norm's output is fed back."""
    qk_norm: bool = False
    """Whether q and k have a norm per attention head."""
    biases: bool = False
    """Whether q, k and v have biases."""
    fc_bias: bool = False
    """Whether ``fc`` has a bias."""
    output_bias: bool = False
    """Whether the attention's output matrix has a bias."""
    block: int = 0
    """Tokens of a block, the last committed one included."""
    mask: int = -1
    """The token that stands for an unknown one."""
    anchor: bool = False
    """Whether the row of the last committed token predicts the first drafted one."""
    markov: int = 0
    """Rank of the matrices that add to a row what follows the token before it, 0 without them."""
    confidence: int = 0
    """Numbers that the confidence head reads, of a state, or of a state and the first factor of ``markov``; 0 without
    one."""
    conv_taps: int = 0
    """Taps of the convolutions around attention and feed-forward, 0 without them."""
    conv_groups: int = 0
    """Groups of these convolutions, 0 without them."""
    selector: int = 0
    """Rank of the selector's matrices, 0 without one."""
    candidates: int = 0
    """Tokens of a row that the selector chooses from."""
    transfer: int = 0
    """Numbers of a token's code, 0 without messages."""
    message: int = 0
    """Numbers of a message to the next row, 0 without messages."""
    lattice: Lattice | None = None
    """The layers over candidates."""
    embed_scale: float = 1.0
    """Factor of embeddings."""
    scale: float = 0.0
    """Factor of scores, 0: 1 / sqrt(head)."""
    act: Literal["silu", "gelu"] = "silu"
    """Activation function of feed-forward layers."""
    post_norms: bool = False
    """Whether attention and feed-forward have a norm after them too, values a norm without weight, and the stream a
    factor of each layer (Gemma 4)."""
    own_values: bool = True
    """Whether values have a matrix; without, they are the keys before their norm."""
    gate: Literal["", "heads", "numbers"] = ""
    """What the output of attention heads, or each of its numbers, is multiplied by softplus of."""
    query_heads: tuple[int, ...] = ()
    """Attention heads of each layer, where they differ."""
    anchored: bool = False
    """Whether rows of a block have the window of its first."""
    windows: tuple[int, ...] = ()
    """Per layer how many positions back it attends, 0 for all."""
    causal: tuple[bool, ...] = ()
    """Per layer whether rows of the block attend only to earlier ones."""

    @property
    def fills_blocks(self) -> bool:
        """Whether it fills blocks of masked tokens."""
        return self.kind != "eagle3"

    def sources(self, layers: int, reading: str = "auto") -> tuple[int, ...]:
        """Hidden states of a target of ``layers`` blocks: i enters block i, i = layers leaves the last one.

        reading: see ``tapped_layers.resolve_layers``. Empty where the file names none and its kind has no default.
        """
        return layers_of(self, layers, reading).sources

    def fit_to(self, target: TargetInfo, reading: str = "auto") -> Head:
        """With the vocabulary of the target, where the file has none, and with what its layers were read as."""
        note = layers_of(self, target.layers, reading).note
        head = self if note is None else attrs.evolve(self, repairs=(*self.repairs, note))
        if self.vocab:
            return head
        return attrs.evolve(head, vocab=target.vocab, draft_vocab=self.draft_vocab or target.vocab)

    @property
    def description(self) -> str:
        """What was recognised and repaired, in one line."""
        return "; ".join([f"{TITLES[self.kind]} head of {self.producer}", *self.repairs])

    @property
    def info(self) -> TargetInfo:
        """Its sizes, by the names that targets have for theirs."""
        return TargetInfo(
            name=self.name,
            vocab=max(1, self.vocab),
            width=self.width,
            layers=self.layers,
            context=self.context,
            family=self.kind,
        )

    def heads_of(self, layer: int) -> int:
        """Attention heads of a layer."""
        return self.query_heads[layer] if self.query_heads else self.heads

    def gates_of(self, layer: int) -> int:
        """Rows of the matrix of a layer's gates, 0 without gates."""
        return self.heads_of(layer) * {"": 0, "heads": 1, "numbers": self.head}[self.gate]

    def rotation(self) -> tuple[Tensor, float]:
        """Radians per position [head / 2] float32 by which q and k are rotated, and the factor of cos and sin."""
        return rope_frequencies(self.rotary or self.head, self.rope_base, self.scaling, self.divisors)

    def tensor_shapes(self, source: TensorSource | None = None) -> Shapes:
        """Every tensor that it has, with its shape."""
        wide = self.inputs * self.target_width
        shapes: Shapes = {"fc.weight": (self.width, wide)} if self.projected else {}
        shapes |= {"output_norm.weight": (self.width,)}
        shapes |= {"fc.bias": (self.width,)} if self.fc_bias else {}
        shapes |= {"input_norm.weight": (wide,)} if self.norm_before_fc else {}
        shapes |= {f"input_norm.{i}.weight": (self.target_width,) for i in range(self.inputs)} if self.fc_norm else {}
        shapes |= {"token_embd.weight": (self.vocab, self.width)} if self.own_embedding else {}
        shapes |= {"output.weight": (self.draft_vocab, self.width)} if self.own_output else {}
        shapes |= {"hidden_norm.weight": (self.width,)} if self.fills_blocks else {}
        shapes |= self._sequential_shapes()
        for i in range(self.layers):
            shapes |= {f"blk.{i}.{name}": shape for name, shape in self._block_shapes(i).items()}
        return shapes

    def _sequential_shapes(self) -> Shapes:
        """Tensors of the sequential part and of the confidence head."""
        shapes: Shapes = {}
        if self.markov:
            shapes |= {
                "markov_w1.weight": (self.vocab, self.markov),
                "markov_w2.weight": (self.draft_vocab, self.markov),
            }
        if self.selector:
            codebook = (self.vocab, self.selector)
            shapes |= {"selector_predecessor.weight": codebook, "selector_successor.weight": codebook}
            shapes |= {"selector_hidden.weight": (self.selector, self.width)}
        if self.transfer:
            sizes = (self.message, self.transfer)
            shapes |= {"transfer_codes.weight": (self.vocab, self.transfer), "transfer_gate.bias": (self.message,)}
            shapes |= {f"transfer_{name}.weight": sizes for name in ("message", "gate", "gate_before")}
        if self.lattice is not None:
            shapes |= self.lattice.tensor_shapes(self.width, self.block, self.candidates)
        if self.confidence:
            shapes |= {"conf_proj.weight": (1, self.confidence), "conf_proj.bias": (1,)}
        return shapes

    def _block_shapes(self, i: int) -> Shapes:
        paired = self.kind == "eagle3" and i == 0
        heads = self.heads_of(i)
        q, kv, read = heads * self.head, self.kv_heads * self.head, self.width * (2 if paired else 1)
        shapes: Shapes = {
            "attn_norm.weight": (self.width,),
            "attn_q.weight": (q, read),
            "attn_k.weight": (kv, read),
            "attn_v.weight": (kv, read),
            "attn_output.weight": (self.width, q),
            "ffn_norm.weight": (self.width,),
            "ffn_gate.weight": (self.ff, self.width),
            "ffn_up.weight": (self.ff, self.width),
            "ffn_down.weight": (self.width, self.ff),
        }
        if not self.own_values:
            del shapes["attn_v.weight"]
        if self.post_norms:
            shapes |= {"post_attention_norm.weight": (self.width,), "post_ffw_norm.weight": (self.width,)}
            shapes |= {"layer_output_scale.weight": (1,)}
        shapes |= {"attn_norm_2.weight": (self.width,)} if paired else {}
        shapes |= {"attn_sinks.weight": (heads,)} if self.sinks else {}
        shapes |= {"attn_gate.weight": (self.gates_of(i), self.width)} if self.gate else {}
        shapes |= {"attn_q_norm.weight": (self.head,), "attn_k_norm.weight": (self.head,)} if self.qk_norm else {}
        shapes |= {"attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)} if self.biases else {}
        if self.transfer:
            shapes |= {"transfer_read.weight": (self.transfer, self.width)}
            shapes |= {"transfer_write.weight": (self.width, self.message)}
        for part in ("attn", "ffn") if self.conv_taps else ():
            shapes |= {f"{part}_conv_base": (2, self.conv_taps, self.width)}
            shapes |= {f"{part}_conv_proj.weight": (2 * self.conv_taps * self.conv_groups, self.width)}
        return shapes | ({"attn_output.bias": (self.width,)} if self.output_bias else {})

    def misfit(self, target: Any, reading: str = "auto") -> Problem | None:
        """Why it cannot draft for a target, or None."""
        info = target.info
        return (
            self._other_model(info)
            or self._other_width(info)
            or self._other_layers(info, reading)
            or self._other_context(info)
            or self._too_large(info)
        )

    def _other_model(self, target: Any) -> Problem | None:
        if self.target_width != target.width:
            fact = f"{self.name}: this {self.kind} head reads hidden states of width {self.target_width}"
            return f"{fact}, {target.name} has {target.width}", "use a head trained for this model"
        if self.vocab not in (0, target.vocab):
            fact = f"{self.name}: this {self.kind} head was made for {self.vocab} tokens"
            return f"{fact}, {target.name} has {target.vocab}", "use a head trained for this model"
        return None

    def _other_width(self, target: Any) -> Problem | None:
        """Matrices that it takes from the target have the target's width."""
        named = (("embedding", self.own_embedding), ("output matrix", self.own_output or self.tied))
        lacking = [name for name, own in named if not own]
        if self.width == target.width or not lacking:
            return None
        fact = f"{self.name}: this {self.kind} head has width {self.width} and no {' and no '.join(lacking)}"
        return f"{fact} of its own; {target.name}'s have width {target.width}", "get a file that holds them"

    def _other_layers(self, target: Any, reading: str) -> Problem | None:
        return resolve_layers(self, target, reading)

    def _other_context(self, target: Any) -> Problem | None:
        if self.block >= target.context:
            fact = f"{self.name}: its blocks have {self.block} tokens, the context of {target.name} is {target.context}"
            return fact, "load the model with a larger --context if it has one, or use another head"
        return None

    def _too_large(self, target: Any) -> Problem | None:
        """A head runs on the target's executor, which may have limits."""
        head_max = target.layer_max.get("head")
        if head_max is not None and self.head > head_max:
            fact = f"{self.name}: its attention has heads of {self.head}"
            return f"{fact}, native kernels run at most {head_max}", "load the model with -o kernels=reference"
        inputs_max = target.layer_max.get("inputs")
        if inputs_max is not None and self.inputs > inputs_max:
            fact = f"{self.name}: it reads {self.inputs} hidden states of each position"
            return f"{fact}, native kernels run at most {inputs_max}", "load the model with -o kernels=reference"
        return None
