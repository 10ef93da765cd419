"""A target from its location: ``SCHEME:LOCATION``, or a bare path that a target recognises."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import attrs

from spec_core.assembly.discovery import Entry, discover_plugins, find_plugin, import_plugin, installed_points
from spec_core.assembly.recognise import recognise_scheme
from spec_core.contract.target import Target, Tokenizer, lacking_protocol
from spec_core.errors import FOREIGN, LoadError, SpecError, UsageError, message, nearest_names
from spec_core.settings.convert import structure
from spec_core.settings.tables import LoadSettings

TOKENIZERS = "spec_core.tokenizers"
"""Entry points of functions ``path -> Tokenizer``, None if the model at the path has none."""


def load(model: str | Path, **options: Any) -> Target:
    """Load a target by scheme, or from a bare path.

    options: fields of ``LoadSettings`` (``device``, ``dtype``, ``threads``, ``context``, ``kernels``, ...);
    ``weights=False`` reads metadata only: ``info`` and ``tokenizer`` are complete, ``forward`` is not possible.

    Raises UsageError for an unknown scheme, a path that is not a model, an option that neither the settings nor the
    loader's signature names, or ``threads`` or ``context`` out of range; SpecError for a damaged file; LoadError with
    the loader's name for anything else that the loader raises.
    """
    options |= check_limits(options)
    scheme, location = split_location(str(model))
    entry = find_plugin(scheme, ("target",))
    loader = import_plugin(entry)
    _check_names(options, loader, entry)
    target = _call(entry, location, lambda: loader(location, **options))
    # A target that is only read for its tensors, such as a draft head, may lack the rest.
    described = options.get("weights") is False and hasattr(target, "info") and hasattr(target, "tensor")
    if not described and (problem := lacking_protocol(target)):
        raise _load_error(entry, location, problem)
    return target


def read_weights(described: Any, model: str | Path, options: dict[str, Any]) -> Target:
    """A target with its weights, from one that was loaded with ``weights=False``.

    A target that has ``with_weights(weights, threads)`` does not read its metadata again; it returns None if its files
    have changed. Raises as ``load``.
    """
    resume = getattr(described, "with_weights", None)
    target = None
    if resume is not None:
        checked = options | check_limits(options)
        changes = {name: checked[name] for name in ("weights", "threads") if name in checked}
        scheme, location = split_location(str(model))
        target = _call(find_plugin(scheme, ("target",)), location, lambda: resume(**changes))
    return load(model, **options) if target is None else target


def _call(entry: Entry, location: str, read: Callable[[], Any]) -> Any:
    """Call a loader. Raises LoadError with its name for what is not a SpecError."""
    try:
        return read()
    except SpecError:
        raise
    except FOREIGN as error:
        raise _load_error(entry, location, f"{type(error).__name__}: {message(error)}") from error


def load_tokenizer(kind: str, location: str | Path) -> Tokenizer | None:
    """The tokenizer of a model that another target runs; None if the model has none.

    kind: name of an entry point in the group ``spec_core.tokenizers``, such as the format of the model's files. Equal
    files give equal tokenizers, so a draft model of another target fits.

    Raises UsageError for a kind that is not installed, and for files that cannot be read.
    """
    known = {point.name: point for point in installed_points(TOKENIZERS)}
    if kind not in known:
        raise UsageError(
            f"no tokenizers of kind {kind!r} are installed", hint=f"installed: {nearest_names(kind, known)}"
        )
    return known[kind].load()(Path(location))


def check_limits(options: dict[str, Any]) -> dict[str, Any]:
    """The options that have a min or max, checked. Raises UsageError."""
    fields = attrs.fields_dict(attrs.resolve_types(LoadSettings))
    bounded = {name: field for name, field in fields.items() if field.validator is not None}
    return {name: structure(value, bounded[name], name) for name, value in options.items() if name in bounded}


def _check_names(options: dict[str, Any], loader: Callable[..., Any], entry: Entry) -> None:
    """Loaders often pass ``**options`` on, so a misspelled name would fail far from the caller."""
    own = list(signature(loader).parameters.values())[1:]  # the first is the location
    known = {*attrs.fields_dict(LoadSettings), *(p.name for p in own if p.kind != Parameter.VAR_KEYWORD)}
    for name in options:
        if name not in known:
            raise UsageError(
                f"target {entry.name!r} has no load option {name!r}", hint=f"options: {nearest_names(name, known)}"
            )


def _load_error(entry: Entry, location: str, why: str) -> LoadError:
    return LoadError(
        f"target {entry.name!r} of {entry.distribution} {entry.version} failed to load {location!r}: {why}",
        hint=f"check the file or directory, or report it to the author of {entry.distribution}",
    )


def split_location(model: str) -> tuple[str, str]:
    """(scheme, location) of "scheme:location"; targets are asked for the scheme of a bare path."""
    scheme, colon, location = model.partition(":")
    schemes = {entry.name for entry in discover_plugins(("target",))}
    if colon and scheme in schemes:
        return scheme, location
    path = Path(model)
    if not path.exists():
        if colon and not scheme.startswith((".", "/")) and len(scheme) > 1:
            raise UsageError(
                f"{model}: unknown target scheme {scheme!r}", hint=f"schemes: {nearest_names(scheme, schemes)}"
            )
        raise UsageError(
            f"{model}: no such file or directory",
            hint=f"give a model's file or directory, or SCHEME:LOCATION; schemes: {nearest_names(scheme, schemes)}",
        )
    return recognise_scheme(path), model
