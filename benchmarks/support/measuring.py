"""Benchmarks that keep every measurement as a line of JSON, from which a table can be printed again."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.support.recorded import lines


def run(
    parser: argparse.ArgumentParser,
    measure: Callable[[argparse.Namespace], None],
    table: Callable[[Iterable[dict[str, Any]]], list[str]],
) -> None:
    """Measure what is asked for, and print the table of the file."""
    parser.add_argument("--core", type=int, help="where to run; the default is the first that is allowed")
    parser.add_argument("-o", "--output", type=Path, help="lines of JSON, to which measurements are added")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the tables of a file, measure nothing")
    args = parser.parse_args()
    if args.table is None and args.output is None:
        parser.error("give -o FILE or --table FILE")
    if args.table is None:
        measure(args)
    print("\n".join(table(lines(args.table or args.output))))
