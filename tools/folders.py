"""The picture of docs/architecture.md: folders as boxes, with the stations of one token and of one file."""

from __future__ import annotations

import attrs

from tools import charts
from tools.charts import WIDTH

TOP, HEIGHT, GAP = 62.0, 44.0, 8.0
"""First group, and height and distance of boxes, in pixels."""


@attrs.frozen
class Folder:
    """A box. path: from the root of the repository. token, file: stations of the walks that lie in it."""

    path: str
    token: str = ""
    file: str = ""

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]


@attrs.frozen
class Group:
    """Boxes with a common folder, in rows of ``columns``."""

    path: str
    folders: tuple[Folder, ...]
    columns: int


def _group(path: str, columns: int, *folders: tuple[str, str, str]) -> Group:
    return Group(path, tuple(Folder(f"{path}/{name}", token, file) for name, token, file in folders), columns)


GROUPS = (
    _group(
        "plugins/commands", 4,
        ("spec_cli", "1", "a"), ("spec_serve", "", ""), ("spec_compare", "", ""), ("spec_train", "", ""),
    ),
    _group(
        "plugins/decoding", 4,
        ("spec_methods", "3", ""), ("spec_rules", "", ""), ("spec_rollback", "7", ""), ("spec_control", "", ""),
    ),
    _group(
        "spec_core", 4,
        ("testing", "", ""), ("host", "", ""), ("loop", "2 8", "b"), ("assembly", "", "c"),
        ("toolkit", "", ""), ("contract", "4", ""), ("settings", "", ""), ("sampling", "6", ""),
    ),
    _group(
        "plugins/models/spec_targets", 5,
        ("runtime", "5", "d h"), ("pictures", "", ""), ("architectures", "", "g"), ("tokenizer", "", "f"),
        ("formats", "", "e"),
    ),
    _group(
        "kernels/spec_kernels", 4,
        ("gpu", "", ""), ("native", "5", "h"), ("model", "", "g"), ("ops", "", ""),
    ),
)  # fmt: skip
"""From what is called to what it calls."""


def folders() -> list[Folder]:
    return [folder for group in GROUPS for folder in group.folders]


def figure() -> str:
    """Groups one below the other; a station is a number for the token and a letter for the file."""
    parts, y = [*charts.legend(24, ["station of a token", "station of a file"])], TOP
    for group in GROUPS:
        rows = -(-len(group.folders) // group.columns)
        parts.append(charts.heading(18, y - 6, group.path))
        for index, folder in enumerate(group.folders):
            row, column = divmod(index, group.columns)
            width = (WIDTH - 36 - GAP * (group.columns - 1)) / group.columns
            parts += _box(folder, 18 + column * (width + GAP), y + row * (HEIGHT + GAP), width)
        y += rows * (HEIGHT + GAP) + 22
    about = "Commands call the loop; the loop calls methods, the target and the choice; a target reads files."
    return charts.picture("Folders, and the ways of one token and one file through them", about, parts, y - 14)


def _box(folder: Folder, x: float, y: float, width: float) -> list[str]:
    outline = f'<rect class="line" fill="none" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{HEIGHT}" rx="6"/>'
    parts, left = [outline, charts.text(x + 10, y + 18, folder.name)], x + 10
    for colour, stations in (("a", folder.token), ("b", folder.file)):
        for station in stations.split():
            parts.append(f'<circle class="{colour}" cx="{left + 5:.1f}" cy="{y + 32:.1f}" r="8"/>')
            mark = f'<text fill="#ffffff" x="{left + 5:.1f}" y="{y + 36:.1f}" text-anchor="middle" font-size="11">'
            parts.append(f"{mark}{station}</text>")
            left += 22
    return parts
