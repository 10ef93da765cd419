"""What cannot work inside vLLM is refused before it reads weights: in the launcher, and by its proposer."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from spec_engines.vllm.command import vllm

from spec_core import Refused, UsageError
from tests.support import fake_vllm
from tests.support.hugging_face import directory

HEADS = [("eagle3", "zoo:pico-eagle3"), ("dflash", "zoo:pico-dflash")]
TAPS = r"{}: it needs hidden states between blocks \(.*\); this engine serves tokens, rows of logits, the hidden"


@pytest.fixture
def no_weights(monkeypatch):
    """Reading weights, of a head or of the model, is an error."""

    def read(*_, **__):
        raise AssertionError("weights were read")

    monkeypatch.setattr("spec_core.host.driver.load_weights", read)
    monkeypatch.setattr("safetensors.torch.load_file", read)


@pytest.fixture
def proposer(monkeypatch, no_weights):
    """Makes the proposer for a model of this class."""

    def create_proposer(kind: type, method: str, caching: bool = False, **plugins):
        fake_vllm.install(monkeypatch, pico=kind)
        from spec_engines.vllm.proposer import Proposer

        return Proposer(fake_vllm.config(str(directory("zoo:pico")), [method], caching, **plugins))

    return create_proposer


def serve(method: str, *words: str):
    return CliRunner().invoke(vllm, ["serve", str(directory("zoo:pico")), "--dry-run", "--method", method, *words])


@pytest.mark.parametrize(("method", "file"), HEADS)
def test_a_model_that_gives_no_hidden_states_is_refused_when_vllm_makes_its_proposer(proposer, method, file):
    assert proposer(fake_vllm.Tapped, f"{method}={file}").serves.hidden
    with pytest.raises(Refused, match=TAPS.format(method)):
        proposer(fake_vllm.Untapped, f"{method}={file}")
    assert not proposer(fake_vllm.Untapped, "recycling").serves.hidden


@pytest.mark.parametrize(("method", "file"), HEADS)
def test_a_model_that_gives_no_hidden_states_is_refused_by_the_launcher(monkeypatch, no_weights, method, file):
    fake_vllm.install(monkeypatch, pico=fake_vllm.Tapped)
    assert serve(f"{method}={file}").exit_code == 0
    fake_vllm.install(monkeypatch, pico=fake_vllm.Untapped)
    with pytest.raises(Refused, match=TAPS.format(method)):
        raise serve(f"{method}={file}").exception
    assert serve("recycling").exit_code == 0


def test_a_model_that_vllm_does_not_know_is_refused_by_the_launcher(monkeypatch):
    fake_vllm.install(monkeypatch)
    with pytest.raises(UsageError, match=r"vLLM does not load .*pico: 1 validation error no architecture"):
        raise serve("eagle3=zoo:pico-eagle3").exception


def test_a_method_without_its_weights_is_refused_when_vllm_makes_its_proposer(proposer):
    with pytest.raises(Refused, match="pico has no NextN layer"):
        proposer(fake_vllm.Tapped, "mtp")


@pytest.mark.parametrize("release", ["0.32.0", "0.33.0", "0.33.0+cu129"])
def test_the_runner_without_a_place_for_proposers_is_refused_with_what_to_set(monkeypatch, no_weights, release):
    fake_vllm.install(monkeypatch, release, pico=fake_vllm.Tapped)
    from spec_engines.vllm.proposer import Proposer

    config = fake_vllm.config(str(directory("zoo:pico")), ["ngram"])
    assert Proposer(config)
    config.use_v2_model_runner = True
    with pytest.raises(UsageError, match="model runner V2, which has no place for a proposer") as refused:
        Proposer(config)
    assert "VLLM_USE_V2_MODEL_RUNNER=0" in str(refused.value.hint)


@pytest.mark.parametrize("value", ["1", "2"])
def test_an_environment_that_asks_for_that_runner_is_refused_by_the_launcher(monkeypatch, no_weights, value):
    fake_vllm.install(monkeypatch, "0.33.0", pico=fake_vllm.Tapped)
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "0")
    assert serve("ngram").exit_code == 0
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", value)
    with pytest.raises(UsageError, match="model runner V2, which has no place for a proposer"):
        raise serve("ngram").exception


def test_cached_prefixes_are_refused_for_methods_that_read_every_row(proposer):
    with pytest.raises(UsageError, match="vLLM does not compute those of cached prefixes"):
        proposer(fake_vllm.Tapped, "eagle3=zoo:pico-eagle3", caching=True)
    assert proposer(fake_vllm.Tapped, "ngram", caching=True)
