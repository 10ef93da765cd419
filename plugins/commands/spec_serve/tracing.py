"""Spans of OpenTelemetry, one for each text, as its semantic conventions for generative models describe them.

A span continues the trace of its request: header ``traceparent`` of W3C Trace Context.
"""

from __future__ import annotations

import os
from time import perf_counter, time_ns
from typing import Any

from spec_core import Result, UsageError
from spec_serve.job import Job

CHATS = ("/chat/completions", "/messages", "/responses", "/chat")
"""Ends of routes that answer a conversation; the others continue a text."""
SERVICE = "service.name"
HINT = "install the extra: pip install 'spec-core[traces]'"


class Tracing:
    """Called with every text that ends. OpenTelemetry's own environment variables say where spans go."""

    def __init__(self, model: str, provider: Any = None) -> None:
        """provider: of spans; None is one that exports as ``OTEL_EXPORTER_OTLP_ENDPOINT`` says. Raises UsageError."""
        self.model = model
        self.tracer = (provider or exporting_provider()).get_tracer("spec_serve")

    def __call__(self, job: Job, result: Result) -> None:
        """Export the span of a finished text."""
        self._export(job, self._request(job) | self._answer(job, result), "")

    def fail(self, job: Job, error: Exception) -> None:
        """Export the span of a text that ended with an error."""
        kind = type(error).__name__
        self._export(job, self._request(job) | {"error.type": kind}, kind)

    def _export(self, job: Job, attributes: dict[str, Any], error: str) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        now = time_ns() - int(1e9 * perf_counter())  # zero of the clock that a job's times have
        carrier = {"traceparent": job.info.traceparent, "tracestate": job.info.tracestate}
        span = self.tracer.start_span(
            f"{attributes['gen_ai.operation.name']} {self.model}",
            context=TraceContextTextMapPropagator().extract({k: v for k, v in carrier.items() if v}),
            kind=SpanKind.SERVER,
            start_time=now + int(1e9 * job.asked),
            attributes=attributes,
        )
        if job.first:
            span.add_event("first token", timestamp=now + int(1e9 * job.first))
        if error:
            span.set_status(Status(StatusCode.ERROR, error))
        span.end(end_time=now + int(1e9 * (job.last or job.asked)))

    def _request(self, job: Job) -> dict[str, Any]:
        sampling, request = job.request.sampling, job.request
        attributes = {
            "gen_ai.operation.name": operation_of(job.info.route),
            "gen_ai.provider.name": "spec-core",
            "gen_ai.request.model": self.model,
            "gen_ai.request.max_tokens": request.max_tokens,
            "gen_ai.request.seed": request.seed & (1 << 63) - 1,
            "gen_ai.request.temperature": sampling.temperature,
            "gen_ai.request.top_p": sampling.top_p,
            "gen_ai.request.top_k": sampling.top_k or None,
            "gen_ai.request.frequency_penalty": sampling.frequency_penalty,
            "gen_ai.request.presence_penalty": sampling.presence_penalty,
            "gen_ai.response.id": request.name,
            "http.route": job.info.route or None,
            "client.address": job.info.client or None,
            "spec.request_id": job.info.request_id or None,
        }
        return {name: value for name, value in attributes.items() if value is not None}

    def _answer(self, job: Job, result: Result) -> dict[str, Any]:
        return {
            "gen_ai.response.model": self.model,
            "gen_ai.response.finish_reasons": ["deadline" if job.expired else result.finish_reason],
            "gen_ai.usage.input_tokens": result.prompt_tokens,
            "gen_ai.usage.output_tokens": len(result.tokens),
            "gen_ai.usage.cache_read.input_tokens": result.reused,
            "spec.draft_tokens": result.stats["drafted"],
            "spec.accepted_draft_tokens": result.stats["accepted"],
        }


def operation_of(route: str) -> str:
    """Name of the operation of a route: ``chat``, or ``text_completion``."""
    return "chat" if route.endswith(CHATS) else "text_completion"


def exporting_provider() -> Any:
    """A provider of spans that sends them to the collector of the environment."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise UsageError(f"serve.traces needs OpenTelemetry: {error}", hint=HINT) from error
    is_named = "OTEL_SERVICE_NAME" in os.environ or SERVICE in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    provider = TracerProvider(resource=Resource.create({} if is_named else {SERVICE: "spec-serve"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
