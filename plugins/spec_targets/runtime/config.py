"""What a model is, in one value, whatever file it came from."""

from __future__ import annotations

import attrs

from spec_core.errors import UsageError, nearest
from spec_targets.runtime.rope import Scaling


@attrs.frozen
class Arch:
    """Facts of an architecture that no file states.

    permuted: GGUF stores q and k rows so that neighbouring dimensions rotate together; else halves of a head do.
    qk_norm: a norm per head on q and k. biases: q, k and v have biases. moe: every block has experts.
    """

    permuted: bool = False
    qk_norm: bool = False
    biases: bool = False
    moe: bool = False


ARCHS: dict[str, Arch] = {
    "llama": Arch(permuted=True),
    "qwen2": Arch(biases=True),
    "qwen3": Arch(qk_norm=True),
    "qwen3moe": Arch(qk_norm=True, moe=True),
}


def arch_of(name: str, where: str) -> Arch:
    """The facts of an architecture. Raises UsageError for one we do not run."""
    if name not in ARCHS:
        raise UsageError(f"{where}: architecture {name!r} is not supported", mend=f"supported: {nearest(name, ARCHS)}")
    return ARCHS[name]


@attrs.frozen
class Config:
    """Sizes of a dense or mixture-of-experts decoder. head is the width of one attention head."""

    arch: str
    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head: int
    ff: int
    vocab: int
    context: int
    eps: float
    rope_base: float
    turned: int
    scaling: Scaling = Scaling()
    experts: int = 0
    experts_used: int = 0
    normalise: bool = True

    def check(self, where: str) -> None:
        """Raise UsageError for sizes no model can have."""
        for field in ("layers", "width", "heads", "kv_heads", "head", "vocab", "context"):
            value = getattr(self, field)
            if not isinstance(value, int) or not 0 < value < 1 << 24:
                raise UsageError(f"{where}: {field} is {value!r}", mend="the file is damaged; get it again")
        good = self.heads % self.kv_heads == 0 and 0 < self.turned <= self.head and self.turned % 2 == 0
        if not good or not self.eps > 0 or not self.rope_base > 0:
            raise UsageError(
                f"{where}: {self.heads} heads over {self.kv_heads} key heads of {self.head}, {self.turned} turned, "
                f"eps {self.eps}, rope base {self.rope_base} do not fit together",
                mend="the file is damaged; get it again",
            )
        if self.experts and not 0 < self.experts_used <= self.experts:
            raise UsageError(
                f"{where}: {self.experts_used} of {self.experts} experts are used",
                mend="the file is damaged; get it again",
            )
