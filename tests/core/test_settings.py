"""Settings: flag over environment over file over default, each value with its origin, unknown names refused."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest

from spec_core import Sampling, UsageError, load
from spec_core.settings.environment import find_misspelt, from_environment
from spec_core.settings.file import read_file
from spec_core.settings.resolve import resolve_layers
from spec_core.settings.tables import RunSettings, TextSettings

PLUGINS = {"ngram", "draft-model"}


def test_the_strongest_layer_wins_and_is_remembered():
    settings = resolve_layers(
        {"draft_max": "3"},
        {"SPEC_DRAFT_MAX": "4", "SPEC_MAX_SEQUENCES": "2"},
        {"draft_max": 5, "max_sequences": 6, "prefill_chunk": 7},
        PLUGINS,
    )

    assert {
        n: (settings[n], settings.table[n].origin) for n in ("draft_max", "max_sequences", "prefill_chunk", "reuse")
    } == {
        "draft_max": (3, "flag"),
        "max_sequences": (2, "environment"),
        "prefill_chunk": (7, "spec.toml"),
        "reuse": (True, "default"),
    }


def test_values_of_a_plugin_come_from_all_layers():
    settings = resolve_layers(
        {"ngram.n_max": "4"}, {"SPEC_DRAFT_MODEL__P_MIN": "0.25"}, {"ngram": {"n_min": 2}}, PLUGINS
    )

    assert settings.values_of("ngram") == {"n_max": "4", "n_min": 2}
    assert settings.values_of("draft-model") == {"p_min": "0.25"}


def test_flags_that_were_not_given_override_nothing():
    assert resolve_layers({"temperature": None}, {}, {"temperature": 0.5})["temperature"] == 0.5


@pytest.mark.parametrize("text", ["true", "yes", "on", "1", "TRUE"])
def test_booleans_are_read_as_written(text):
    assert resolve_layers({}, {"SPEC_REUSE": text}, {})["reuse"] is True
    assert resolve_layers({}, {"SPEC_REUSE": "false"}, {})["reuse"] is False


@pytest.mark.parametrize("value", ["3.5", "many", True, "-1"], ids=str)
def test_an_unfit_number_names_the_setting(value):
    with pytest.raises(UsageError, match="draft_max"):
        resolve_layers({"draft_max": value}, {}, {})


@pytest.mark.parametrize(
    ("layer", "name"), [({"drft_max": 1}, "drft_max"), ({"ngrm.n": 1}, "ngrm"), ({"ngrm": {"n": 1}}, "ngrm")], ids=str
)
def test_an_unknown_name_is_refused_with_the_nearest_known(layer, name):
    with pytest.raises(UsageError, match=name) as error:
        resolve_layers({}, {}, layer, PLUGINS)

    assert {"drft_max": "draft_max", "ngrm": "ngram"}[name] in error.value.hint


def test_a_choice_lists_what_there_is():
    with pytest.raises(UsageError, match="raise, isolate"):
        resolve_layers({"on_error": "ignore"}, {}, {})


def test_methods_are_a_list_in_the_file_and_a_line_in_the_environment():
    assert resolve_layers({}, {}, {"methods": ["ngram", "draft-model=x"]})["methods"] == ("ngram", "draft-model=x")
    assert resolve_layers({}, {"SPEC_METHODS": "ngram,draft-model=x"}, {})["methods"] == ("ngram", "draft-model=x")


def test_variables_of_other_programs_are_not_read():
    """Variables of other programs with the same prefix are ignored."""
    foreign = {"PATH": "x", "SPEC_CONFIG": "y", "SPEC_HOME": "/opt", "SPEC_CPU__RATE": "1", "SPEC_DRFT_MAX": "1"}

    assert from_environment({**foreign, "SPEC_MAX_TOKENS": "3"}, PLUGINS) == {"max_tokens": "3"}
    assert resolve_layers({}, foreign, {}, PLUGINS)["draft_max"] == 16


def test_a_variable_near_one_of_ours_is_told_of():
    """A near miss of a known variable gives a warning; others are ignored."""
    foreign = {"SPEC_HOME": "/opt", "SPEC_NAME": "x", "SPEC_CPU__RATE": "1", "SPEC_SEED": "1", "SPEC_NGRAM__N_MAX": "2"}

    assert find_misspelt(foreign, PLUGINS) == {}
    assert find_misspelt({"SPEC_DRFT_MAX": "1", "SPEC_NGRM__N_MAX": "2", "SPEC_DEBG": "1"}, PLUGINS) == {
        "SPEC_DRFT_MAX": "SPEC_DRAFT_MAX",
        "SPEC_NGRM__N_MAX": "SPEC_NGRAM__N_MAX",
        "SPEC_DEBG": "SPEC_DEBUG",
    }


FOUND_FROM = {
    'model = "m.gguf"': {"model": "there/m.gguf"},
    'model = "/m.gguf"': {"model": "/m.gguf"},
    'model = "zoo:pico"': {"model": "zoo:pico"},
    'methods = ["ngram", "draft-model=d.gguf"]': {"methods": ["ngram", "draft-model=there/d.gguf"]},
    'methods = "ngram,draft-model=d.gguf"': {"methods": ["ngram", "draft-model=there/d.gguf"]},
    'methods = ["ngram+draft-model=d.gguf"]': {"methods": ["ngram+draft-model=there/d.gguf"]},
    'methods = ["draft-model=zoo:pico-draft"]': {"methods": ["draft-model=zoo:pico-draft"]},
    '[draft-model]\nfile = "d.gguf"\np_min = 0.5': {"draft-model": {"file": "there/d.gguf", "p_min": 0.5}},
}


@pytest.mark.parametrize("text", FOUND_FROM)
def test_paths_in_a_file_are_relative_to_it(tmp_path, monkeypatch, text):
    """Independent of the working directory; locations with a scheme are not changed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "spec.toml").write_text(text)

    assert read_file(Path("there/spec.toml")) == FOUND_FROM[text]


def test_a_settings_file_that_is_no_toml_is_refused(tmp_path):
    (tmp_path / "spec.toml").write_text("a = = 1")
    with pytest.raises(UsageError, match=r"spec\.toml"):
        read_file(tmp_path / "spec.toml")


def test_a_run_checks_its_settings_too():
    with pytest.raises(ValueError, match="max_sequences"):
        RunSettings(max_sequences=0)


@pytest.mark.parametrize("name", ["cache", "location", "options"])
def test_a_load_option_that_nobody_knows_is_refused_by_name(name):
    """Loaders pass options on, so the name would end in a TypeError of a function that the caller never named."""
    with pytest.raises(UsageError) as raised:
        load("zoo:pico", **{name: "float32"})
    assert raised.value.reason == f"target 'zoo' has no load option {name!r}"
    assert raised.value.hint is not None and "cache_dtype" in raised.value.hint


@pytest.mark.parametrize("threads", [1025, 1 << 31, -1])
def test_a_number_of_threads_out_of_range_is_refused(threads):
    """From every layer, and by ``load`` itself, which would end in an error of torch."""
    limit = "it must be >= 0" if threads < 0 else "it must be <= 1024"
    for ask in (lambda: resolve_layers({"threads": str(threads)}, {}, {}), lambda: load("zoo:pico", threads=threads)):
        with pytest.raises(UsageError) as raised:
            ask()
        assert re.fullmatch(f"threads = '?{threads}'? does not fit: {limit}", raised.value.reason)


def test_sampling_parameters_of_one_number_are_settings_of_a_text():
    """Commands and engines read ``Sampling.NAMES``: a parameter that it lacks would be ignored by all of them."""
    settings = [field.name for field in attrs.fields(TextSettings)]
    parameters = [field.name for field in attrs.fields(Sampling)]

    assert sorted(settings) == sorted(["max_tokens", "seed", *Sampling.NAMES])
    assert sorted(parameters) == sorted([*Sampling.NAMES, "logit_bias", "logprobs"])
