"""Spans of OpenTelemetry, one for each text, with the names that its conventions have for generative models."""

from __future__ import annotations

from time import perf_counter, time_ns
from typing import Any

from spec_core import Result, UsageError
from spec_serve.job import Job


class Tracing:
    """Called with every text that ends. Where spans go is said by OpenTelemetry's own environment variables."""

    def __init__(self, model: str, provider: Any = None) -> None:
        """provider: of spans; None is one that exports as ``OTEL_EXPORTER_OTLP_ENDPOINT`` says. Raises UsageError."""
        self.model = model
        self.tracer = (provider or exporting()).get_tracer("spec_serve")

    def __call__(self, job: Job, result: Result) -> None:
        now = time_ns() - int(1e9 * perf_counter())  # zero of the clock that a job's times have
        span = self.tracer.start_span("chat", start_time=now + int(1e9 * job.asked), attributes=self._of(job, result))
        if job.first:
            span.add_event("first token", timestamp=now + int(1e9 * job.first))
        span.end(end_time=now + int(1e9 * (job.last or job.asked)))

    def _of(self, job: Job, result: Result) -> dict[str, Any]:
        return {
            "gen_ai.system": "spec-core",
            "gen_ai.request.model": self.model,
            "gen_ai.response.id": job.request.name,
            "gen_ai.response.finish_reasons": [result.finish_reason],
            "gen_ai.usage.input_tokens": result.prompt_tokens,
            "gen_ai.usage.output_tokens": len(result.tokens),
            "spec.cached_tokens": result.reused,
            "spec.draft_tokens": result.stats["drafted"],
            "spec.accepted_draft_tokens": result.stats["accepted"],
        }


def exporting() -> Any:
    """A provider of spans that sends them to the collector of the environment."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise UsageError(
            f"serve.traces needs OpenTelemetry: {error}", hint="install the extra: pip install 'spec-core[traces]'"
        ) from error
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
