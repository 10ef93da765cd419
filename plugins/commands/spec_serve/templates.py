"""Chat templates that a server can have in place of the model's, by their names in llama-server."""

from __future__ import annotations

from pathlib import Path

from spec_core import UsageError
from spec_core.errors import error_message
from spec_serve.settings import ServeSettings

_MESSAGES = "{%- for m in messages -%}"
_END = "{%- endfor -%}"
_BEGIN = "{%- if add_generation_prompt -%}"
NAMED = {
    "chatml": _MESSAGES + "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}" + _END
    + _BEGIN + "{{ '<|im_start|>assistant\n' }}{%- endif -%}",
    "llama3": "{{ bos_token }}" + _MESSAGES
    + "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}" + _END
    + _BEGIN + "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif -%}",
    "phi3": _MESSAGES + "{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}" + _END
    + _BEGIN + "{{ '<|assistant|>\n' }}{%- endif -%}",
    "zephyr": _MESSAGES + "{{ '<|' + m.role + '|>\n' + m.content + eos_token + '\n' }}" + _END
    + _BEGIN + "{{ '<|assistant|>\n' }}{%- endif -%}",
    "gemma": "{{ bos_token }}" + _MESSAGES
    + "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else 'user') + '\n' + m.content | trim"
    " + '<end_of_turn>\n' }}" + _END + _BEGIN + "{{ '<start_of_turn>model\n' }}{%- endif -%}",
    "command-r": "{{ bos_token }}" + _MESSAGES
    + "{{ '<|START_OF_TURN_TOKEN|><|' + {'system': 'SYSTEM', 'user': 'USER'}.get(m.role, 'CHATBOT') + '_TOKEN|>'"
    " + m.content | trim + '<|END_OF_TURN_TOKEN|>' }}" + _END
    + _BEGIN + "{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{%- endif -%}",
}  # fmt: skip
"""A text that is none of these names is a template itself."""
BYTES_MAX = 1 << 20


def template_of(settings: ServeSettings) -> str | None:
    """The template that was given, None where it is the model's own. Raises UsageError."""
    if settings.chat_template is not None and settings.chat_template_file is not None:
        raise UsageError("--chat-template and --chat-template-file are both given", hint="give one of them")
    if settings.chat_template_file is not None:
        return _read(Path(settings.chat_template_file))
    template = settings.chat_template
    return None if template is None else NAMED.get(template, template)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error_message(error) if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"--chat-template-file {path} cannot be read: {reason}", hint="name a Jinja file") from error
    if len(data) > BYTES_MAX:
        raise UsageError(f"--chat-template-file {path} is longer than {BYTES_MAX} bytes", hint="name a Jinja file")
    return text
