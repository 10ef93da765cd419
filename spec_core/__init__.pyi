"""The types of what ``spec_core`` exports; ``__init__.py`` imports each when it is first used."""

from spec_core.assembly.loading import load as load
from spec_core.assembly.loading import load_tokenizer as load_tokenizer
from spec_core.contract.batch import Batch as Batch
from spec_core.contract.batch import Part as Part
from spec_core.contract.batch import Piece as Piece
from spec_core.contract.batch import TargetOutput as TargetOutput
from spec_core.contract.constraint import Constraint as Constraint
from spec_core.contract.matcher import Matcher as Matcher
from spec_core.contract.request import Emitted as Emitted
from spec_core.contract.request import Request as Request
from spec_core.contract.request import Result as Result
from spec_core.contract.rows import Rows as Rows
from spec_core.contract.rows import Span as Span
from spec_core.contract.sequence import Sequence as Sequence
from spec_core.contract.sequence import Slot as Slot
from spec_core.contract.sequence import Stash as Stash
from spec_core.contract.sequence import StashKey as StashKey
from spec_core.contract.spent import DraftAttempt as DraftAttempt
from spec_core.contract.spent import StepRecord as StepRecord
from spec_core.contract.step import Step as Step
from spec_core.contract.target import Target as Target
from spec_core.contract.target import Tokenizer as Tokenizer
from spec_core.contract.values import Compat as Compat
from spec_core.contract.values import Draft as Draft
from spec_core.contract.values import Needs as Needs
from spec_core.contract.values import Refusal as Refusal
from spec_core.contract.values import TargetInfo as TargetInfo
from spec_core.contract.values import Verdict as Verdict
from spec_core.errors import PluginError as PluginError
from spec_core.errors import Refused as Refused
from spec_core.errors import SpecError as SpecError
from spec_core.errors import UsageError as UsageError
from spec_core.hookspecs import CONTRACT as CONTRACT
from spec_core.hookspecs import hookimpl as hookimpl
from spec_core.loop.prepare import prepare as prepare
from spec_core.loop.run import Run as Run
from spec_core.sampling.parameters import Sampling as Sampling
from spec_core.settings.tables import RunSettings as RunSettings

__all__ = [
    "CONTRACT",
    "Batch",
    "Compat",
    "Constraint",
    "Draft",
    "DraftAttempt",
    "Emitted",
    "Matcher",
    "Needs",
    "Part",
    "Piece",
    "PluginError",
    "Refusal",
    "Refused",
    "Request",
    "Result",
    "Rows",
    "Run",
    "RunSettings",
    "Sampling",
    "Sequence",
    "Slot",
    "Span",
    "SpecError",
    "Stash",
    "StashKey",
    "Step",
    "StepRecord",
    "Target",
    "TargetInfo",
    "TargetOutput",
    "Tokenizer",
    "UsageError",
    "Verdict",
    "hookimpl",
    "load",
    "load_tokenizer",
    "prepare",
]
