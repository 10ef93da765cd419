"""Audits of the stand-in server without a socket."""

from __future__ import annotations

import httpx
from spec_audit.audit import Audit, read_prompts
from spec_audit.budget import BUDGETS
from spec_audit.checks import comparable, greedy
from spec_audit.probe import Connection
from spec_audit.run import CHECKS, run_audit
from spec_commands.http_client import Client


def client_of(handle, seconds=60.0):
    """A client whose requests a function answers, and that does not wait."""
    return Client("http://toy", None, seconds, httpx.MockTransport(handle), sleep=lambda seconds: None)


def audit_server(
    server, budget="small", seed=0, checks=CHECKS, speed=False, off=None, record=None, chat=False, prompts=None
):
    """The result of an audit. checks: after the floor."""
    connection = Connection("http://toy", None, off, None, chat, 4, lambda url: client_of(server.handle))
    size = BUDGETS[budget]
    session = connection.session()
    session.record = record or session.record
    first = () if comparable in checks else (comparable, greedy)
    audit = Audit(session, size, (prompts or read_prompts(None))[: size.prompts], seed, "TOY_KEY")
    return run_audit(audit, (*first, *checks), speed)


def failing(result):
    """Names of the promises that fail."""
    return [verdict.promise for verdict in result.with_status("fails")]
