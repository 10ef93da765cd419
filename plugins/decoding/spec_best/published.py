"""What else exists for a model: published drafters that are not in the cache, and the commands that fetch them."""

from __future__ import annotations

from collections.abc import Container

from spec_hub.cache import find_cached
from spec_hub.hub_name import HubName
from spec_hub.pairs import published_pairs, target_names

from spec_core import TargetInfo

SHOWN_MAX = 3


def describe_published(info: TargetInfo, chosen: Container[str]) -> list[str]:
    """Describe published drafters that were not chosen and are not in the cache. chosen: locations in use."""
    pairs = [
        pair
        for pair in published_pairs(target_names(info.name, info.file))
        if pair.drafter not in chosen and find_cached(HubName(pair.drafter)) is None
    ]
    if not pairs:
        return []
    listed = ", ".join(f"{pair.kind} (spec get {pair.drafter})" for pair in pairs[:SHOWN_MAX])
    more = f", and {len(pairs) - SHOWN_MAX} more" if len(pairs) > SHOWN_MAX else ""
    return [f"published for it: {listed}{more}"]
