"""Values of a file to data classes, with every type checked: the file may come from anyone."""

from __future__ import annotations

from typing import Any, TypeVar, get_args, get_origin

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, override

from spec_compare.records.record import Lap, Record, Steps, statistics_of
from spec_core.errors import quote_value

T = TypeVar("T")
LARGEST = 1e300
MAX_DRAFTED = 1 << 20
"""Max drafted tokens of a step in a file."""


def _exactly(kind: type) -> Any:
    def check(value: Any, _: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{kind.__name__} expected, got {type(value).__name__}")
        return value

    return check


def _number(value: Any, _: Any) -> float:
    if type(value) not in (int, float) or not -LARGEST < value < LARGEST:
        raise TypeError(f"a finite number expected, got {quote_value(value)}")
    return float(value)


def _object(cls: type, **options: Any) -> Any:
    """Structure an object of the file as this class."""
    bare: Any = make_dict_structure_fn(cls, converter, **options)

    def structure(value: Any, _: Any) -> Any:
        if type(value) is not dict:
            raise TypeError(f"an object expected, got {type(value).__name__}")
        return bare(value, cls)

    return structure


def _list(kind: Any) -> Any:
    item = get_args(kind)[0]

    def structure(value: Any, _: Any) -> list[Any]:
        if type(value) is not list:
            raise TypeError(f"list expected, got {type(value).__name__}")
        if item in (int, str) and set(map(type, value)) <= {item}:
            return value
        return [converter.structure(one, item) for one in value]

    return structure


def _table(kind: Any) -> Any:
    item = get_args(kind)[1]

    def structure(value: Any, _: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise TypeError(f"an object expected, got {type(value).__name__}")
        return value if item is Any else {key: converter.structure(one, item) for key, one in value.items()}

    return structure


converter = cattrs.Converter(detailed_validation=True)
for _kind in (int, str, bool):
    converter.register_structure_hook(_kind, _exactly(_kind))
converter.register_structure_hook(float, _number)
converter.register_structure_hook_factory(attrs.has, lambda cls: _object(cls))
converter.register_structure_hook_factory(lambda kind: get_origin(kind) is list, _list)
converter.register_structure_hook_factory(lambda kind: get_origin(kind) is dict, _table)
_bare = _object(Record, draft_statistics=override(omit=True))


def _record(value: Any, _: Any) -> Record:
    record = _bare(value, Record)
    traced = [record.trace] if record.trace is not None else []
    steps = record.steps if record.steps.verified else attrs.evolve(record.steps, verified=record.steps.accepted)
    if not (_even(steps, *traced) and _even(*filter(None, [record.prompt_steps]))):
        raise ValueError("the lists of its steps have different lengths")
    _check_counts(steps)
    return attrs.evolve(
        record,
        draft_statistics=statistics_of(record.steps) if record.served is None else record.served.draft_statistics,
    )


def _even(*tables: Any) -> bool:
    """Whether all lists of these tables have one length."""
    return len({len(column) for table in tables for column in attrs.asdict(table, recurse=False).values()}) <= 1


def _check_counts(steps: Steps) -> None:
    """Counts of a step are in order, and no larger than a step can be."""
    columns = zip(steps.drafted, steps.depth, steps.tested, steps.accepted, steps.verified, strict=True)
    for drafted, depth, tested, accepted, verified in columns:
        if not (0 <= accepted <= tested <= depth <= drafted <= MAX_DRAFTED and accepted <= verified <= depth):
            raise ValueError(
                f"a step has {drafted} drafted tokens of depth {depth}, {tested} tested and {accepted} accepted"
            )


converter.register_structure_hook(Record, _record)


@attrs.frozen
class LapFacts:
    """The object ``lap`` of a record."""

    seconds: float
    cpu_seconds: float
    split: dict[str, float]
    forwards: dict[str, int]
    rows: dict[str, int]
    reports: dict[str, Any]
    number: int
    busy_seconds: float | None
    load_average: float | None
    prompts: list[str]
    texts: int
    drafting: dict[str, list[float]] = attrs.field(factory=dict)
    peak_bytes: int | None = None
    device_peak_bytes: int | None = None
    joules: float | None = None

    @drafting.validator
    def _check_drafting(self, _: Any, value: dict[str, list[float]]) -> None:
        for length, pair in value.items():
            if not length.isdecimal() or int(length[:9]) > MAX_DRAFTED or len(pair) != 2 or not pair[0] > 0 <= pair[1]:
                raise ValueError(f"drafting has {quote_value(pair)} for the length {quote_value(length)}")

    def of(self, records: list[Record]) -> Lap:
        """The lap of these records."""
        first = records[0]
        values = {f.name: getattr(self, f.name) for f in attrs.fields(LapFacts) if f.name not in ("prompts", "texts")}
        return Lap(contender=first.contender, family=first.family, repeat=first.repeat, records=records, **values)


def structure(value: Any, cls: type[T]) -> T:
    """An object of this class. Raises ValueError that names the first field that is wrong."""
    try:
        return converter.structure(value, cls)
    except cattrs.BaseValidationError as error:
        raise ValueError(
            cattrs.transform_error(error, format_exception=_describe)[0].replace(" @ $.", " in ")
        ) from error
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ValueError(str(error)) from error


def _describe(error: BaseException, kind: type | None) -> str:
    if isinstance(error, KeyError):
        return "required field missing"
    return str(error) or type(error).__name__
