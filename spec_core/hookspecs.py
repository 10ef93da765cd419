"""The five hooks, in the order in which a run calls them. This file is their reference.

One step serves all running sequences::

    1. draft(step)           plugins in the user's order propose tokens
    2. target.forward        one pass over pending tokens and drafts of all sequences
    3. accept(step)          a Verdict per sequence: the kept path and the next token
    4. rollback(step)        owners of target state restore it along the kept path
    5. process(rows)         every plugin learns from committed rows

``compat(target)`` is called once, before any weight is read. Hooks are called by keyword; an implementation declares
only the arguments it uses, without defaults. Hooks run once per step, never per layer or per token.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from spec_core.contract.draft_step import DraftStep
    from spec_core.contract.rows import Rows
    from spec_core.contract.target import Target
    from spec_core.contract.values import Compat
    from spec_core.contract.verified_step import AcceptStep, RollbackStep

PROJECT = "spec_core"
CONTRACT = (1, 0)
"""Version of the contract. A new argument or field raises the second number; a changed meaning raises the first."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def compat(target: Target) -> Compat | None:
    """Say what this plugin owns, needs, drafts and judges, and why it refuses.

    Called once per run and plugin, before any weight is read: use ``target.info`` and the metadata of the plugin's own
    files only. The refusals of all plugins are collected and shown together.

    :param target: the loaded target.
    :returns: a Compat; ``None`` means an empty one. ``Compat.load(target)`` is called later, in the user's order, once
        no plugin refuses; weights are read only there.
    """


@hookspec
def draft(step: DraftStep) -> None:
    """Propose tokens for the sequences that have no draft yet.

    Called once per step, if any sequence may draft. Plugins are called in the order in which the user named them; a
    sequence that has a draft is only offered to later plugins that declared ``Compat(extends=True)``:
    they may extend a draft that is shorter than its budget, with ``step.leaves`` and ``step.extend``. A sequence is
    offered once it has generated a token and ``process`` has delivered all evaluated rows (the last token's row is not
    evaluated yet). A plugin that never drafts (a controller) is called before the others, wherever it was named: it
    returns ``Compat(drafts=())``, is installed in the group ``spec_core.control``, or is marked ``tryfirst``. Only a
    controller may limit the drafts of other plugins, with ``step.plan``. A rule whose draft hook is marked ``wrapper``
    is called in every step, and reads ``step.part(seq).draft`` after its ``yield``: it may evaluate the drafts on
    sequences of its own there, before the target's forward.

    :param step: ``step.undrafted`` yields ``(seq, budget)``, budget at least 1: call
        ``step.propose(seq, Draft(...))`` with a path of 1 to budget tokens, or skip the sequence.
        ``step.noise(seq, i)`` is the noise of the i-th token to be drafted; ``step.wants_probs`` is true if the active
        rule reads ``probs``.
    """


@hookspec
def accept(step: AcceptStep) -> None:
    """Decide how much of each draft is kept, and which token follows.

    Called once per step, after the target's forward. Rules are called in the user's order, the core's lossless rule
    last; the first decision on a sequence is final.

    :param step: ``step.undecided`` yields sequences; ``step.logits(seq)`` is [1+K, V], row 0 follows the last committed
        token, row 1+j follows draft j; ``step.history(seq, row)`` are the tokens before a row, drafted prefix included;
        ``step.coins(seq, n)`` are uniforms that no other plugin can read, for a rule with private noise.
        Call ``step.decide(seq, Verdict(path, next_token))``, or leave the sequence to the next rule.
    """


@hookspec
def rollback(step: RollbackStep) -> None:
    """Restore the target state that this plugin owns to the kept path.

    Called once per step, after verdicts were cut at stop tokens and limits. Owners of target state act where a verdict
    differs from the state after the forward; other plugins may learn from all verified rows. Do not run a forward
    here: an owner that cannot restore a state calls ``step.rewind(seq, position)``, and the tokens from there on become
    pending rows of the next forward. Must not depend on the order of plugins. If an owner raises, its sequences fail.

    :param step: ``step.verdicts`` is {seq: Verdict}; ``step.kept_rows(seq)`` the batch rows of the kept drafts;
        ``step.output`` the output of the forward; ``step.draft_results`` the calling plugin's own drafts, to learn what
        was accepted.
    """


@hookspec
def process(rows: Rows) -> None:
    """Learn from committed rows, and update caches with them.

    Called last in every step, also for chunks of a prompt and for sequences that finish. Rows are delivered once, in
    order, without gaps, each with its hidden states and the token that follows it. Whatever a plugin stored
    for positions at or after ``span.start`` is no longer valid.

    :param rows: ``rows.by_sequence()`` yields ``(seq, span)``.
    """


def manager() -> pluggy.PluginManager:
    """A new pluggy manager with the five hooks; every run has its own."""
    hooks = pluggy.PluginManager(PROJECT)
    hooks.add_hookspecs(sys.modules[__name__])
    return hooks
