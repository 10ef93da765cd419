"""The five hooks, in the order a run meets them. This file is the manual.

One step serves all running sequences::

    1. draft(step)           plugins in the user's order propose tokens
    2. target.forward        one pass over pending tokens and drafts of all sequences
    3. accept(step)          a Verdict per sequence: the kept path and the next token
    4. rollback(step)        owners of target state put it back along the kept path
    5. process(rows)         every plugin learns from committed rows

``compat(target)`` is asked once, before any weight is read. Hooks are called by keyword; an implementation names only
the arguments it uses, and gives none of them a default. Hooks run once per step, never per layer or per token.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from spec_core.contract.rows import Rows
    from spec_core.contract.step import Step
    from spec_core.contract.target import Target
    from spec_core.contract.values import Compat

PROJECT = "spec_core"
CONTRACT = (1, 0)
"""Version of the contract. A new argument or field raises the second number, a changed meaning the first."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def compat(target: Target) -> Compat | None:
    """Say what this plugin owns, needs, drafts and judges, and why it refuses.

    Called once per run for each plugin by itself, before any weight is read: answer from ``target.info`` and from the
    metadata of the plugin's own files. All refusals of all plugins are collected and shown together.

    :param target: the loaded target.
    :returns: a Compat; ``None`` is an empty one. ``Compat.load(target)`` is called later, in the user's order, once
        every answer is clean: the only moment when weights are read.
    """


@hookspec
def draft(step: Step) -> None:
    """Propose tokens for the sequences that still want some.

    Called once per step, if any sequence may draft. Plugins are asked in the order the user named them; a sequence
    that has a draft is not offered to the next plugin. One is offered when its text has begun and ``process`` has told
    every row but that of the last token, which was not evaluated yet. A plugin that drafts nothing (a controller) is
    asked before the others, wherever it was named: it returns ``Compat(drafts=())``, stands in the group
    ``spec_core.control``, or is marked ``tryfirst``. Only a controller limits the drafts of others, by ``step.limit``.

    :param step: ``step.undrafted`` yields ``(seq, budget)``, budget at least 1: answer with
        ``step.propose(seq, Draft(...))``, a path of 1 to budget tokens, or not at all. ``step.noise(seq, i)`` is the
        noise of the i-th token to be drafted, ``step.wants_probs`` says whether the rule in force reads ``probs``.
    """


@hookspec
def accept(step: Step) -> None:
    """Decide how much of each draft is kept, and which token follows.

    Called once per step, after the target's forward. Rules are asked in the user's order, the core's lossless rule
    last; the first decision on a sequence stands.

    :param step: ``step.undecided`` yields sequences; ``step.logits(seq)`` is [1+K, V], row 0 follows the last committed
        token, row 1+j follows draft j; ``step.history(seq, row)`` are the tokens before a row, drafted prefix included;
        ``step.coins(seq, n)`` are uniforms that no other plugin reads, for a rule with private noise.
        Answer with ``step.decide(seq, Verdict(path, next_token))``, or not at all.
    """


@hookspec
def rollback(step: Step) -> None:
    """Put back the state you own along the kept path.

    Called once per step, after verdicts were cut at stop tokens and limits. Owners of target state act where a verdict
    differs from the state after the forward; other plugins may learn from all verified rows. No forward is made
    here: an owner that cannot restore a state asks ``step.rewind(seq, position)`` and the tokens from there on become
    pending rows of the next forward. Must not depend on the order of plugins. An owner that raises fails its sequences.

    :param step: ``step.verdicts`` is {seq: Verdict}; ``step.kept(seq)`` the batch rows of the kept drafts;
        ``step.output`` what the forward found; ``step.judged`` the asking method's own drafts, for learning what
        was accepted.
    """


@hookspec
def process(rows: Rows) -> None:
    """Learn from committed rows, and keep caches in step with them.

    Called last in every step, also for chunks of a prompt and for sequences that finish. Rows are delivered once, in
    order, without gaps; each comes with its hidden states and with the token that follows it. What a plugin stored
    for positions at or after ``span.start`` is no longer valid.

    :param rows: ``rows.by_sequence()`` yields ``(seq, span)``.
    """


def manager() -> pluggy.PluginManager:
    """A fresh pluggy manager that knows the five hooks; one per run, nothing at module level."""
    made = pluggy.PluginManager(PROJECT)
    made.add_hookspecs(sys.modules[__name__])
    return made
