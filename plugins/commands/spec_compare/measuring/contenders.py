"""The contenders with their targets: plain decoding first, once for each set of settings that changes its text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
from spec_commands import common
from spec_commands.common import Settings
from spec_commands.prompts import Prompt

from spec_compare.figures import titles
from spec_compare.figures.titles import LOADING, TEXT
from spec_compare.measuring import prompt_source as chosen_prompts
from spec_compare.measuring.entries import ContenderEntry
from spec_compare.measuring.measure import Baseline, Contender, RequestSettings
from spec_compare.measuring.steering import Steering, name_of_rule
from spec_compare.records.record import PLAIN
from spec_core import Run, Target
from spec_core.commands import PluginInstance, check_plugins
from spec_core.commands import Settings as Resolved
from spec_core.errors import UsageError

IN_DISTRIBUTION = "equal in distribution, not in tokens"
"""Label of a rule that draws with its own noise, at temperatures above 0."""


@attrs.frozen(eq=False)
class ContenderPlan:
    """A contender with its settings and its methods."""

    contender: Contender
    settings: Resolved
    methods: list[str]
    origin: Callable[[str], str]


def check_contenders(
    settings: Settings, entered: list[ContenderEntry], threads: int | None = None, longest: int = 0
) -> dict[Hashable, Target]:
    """The target of every contender, by ``loading_key``: loaded after every chain has accepted its metadata.

    threads: CPU threads where the settings leave the choice open. longest: tokens of the longest prompt of a length
    that the user passed. Raises UsageError, Refused.
    """
    by_key = {loading_key(e.settings): e.settings for e in entered or [ContenderEntry(settings, [])]}
    described = {key: common.describe_model(own) for key, own in by_key.items()}
    for key, own in by_key.items():
        _check_length(longest, own["max_tokens"], described[key].target)
    used: set[str] = set()
    for entry in (e for e in entered if e.methods):
        with _name_model(entry.settings["model"], len(described) > 1):
            used |= {c.name for c in _check_fit(entry, described[loading_key(entry.settings)].target)}
    common.check_used(settings, used)
    return {
        key: common.load_target(described[key], **({"threads": threads} if threads and not own["threads"] else {}))
        for key, own in by_key.items()
    }


def _check_length(longest: int, max_tokens: int, target: Target) -> None:
    """Raise UsageError for a length that leaves no room for a text in the context."""
    if longest and longest + max_tokens > target.info.context:
        raise UsageError(
            f"prompts of {longest} tokens with {max_tokens} more do not fit into {target.info.name}, whose context has "
            f"{target.info.context}",
            hint="pass smaller --lengths or -n, or a larger --context if the model allows one",
        )


def _check_fit(entry: ContenderEntry, target: Target) -> list[PluginInstance]:
    """The plugins of a contender. Raises UsageError, Refused."""
    own = entry.settings
    return check_plugins(
        target, entry.methods, own["rule"], own["rollback"], common.plugin_settings(own), own["control"]
    )


@contextmanager
def _name_model(model: str, several: bool) -> Iterator[None]:
    """Add the model to errors, if there are several."""
    try:
        yield
    except UsageError as error:
        if not several:
            raise
        raise type(error)(f"on {model}: {error.reason}", hint=error.hint) from error


def loading_key(settings: Settings) -> Hashable:
    """Key that is equal for settings that load the same target in the same way."""
    return tuple(settings[name] for name in LOADING)


def text_of(settings: Settings) -> Hashable:
    """Key that is equal for settings under which plain decoding gives the same text."""
    return (loading_key(settings), *(settings[name] for name in TEXT))


def entrants(
    settings: Settings,
    entered: list[ContenderEntry],
    targets: dict[Hashable, Target],
    prompts: list[Prompt],
    request_settings: RequestSettings,
) -> list[ContenderPlan]:
    """Plain decoding of every set of settings that is used, then the contenders. Raises UsageError for equal names."""
    setups: dict[Hashable, Baseline] = {}
    steering = Steering()
    places = titles.places({e.settings["model"] for e in [ContenderEntry(settings, []), *entered]})
    plain: list[ContenderPlan] = []
    keys: list[Hashable] = []
    for entry in entered or [ContenderEntry(settings, [])]:
        own = targets[loading_key(entry.settings)]
        steers = steering.is_steered(entry.settings, own)
        key = text_of(entry.settings), steering.key(entry.settings) if steers else None
        keys.append(key)
        if key not in setups:
            name = baseline(settings, entry.settings, places, steers)
            setups[key] = setup(name, entry.settings, own, prompts, request_settings)
            plain.append(_plain(setups[key], baseline_settings(settings, entry.settings, steers), steers))
    named = zip(named_all(entered, places), entered, keys, strict=bool(entered))
    contenders = [*plain, *(_entrant(name, entry, setups[key]) for name, entry, key in named if entry.methods)]
    for name, times in Counter(e.contender.name for e in contenders).items():
        if times > 1:
            raise UsageError(f"{times} contenders are named {name!r}", hint="give each a name, or pass it once")
    return contenders


def baseline(base: Settings, own: Settings, places: Mapping[Any, str], steered: bool = False) -> str:
    """The name of plain decoding with these settings: how they differ from the command's, and a rule that steers."""
    different = [(name, own[name]) for name in (*LOADING, *TEXT) if own[name] != base[name]]
    steering = [f"rule={own['rule']}"] * steered
    return " ".join([PLAIN, *(_setting(*one, places) for one in different), *steering])


def setup(name: str, own: Settings, target: Target, prompts: list[Prompt], settings: RequestSettings) -> Baseline:
    """The prompts and request settings of contenders with these settings. name: of their plain decoding."""
    own_terms = attrs.evolve(settings, max_tokens=own["max_tokens"], sampling=common.sampling_of(own), seed=own["seed"])
    return Baseline(name, target, own_terms, chosen_prompts.fitting_prompts(prompts, target, own_terms))


def named_all(entered: list[ContenderEntry], places: Mapping[Any, str]) -> list[str]:
    """The names of the contenders: made from methods if the user gave none, then what a table or sweep set."""
    chain_names = titles.names([e.methods for e in entered])
    return [
        " ".join([e.name or name, *(_setting(*one, places) for one in e.suffix)])
        for e, name in zip(entered, chain_names, strict=True)
    ]


def _setting(name: str, value: Any, places: Mapping[Any, str]) -> str:
    return f"{name}={places[value] if name == 'model' else titles.value_text(value)}"


def baseline_settings(base: Settings, own: Settings, steered: bool = False) -> Settings:
    """The command's settings, with a contender's settings that change the plain text."""
    rule = ["rule", *(name for name in own.table if name.startswith(f"{name_of_rule(own)}."))] if steered else []
    return Resolved({**base.table, **{name: own.table[name] for name in (*LOADING, *TEXT, *rule)}})


def _plain(baseline: Baseline, settings: Settings, steered: bool) -> ContenderPlan:
    """Plain decoding, without the rule, or under a rule that steers the text."""
    contender = Contender(baseline.baseline, _maker(baseline, settings, [], steered), baseline, remembers=False)
    return ContenderPlan(contender, settings, [], ContenderEntry(settings, []).origin)


def _entrant(name: str, entry: ContenderEntry, baseline: Baseline) -> ContenderPlan:
    contender = Contender(name, _maker(baseline, entry.settings, entry.methods), baseline)
    return ContenderPlan(contender, entry.settings, entry.methods, entry.origin)


def _maker(baseline: Baseline, settings: Settings, methods: list[str], steered: bool = False) -> Callable[[], Run]:
    """Maker of runs. No run reuses rows of an earlier prompt; of an earlier turn only if the user asks for it."""
    shape: dict[str, Any] = {
        "reuse": baseline.request_settings.reuse_turns,
        "max_sequences": baseline.request_settings.batch,
    }
    return lambda: common.run_of(baseline.target, settings, methods, judged=steered or bool(methods), **shape)


def labels(runs: dict[str, Run], entered: list[ContenderPlan]) -> dict[str, str]:
    """{contender: why its tokens may differ from plain decoding's}; contenders that may not differ are left out."""
    exactness = {}
    for contender in (e.contender for e in entered):
        run, name = runs[contender.name], contender.name
        if run.stats.lossy:
            exactness[name] = f"LOSSY: {run.stats.lossy}"
        elif contender.setup.request_settings.sampling.temperature > 0 and name != contender.baseline and _private(run):
            exactness[name] = IN_DISTRIBUTION
    return exactness


def _private(run: Run) -> bool:
    return any(c.compat.noise == "private" for c in run.plugins)
