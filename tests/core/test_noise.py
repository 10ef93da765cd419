"""Counter-based noise: exact numbers, and the distribution they have."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from toys import chi_square_p

from spec_core.sampling import native
from spec_core.sampling.choose import choose_token, support
from spec_core.sampling.noise import DOMAIN_DRAFT, gumbel, philox, uniform
from spec_core.sampling.parameters import Sampling

pytestmark = pytest.mark.usefixtures("form_of_choice")


KNOWN = {
    "zeros": ("0 0 0 0", "0 0", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    "ones": ("ffffffff " * 4, "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    "pi": ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
}
TABLE = [
    # seed, t, token, stream, u, g
    (0, 0, 0, 0, 0.3990464708182214, 0.08482025126920112),
    (1, 0, 0, 0, 0.8902591729245125, 2.152075435523486),
    (42, 0, 151643, 0, 0.011873147910672954, -1.4891839054355),
    (42, 1, 151643, 0, 0.5900007560056998, 0.6393572300502017),
    (42, 0, 151643, 1, 0.6854251002477053, 0.9736125590372436),
    (0x0123456789ABCDEF, 1000, 31999, 0, 0.6412882872870694, 0.8113088896331733),
]


def words(text: str) -> list[int]:
    return [int(w, 16) for w in text.split()]


def slow_philox(counter: list[int], key: list[int]) -> list[int]:
    """The rounds as published, in Python integers."""
    c, (k0, k1) = counter, key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k1, p0 & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


@pytest.mark.parametrize("name", KNOWN)
def test_philox_gives_the_known_answers(name):
    """Philox4x32-10, the vectors of its authors."""
    from spec_core.sampling.noise import round_keys

    counter, key, expected = (words(text) for text in KNOWN[name])
    got = philox([np.uint64(w) for w in counter], round_keys(key[0] | key[1] << 32))

    assert expected == [int(w) for w in got] == slow_philox(counter, key)


def test_philox_of_many_counters_is_that_of_each():
    """Vectorised and one by one, for words of every size."""
    from spec_core.sampling.noise import round_keys

    counters = np.random.default_rng(0).integers(0, 2**32, (4, 50), dtype=np.uint64)
    got = philox(counters, round_keys(0xFEDCBA9876543210))

    for i in range(50):
        assert slow_philox(counters[:, i].tolist(), [0x76543210, 0xFEDCBA98]) == [int(w[i]) for w in got]


def slow_uniform(seed: int, t: int, token: int, stream: int, domain: int = 0) -> float:
    """The uniform by the module's description: the word of the counter, and the combination of two words."""
    counter, word = token // 64 * 16 + token % 16, token // 16 % 4
    key = [seed & 0xFFFFFFFF, seed >> 32]
    high, low = (slow_philox([counter | half, t, stream, domain], key)[word] for half in (0, 1 << 31))
    return ((high << 20 | low >> 12) + 0.5) / 2**52


@pytest.mark.parametrize("seed, t, token, stream, u, g", TABLE, ids=lambda v: None if isinstance(v, float) else str(v))
def test_uniforms_and_gumbels_are_those_of_the_table(seed, t, token, stream, u, g):
    """Both to the last bit, on every machine; g is -log(-log u)."""
    assert u == uniform(seed, t, np.array([token]), stream)[0] == slow_uniform(seed, t, token, stream)
    assert g == float(gumbel(seed, t, torch.tensor([token]), stream)[0])
    assert math.isclose(g, -math.log(-math.log(u)), rel_tol=0, abs_tol=1e-14)


def test_uniforms_never_reach_0_or_1():
    """From 2^-53 to 1 - 2^-53, so that noise is finite: -3.604 to 36.737."""
    lowest, highest = (0 + 0.5) * 2.0**-52, ((2**26 - 1) * 2.0**26 + (2**26 - 1) + 0.5) * 2.0**-52
    assert (lowest, highest) == (2.0**-53, 1 - 2.0**-53)

    u = uniform(7, 3, np.arange(200_000))
    g = gumbel(7, 3, 200_000)
    assert u.min() >= 2.0**-53 and u.max() <= 1 - 2.0**-53
    assert -math.log(-math.log(lowest)) <= float(g.min()) and float(g.max()) <= -math.log(-math.log(highest)) < 36.74


def test_noise_of_a_token_does_not_depend_on_its_company():
    """Each from its own counter: any ids, in any order."""
    whole = gumbel(5, 9, 10_001)
    ids = torch.tensor([999, 3, 500, 3, 10_000, 4096, 4095])

    assert torch.equal(whole[ids], gumbel(5, 9, ids))


@pytest.mark.parametrize("changed", ["seed", "high-seed", "t", "stream", "domain"])
def test_every_part_of_the_counter_changes_the_noise(changed):
    """Seeds have 64 bits; output position, stream and domain are words of their own."""
    base = {"seed": 1, "t": 2, "ids": 50, "stream": 0, "domain": 0}
    other = {
        "seed": {"seed": 2},
        "high-seed": {"seed": 1 + 2**32},
        "t": {"t": 3},
        "stream": {"stream": 1},
        "domain": {"domain": DOMAIN_DRAFT},
    }[changed]

    assert not (gumbel(**base) == gumbel(**{**base, **other})).any()


DRAWS = {False: 20_000, True: 5_000}
"""Native and Python. 20,000 draws detect one of six tokens 10 % too likely with a power of 0.9, 5,000 one 20 % so.
tests/core/test_choice.py holds both forms to the same bits, so what only many draws show is found natively."""
ROWS = {
    "flat": [0.0] * 6,
    "sharp": [3.0, 0.5, 0.0, -1.0, 0.2, 2.0],
    "one-dominant": [5.0, 0.0, 0.0, 0.0, 0.0, 0.0],
}


@pytest.mark.repeats(3)
@pytest.mark.slow
@pytest.mark.parametrize("name, over", [("flat", "positions"), ("sharp", "seeds"), ("one-dominant", "streams")])
def test_the_winner_has_the_distribution_of_the_row(name, over):
    """Chi-square of draws over consecutive seeds, positions, or streams: see DRAWS."""
    row = torch.tensor(ROWS[name], dtype=torch.float64)
    key = {"seeds": "seed", "positions": "t", "streams": "stream"}[over]
    sampling = Sampling(temperature=1.0)
    counts = np.zeros(len(row))
    for i in range(DRAWS[native.module is None]):
        counts[choose_token(row, sampling, **{"seed": 11, "t": 5, key: i})] += 1

    assert chi_square_p(counts, torch.softmax(row, -1).numpy()) > 1e-4


@pytest.mark.parametrize("cut", [{"top_k": 9}, {"top_p": 0.7}, {"min_p": 0.2}, {"top_k": 20, "top_p": 0.95}], ids=str)
def test_only_the_support_needs_noise(cut):
    """The winner among the tokens left is that of the whole row with all others at minus infinity."""
    rng = torch.Generator().manual_seed(1)
    sampling = Sampling(temperature=0.9, **cut)
    for t in range(300):
        row = torch.randn(200, generator=rng, dtype=torch.float64) * 2
        ids, z = support(row, sampling)
        whole = torch.full((200,), -math.inf, dtype=torch.float64)
        whole[ids] = z

        assert int((whole + gumbel(3, t, 200)).argmax()) == choose_token(row, sampling, 3, t)


@pytest.mark.slow
def test_two_readers_of_the_noise_agree_as_often_as_they_can():
    """argmax(log p + g) = argmax(log q + g) with probability sum_i 1 / sum_j max(p_j/p_i, q_j/q_i) (2408.07978)."""
    p = torch.tensor([0.5, 0.2, 0.2, 0.1], dtype=torch.float64)
    q = torch.tensor([0.3, 0.4, 0.1, 0.2], dtype=torch.float64)
    expected = sum(1 / torch.maximum(p / p[i], q / q[i]).sum().item() for i in range(4))
    one = Sampling(temperature=1.0)
    n = 6_000

    agree = sum(choose_token(p.log(), one, 4, t) == choose_token(q.log(), one, 4, t) for t in range(n)) / n

    assert abs(agree - expected) < 4 * math.sqrt(expected * (1 - expected) / n)
