"""The page of published drafters, from the table of pairs."""

from __future__ import annotations

from spec_hub.pairs import Pair, pairs

INTRODUCTION = """# Published drafters

Drafters that are published for a target, with the method that reads them and the address where the pair was named.
`spec get DRAFTER` fetches one, `--method best` finds what was fetched.
A row says that the drafter was published, not that it was tried here: sizes and licences are those of its page, and
`unknown` where the page that was read does not name them; `not measured` means that no speedup was measured here.
A method accepts a drafter only if its shapes are those of the target."""


def drafters() -> str:
    """The page."""
    head = "| target | drafter | method | size | licence | measured |\n| --- | --- | --- | --- | --- | --- |"
    return f"{INTRODUCTION}\n\n" + "\n".join([head, *map(_row, pairs())]) + "\n"


def _row(pair: Pair) -> str:
    cells = (
        f"`{pair.target}`".replace("\\.", "."),
        f"[`{pair.drafter}`]({pair.source})",
        f"[`{pair.kind}`](methods/{pair.kind}.md)",
        pair.size,
        pair.license,
        pair.measured,
    )
    return f"| {' | '.join(cells)} |"
