"""``/metrics`` for Prometheus: our names, and llama-server's for what it counts too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from spec_serve.engine import Engine

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
TIMES = {
    "time_to_first_token_seconds": "From the arrival of a request to its first token.",
    "time_per_output_token_seconds": "Of one text: from its first token to its end, by tokens after the first.",
    "request_seconds": "From the arrival of a request to its end.",
}


class Metrics:
    """Reads the engine's counters whenever it is asked: they grow while requests run."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.registry = CollectorRegistry()
        self.registry.register(self)  # type: ignore[arg-type]
        ProcessCollector(registry=self.registry)
        self._times = {
            name: Histogram(f"spec:{name}", help_text, registry=self.registry, buckets=SECONDS)
            for name, help_text in TIMES.items()
        }
        engine.counters.observers.append(self._observe)

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def of(self, replica: str) -> list[Metric]:
        """The metrics as values, with a label that names this server among several."""
        families = list(self.registry.collect())
        for family in families:
            family.samples = [
                sample._replace(labels={**sample.labels, "replica": replica}) for sample in family.samples
            ]
        return families

    def _observe(self, name: str, seconds: float) -> None:
        self._times[name].observe(seconds)

    def collect(self) -> Iterator[Metric]:
        yield from self._texts()
        yield from self._drafts()
        yield from self._as_llama_server()

    def _texts(self) -> Iterator[Metric]:
        counts, engine = self.engine.counters, self.engine
        ended = CounterMetricFamily("spec:requests", "Ended texts by reason.", labels=["finish_reason"])
        for reason, n in list(counts.requests.items()):
            ended.add_metric([reason], n)
        yield ended
        yield _counter("spec:prompt_tokens", "Prompt tokens of texts that began.", counts.prompt)
        yield _counter("spec:cached_prompt_tokens", "Prompt tokens whose rows were reused.", counts.cached)
        yield _counter("spec:generation_tokens", "Generated tokens.", counts.generated)
        waiting = engine.waiting
        yield GaugeMetricFamily("spec:requests_running", "Texts that have a slot.", len(engine.open) - waiting)
        yield GaugeMetricFamily("spec:requests_waiting", "Texts that wait for a slot.", waiting)
        kept = engine.run.free_slots
        yield GaugeMetricFamily("spec:prompt_cache_texts", "Ended texts whose rows are kept.", len(kept))
        rows = sum(min(slot.evaluated, slot.reserved or slot.evaluated) for slot in kept)
        yield GaugeMetricFamily("spec:prompt_cache_tokens", "Rows of ended texts that are kept.", rows)
        most = engine.run.settings.cache_tokens
        yield GaugeMetricFamily("spec:prompt_cache_tokens_max", "Rows that may be kept beyond the slots.", most)
        off = GaugeMetricFamily("spec:method_switched_off", "Methods that failed and draft no more.", labels=["method"])
        switched_off = dict(engine.run.stats.switched_off)
        for name in sorted({*engine.run.drafters, *switched_off}):
            off.add_metric([name], name in switched_off)
        yield off

    def _drafts(self) -> Iterator[Metric]:
        methods = dict(self.engine.counters.methods)
        for name, help_text, of in (
            ("num_drafts", "Drafts that were verified.", lambda m: m.drafts),
            ("num_draft_tokens", "Tokens of these drafts.", lambda m: m.drafted),
            ("num_accepted_tokens", "The accepted ones among them.", lambda m: m.accepted),
        ):
            metric = CounterMetricFamily(f"spec:spec_decode_{name}", help_text, labels=["method"])
            for method, counts in methods.items():
                metric.add_metric([method], of(counts))
            yield metric
        yield _per_position("spec:spec_decode_num_accepted_tokens_per_pos", "Accepted", methods, "kept")
        yield _per_position("spec:spec_decode_position_drafted", "Drafted", methods, "reached")

    def _as_llama_server(self) -> Iterator[Metric]:
        counts, methods = self.engine.counters, list(self.engine.counters.methods.values())
        waiting = self.engine.waiting
        total = lambda name: sum(getattr(m, name) for m in methods)
        for name, value in (
            ("prompt_tokens", counts.prompt - counts.cached),
            ("prompt_tokens_cached", counts.cached),
            ("prompt_seconds", counts.prompt_seconds),
            ("tokens_predicted", counts.generated),
            ("tokens_predicted_seconds", counts.predicted_seconds),
            ("n_decode", counts.forwards),
            ("spec_decode_num_drafts", total("drafts")),
            ("spec_decode_num_draft_tokens", total("drafted")),
            ("spec_decode_num_accepted_tokens", total("accepted")),
        ):
            yield _counter(f"llamacpp:{name}", "As llama-server counts it.", value)
        for name, value in (
            ("n_tokens_max", counts.longest),
            ("prompt_tokens_seconds", _rate(counts.prompt - counts.cached, counts.prompt_seconds)),
            ("predicted_tokens_seconds", _rate(counts.generated, counts.predicted_seconds)),
            ("n_busy_slots_per_decode", _rate(counts.parts, counts.forwards)),
        ):
            yield GaugeMetricFamily(f"llamacpp:{name}", "As llama-server counts it.", value)
        yield GaugeMetricFamily(
            "llamacpp:requests_processing", "Texts that have a slot.", len(self.engine.open) - waiting
        )
        yield GaugeMetricFamily("llamacpp:requests_deferred", "Texts that wait for a slot.", waiting)
        positions = CounterMetricFamily(
            "llamacpp:spec_decode_num_accepted_tokens_per_pos", "As llama-server counts it.", labels=["position"]
        )
        for position in sorted({i for m in methods for i in list(m.kept)}):
            positions.add_metric([str(position)], sum(m.kept[position] for m in methods))
        yield positions


class Together:
    """The metrics of several servers. servers: what ``Metrics.of`` gives for each."""

    def __init__(self, servers: Iterable[list[Metric]]) -> None:
        self.families: dict[str, Metric] = {}
        for family in chain.from_iterable(servers):
            self.families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            self.families[family.name].samples += family.samples

    def collect(self) -> Iterator[Metric]:
        yield from self.families.values()

    def text(self) -> bytes:
        return generate_latest(self)  # type: ignore[arg-type]


def _counter(name: str, help_text: str, value: float) -> Metric:
    return CounterMetricFamily(name, help_text, value=value)


def _rate(amount: float, of: float) -> float:
    return amount / of if of else 0.0


def _per_position(name: str, help_text: str, methods: dict[str, Any], of: str) -> Metric:
    metric = CounterMetricFamily(name, f"{help_text} tokens by position in the draft.", labels=["method", "position"])
    for method, counts in methods.items():
        for position, n in sorted(getattr(counts, of).items()):
            metric.add_metric([method, str(position)], n)
    return metric
