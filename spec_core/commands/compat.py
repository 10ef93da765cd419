"""``spec compat``: would this run? From metadata alone: no weight is read, no accelerator taken."""

from __future__ import annotations

from typing import Any

import click

from spec_core.commands import common
from spec_core.errors import SpecError


@click.command()
@common.add(common.MODEL, common.METHODS)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def compat(as_json: bool, **flags: Any) -> int:
    """Say what the target is, what each plugin owns, needs and drafts, and why one refuses."""
    settings = common.settings_of(flags)
    target = common.target_of(settings, weights=False)
    chosen, refused = inspect(target, settings)
    body = {"target": facts(target), "plugins": chosen, "refused": refused}
    click.echo(common.as_json(body) if as_json else lines(body))
    return 2 if refused else 0


def inspect(target: Any, settings: Any) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """What every plugin answers, and all refusals."""
    from spec_core.assemble import check
    from spec_core.errors import Refused

    try:
        plugins = check(
            target, settings["methods"], settings["rule"], settings["rollback"], common.plugin_settings(settings)
        )
    except Refused as error:
        return [], [{"reason": error.reason, "mend": error.mend}]
    except SpecError:
        raise
    return [answer(c) for c in plugins], []


def answer(chosen: Any) -> dict[str, Any]:
    needs = chosen.compat.needs
    wanted = [f"hidden {sorted(needs.hidden)}"] if needs.hidden else []
    wanted += [name for name in ("final", "trees", "all_logits") if getattr(needs, name)]
    wanted += [f"trace {needs.trace}"] if needs.trace else []
    return {
        "name": chosen.name,
        "owns": sorted(chosen.compat.owns),
        "needs": wanted,
        "drafts": sorted(chosen.laws),
        "judges": None if chosen.compat.judges is None else sorted(chosen.compat.judges),
        "lossy": chosen.compat.lossy,
    }


def facts(target: Any) -> dict[str, Any]:
    info = target.info
    memory = {key: info.extras[key] for key in ("weight_bytes", "row_bytes") if key in info.extras}
    return {
        "name": info.name,
        "family": info.family,
        "vocab": info.vocab,
        "width": info.width,
        "layers": info.layers,
        "context": info.context,
        "states": sorted(info.states),
        "dtype": info.dtype,
        "device": info.device,
        **memory,
    }


def lines(body: dict[str, Any]) -> str:
    target = body["target"]
    out = [
        f"{target['name']}: {target['family']}, {target['layers']} layers of {target['width']}, vocabulary {target['vocab']}"
    ]
    out.append(
        f"  context {target['context']}, {target['dtype']} on {target['device']}, state: {', '.join(target['states'])}"
    )
    if "weight_bytes" in target:
        row = target["row_bytes"]
        out.append(f"  weights {target['weight_bytes'] / 2**20:.1f} MiB, cache {row} bytes per token of a sequence")
    for plugin in body["plugins"]:
        said = [f"{what} {', '.join(plugin[what])}" for what in ("owns", "needs", "drafts") if plugin[what]]
        said += [f"lossy: {plugin['lossy']}"] if plugin["lossy"] else []
        out.append(f"{plugin['name']}: {'; '.join(said) or 'nothing'}")
    for refusal in body["refused"]:
        out += ["refused:", *(f"  {line}" for line in refusal["reason"].split("\n")), f"  {refusal['mend']}"]
    return "\n".join(out)
