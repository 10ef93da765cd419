"""Models and draft heads of a hub: ``hub:ORG/NAME[@REVISION][:FILE or quantisation]``, and the command ``spec get``.

Files lie in the cache of ``huggingface_hub``, which other programs share. Only this scheme and ``spec get`` use the
network; the scheme only if the cache lacks the model.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from spec_core import Target


def load(location: str, **options: Any) -> Target:
    """Load ``hub:LOCATION``, from the cache if it is there, with the loader of its files. options: as for that one.

    A file or directory of this whole name is loaded instead. Raises UsageError for a name that the hub does not have,
    HubError if the download fails.
    """
    from spec_core import load as load_model
    from spec_hub.fetch import path_of
    from spec_hub.hub_name import SCHEME, parse_name

    literal = Path(f"{SCHEME}{location}")
    if literal.exists():
        return load_model(literal.absolute(), **options)
    name = parse_name(location)
    path = path_of(name)
    target = load_model(path, **options)
    if path.is_dir():  # its name would be that of its folder, a commit
        target.info = attrs.evolve(target.info, name=name.repository.rpartition("/")[2])
    return target
