"""Requests as lines to paste into an issue; a key is never printed."""

from __future__ import annotations

import json
import shlex

from spec_audit.asks import PATHS, Ask
from spec_audit.session import Session


def curl_line(session: Session, ask: Ask, key_name: str | None) -> str:
    """A request as a line of curl. key_name: the environment variable that has the key."""
    arm = session.arms[ask.side]
    body = json.dumps(ask.body(arm, session.api))
    header = f'-H "Authorization: Bearer ${key_name}" ' if key_name else ""
    kind = '-H "Content-Type: application/json"'
    return f"curl -s {shlex.quote(arm.url + PATHS[session.api])} {header}{kind} -d {shlex.quote(body)}"
