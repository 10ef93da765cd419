"""Every chat template of a folder against transformers, on each conversation of the suite.

``python tests/campaigns/chat_templates.py FOLDER``: files ``*.jinja``, such as those of llama.cpp's models/templates.
Prompts must be equal, and where one side refuses a conversation, so must the other.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from spec_targets.tokenizer.templates.chat import render_chat
from transformers.utils.chat_template_utils import _normalize_chat_messages, render_jinja_template

from spec_core import UsageError
from tests.support.conversations import CONVERSATIONS, SPECIAL


def prompt_of_transformers(template: str, asked: dict[str, Any]) -> str | None:
    """None where it refuses."""
    more = {"add_generation_prompt": True, **SPECIAL, **asked}
    messages = _normalize_chat_messages(more.pop("messages"))
    try:
        return render_jinja_template(conversations=[messages], chat_template=template, **more)[0][0]
    except Exception:
        return None


def prompt_of_ours(template: str, asked: dict[str, Any]) -> str | None:
    try:
        return render_chat(
            template, asked["messages"], special=SPECIAL, **{k: v for k, v in asked.items() if k != "messages"}
        )
    except UsageError:
        return None


def main(folder: Path) -> int:
    equal = refused = differ = 0
    for file in sorted(folder.glob("*.jinja")):
        template = file.read_text("utf-8")
        for name, asked in CONVERSATIONS.items():
            expected, ours = prompt_of_transformers(template, asked), prompt_of_ours(template, asked)
            if expected != ours:
                differ += 1
                print(f"{file.name}, {name}:\n  transformers {expected!r}\n  ours {ours!r}")
            equal, refused = equal + (expected == ours), refused + (expected is None)
    print(f"{equal} equal ({refused} refused by both); {differ} differ")
    return differ > 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
