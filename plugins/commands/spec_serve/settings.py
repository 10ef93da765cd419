"""The server's own settings: where it listens, and the limits that it holds requests to."""

from __future__ import annotations

from typing import Any, Literal

import attrs


def option(default: Any, help: str, low: float | None = None, high: float | None = None) -> Any:
    """A field: default, help text, min and max value."""
    limits = [attrs.validators.ge(low)] if low is not None else []
    limits += [attrs.validators.le(high)] if high is not None else []
    validator = attrs.validators.and_(*limits) if limits else None
    return attrs.field(default=default, metadata={"help": help}, validator=validator)


@attrs.frozen
class ServeSettings:
    """Settings of ``spec serve``."""

    host: str = option("localhost", "address to listen at; 0.0.0.0 is every network of the machine")
    port: int = option(8080, "port to listen at; 0 takes a free one", 0, 65_535)
    api_key: str | None = attrs.field(
        default=None,
        metadata={"help": "key that clients must send as `Authorization: Bearer KEY`"},
        validator=attrs.validators.optional(attrs.validators.min_len(1)),
        repr=False,
    )
    api_key_file: str | None = option(None, "file with a key in every line; each of them is accepted")
    allowed_host: str | None = option(
        None, "other names of this server, separated by commas; without a key only its own names are answered"
    )
    allowed_origin: str | None = option(
        None, "origins whose pages may call this server from a browser, separated by commas; * is every origin"
    )
    ssl_cert_file: str | None = option(None, "certificate (PEM) with which the server speaks HTTPS")
    ssl_key_file: str | None = option(None, "private key (PEM) of the certificate")
    alias: str | None = option(
        None, "name of the model in the API; the default is its location, of a path the last part"
    )
    memory_mib: int = option(0, "max MiB that the server may plan to use; 0 is what the machine has free", 0)
    cache_mib: int = option(
        512, "MiB for rows of ended texts beyond the slots, kept for prompts with the same beginning", 0
    )
    prompt_cache: str | None = option(
        None, "file that keeps the prompt cache across a restart: written at the end, evaluated again at the start"
    )
    strict_model: bool = option(False, "refuse requests that name another model; otherwise any name is accepted")
    lenient: bool = option(False, "ignore fields that are unknown or not supported, with one warning each")
    chat_template: str | None = option(
        None, "chat template in place of the model's: its text, or a name such as chatml"
    )
    chat_template_file: str | None = option(None, "file of a chat template in place of the model's")
    chat_template_kwargs: str | None = option(None, "JSON object with variables of the chat template")
    verbose: bool = option(False, "answers of chats have their prompt as text, in __verbose")
    reasoning_format: Literal["auto", "none", "deepseek", "deepseek-legacy"] = option(
        "auto",
        "where a chat has what the model thinks: reasoning_content (auto, deepseek), content (none), or both "
        "(deepseek-legacy)",
    )
    log: Literal["text", "json"] = option("text", "form of the log's lines: text or json")
    traces: bool = option(False, "send a span of every text to the collector of OpenTelemetry's environment variables")
    queue: int = option(64, "max texts that wait for a slot; more are refused with 429", 0)
    connections: int = option(0, "max connections; 0 is what the process has descriptors for, at most 1024", 0)
    proxy: bool = option(
        False, "a proxy is in front: its connections are not counted as one client's; FORWARDED_ALLOW_IPS says so too"
    )
    handshake_seconds: float = option(10.0, "seconds from a connection to the end of its TLS handshake", 0.1)
    head_seconds: float = option(15.0, "seconds in which the head of a request must arrive", 0.1)
    body_seconds: float = option(60.0, "seconds in which the body of a request must arrive", 0.1)
    body_bytes: int = option(4_194_304, "max bytes of a request body", 1)
    prompt_max: int = option(0, "max tokens of a prompt; 0 is what the context holds", 0)
    picture_pixels: int = option(16_777_216, "max pixels of all pictures of a request", 1)
    picture_seconds: float = option(30.0, "max seconds to read the pictures of a request", 0.1)
    picture_mib: int = option(256, "max MiB that the pictures of all requests hold until these end", 1)
    priority_min: int | None = option(
        None, "lowest priority that a request may have, for a server with several users: lower ones start first"
    )
    n_max: int = option(16, "max texts of one request: prompts times n", 1)
    tools_max: int = option(128, "max tools of a request", 0)
    stop_max: int = option(16, "max stop texts of a request", 0)
    stop_length: int = option(256, "max characters of a stop text", 1)
    logprobs_max: int = option(20, "max tokens whose log-probabilities are reported at a position", 0)
    logprobs_total: int = option(
        131_072, "max log-probabilities of an answer: texts times tokens times those reported at a position", 1
    )
    request_seconds: float = option(0.0, "max seconds of a request, waiting included; 0 is no limit", 0)
    shutdown_seconds: float = option(
        30.0, "seconds that running requests have after SIGTERM; then they are cancelled", 0
    )
