"""vLLM's worker of this platform, which tells methods of this project about requests and steps."""

from __future__ import annotations

from typing import Any

from spec_engines.vllm import interface


class Worker(interface.platform_worker()):  # type: ignore[misc]
    """For ``worker_cls``. Only the runner of this worker is changed."""

    def init_device(self) -> None:
        super().init_device()
        interface.attach(self.model_runner)

    def spec_report(self) -> dict[str, Any]:
        """Statistics of the methods, for ``LLM.collective_rpc("spec_report")``; those of rank 0 count."""
        return self.model_runner.drafter.report()
