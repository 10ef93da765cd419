"""llama-server's ``/slots`` and ``/props``, and its names for what a request was resolved to."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from spec_commands.text_equality import may_differ
from starlette.responses import Response

from spec_core import Request, Run
from spec_core.commands import DEFAULT
from spec_core.toolkit import image_encoder
from spec_serve.engine import Engine
from spec_serve.errors import ApiError
from spec_serve.generation_params import SAMPLING, defaults
from spec_serve.job import Job
from spec_serve.routes import api_router, refusals
from spec_serve.server_config import ServerConfig, name_of_model, without_folders
from spec_serve.service import EngineOf, Json, TermsOf
from spec_serve.stream import JsonPieces, encode_pieces
from spec_serve.threads import write_in_thread

router = api_router("llama-server")
OFF = {
    "n_keep": 0, "min_keep": 0, "typical_p": 1.0, "top_n_sigma": -1.0, "xtc_probability": 0.0, "dynatemp_range": 0.0,
    "mirostat": 0, "dry_multiplier": 0.0, "adaptive_target": -1.0, "adaptive_decay": 0.9, "lora": [],
}  # fmt: skip
"""Settings of llama-server that have no form here, with the values that turn them off."""


SLOT = 64
"""Size of a slot without its biases, in characters of text that take as long."""


class Slot(BaseModel):
    """The other fields are there while a text runs in it."""

    id: int
    n_ctx: int
    speculative: bool
    is_processing: bool
    id_task: int | None = None
    n_prompt_tokens: int | None = None
    n_prompt_tokens_processed: int | None = None
    n_prompt_tokens_cache: int | None = None
    params: dict[str, Any] | None = None
    next_token: list[dict[str, Any]] | None = None


class Props(BaseModel):
    default_generation_settings: dict[str, Any]
    total_slots: int
    model_alias: str
    model_path: str
    modalities: dict[str, bool]
    chat_template: str
    build_info: str
    speculative: dict[str, Any]
    settings: dict[str, Any]


@router.get("/slots", response_model=list[Slot], responses=refusals(503))
async def list_slots(engine: EngineOf, config: TermsOf, fail_on_no_slot: str = "") -> Response:
    """State of every slot. fail_on_no_slot: answer 503 if all of them are busy."""
    size = SLOT * len(engine.open) + sum(len(job.request.sampling.logit_bias) for job in list(engine.open))
    slots_now, answer = await write_in_thread(size, _describe_slots, engine, config)
    if fail_on_no_slot and all(slot["is_processing"] for slot in slots_now):
        raise ApiError(503, "no slot is free", code="unavailable")
    return answer


def _describe_slots(engine: Engine, config: ServerConfig) -> tuple[list[dict[str, Any]], Response]:
    """The slots, and the answer with them."""
    described = slots(engine, config)
    return described, JsonPieces(encode_pieces(described))


@router.get("/props", response_model=Props)
async def get_props(config: TermsOf) -> Response:
    """Settings with their origins."""
    return Json(props(config))


def generation(request: Request, config: ServerConfig) -> dict[str, Any]:
    """``generation_settings``: what a request was resolved to."""
    sampling = request.sampling
    names = {"repetition_penalty": "repeat_penalty"}
    off = request.draft_max == 0 or request.methods == ()
    return {
        **{names.get(name, name): getattr(sampling, name) for name in SAMPLING},
        "seed": request.seed,
        "stop": list(request.stop),
        "max_tokens": request.max_tokens,
        "n_predict": request.max_tokens,
        "ignore_eos": request.ignore_eos,
        "n_probs": sampling.logprobs or 0,
        "logit_bias": _biases(request, config),
        "cache_prompt": request.reuse,
        **OFF,
        "speculative.types": [] if off else list(_types(request, config)),
        "speculative.n_max": config.run.settings.draft_max if request.draft_max is None else request.draft_max,
        "speculative.n_min": request.draft_min,
        "speculative.p_min": request.confidence_min,
        "speculative.control": control(request, config.run),
    }


def _biases(request: Request, config: ServerConfig) -> list[dict[str, Any]]:
    """Biases of tokens, null for forbidden ones, among them ends of the text if they are ignored."""
    ignored = sorted(config.target.info.eog) if request.ignore_eos else []
    biases = {token: float("-inf") for token in ignored} | dict(request.sampling.logit_bias)
    return [{"token": t, "bias": b if b > float("-inf") else None} for t, b in biases.items()]


def control(request: Request, run: Run) -> str:
    """The controller that limits its drafts, ``fixed`` where none does."""
    return next((c.name for c in run.plugins if c.controls), "fixed") if request.control else "fixed"


def _types(request: Request, config: ServerConfig) -> list[str]:
    names = [chosen.name for chosen in config.run.plugins if chosen.name in config.run.drafters]
    return [name for name in names if request.methods is None or name in request.methods]


def slots(engine: Engine, config: ServerConfig) -> list[dict[str, Any]]:
    """``/slots``: one entry for each sequence that may run at once."""
    busy = {job.slot: job for job in list(engine.open) if job.slot >= 0}
    return [_slot(i, busy.get(i), config) for i in range(config.run.settings.max_sequences)]


def _slot(number: int, job: Job | None, config: ServerConfig) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": number,
        "n_ctx": config.context,
        "speculative": bool(config.run.drafters),
        "is_processing": job is not None,
    }
    seq = job.seq if job is not None else None
    if job is None or seq is None:
        return body
    decoded = len(seq.tokens) - seq.prompt_len
    return body | {
        "id_task": job.number,
        "n_prompt_tokens": seq.prompt_len,
        "n_prompt_tokens_processed": max(0, min(seq.evaluated, seq.prompt_len) - seq.reused),
        "n_prompt_tokens_cache": seq.reused,
        "params": generation(job.request, config),
        "next_token": [
            {
                "has_next_token": seq.finish is None,
                "has_new_line": False,
                "n_remain": seq.max_tokens - decoded,
                "n_decoded": decoded,
            }
        ],
    }


def _params(config: ServerConfig) -> dict[str, Any]:
    """Defaults of a request; seed -1 is a random one."""
    seed, longest = config.settings.table["seed"], config.settings.table["max_tokens"]
    return {
        **defaults(config),
        "seed": -1 if seed.origin == DEFAULT else seed.value,
        "n_predict": -1 if longest.origin == DEFAULT else longest.value,
    }


def props(config: ServerConfig) -> dict[str, Any]:
    """``/props``: what the server runs, and every setting with its origin."""
    target, run = config.target, config.run
    assert target.tokenizer is not None
    return {
        "default_generation_settings": {"n_ctx": config.context, "params": _params(config)},
        "total_slots": run.settings.max_sequences,
        "model_alias": config.model,
        "model_path": name_of_model(config.settings["model"]),
        "modalities": {"vision": image_encoder(target) is not None, "audio": False},
        "chat_template": target.tokenizer.chat_template or "",
        "build_info": f"spec-core {version('spec-core')}",
        "speculative": {
            "types": [c.name for c in run.plugins if c.name in run.drafters],
            "n_max": run.settings.draft_max,
            "rule": config.settings["rule"] or "coupled",
            "lossy": run.stats.lossy,
            "switched_off": dict(run.stats.switched_off),
            "may_differ": {"greedy": may_differ(run, 0.0), "sampled": may_differ(run, 1.0)},
            "shares_learning": any(c.compat.shares_learning for c in run.plugins),
        },
        "settings": without_folders(config.settings.as_json()),
    }
