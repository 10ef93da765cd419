"""vLLM's worker of this platform, which tells methods of this project about requests and steps."""

from __future__ import annotations

from typing import Any

from spec_engines.vllm import interface


class Worker(interface.platform_worker()):  # type: ignore[misc]
    """Worker for ``worker_cls``. Only its runner differs from vLLM's."""

    def init_device(self) -> None:
        """vLLM calls it before it reads weights. Raises UsageError for a configuration without a proposer."""
        interface.check(self.vllm_config)
        super().init_device()
        interface.attach(self.model_runner)

    def execute_model(self, scheduler_output: Any) -> Any:
        """vLLM calls it with the requests that finished, once more after the last one."""
        output = super().execute_model(scheduler_output)
        self.model_runner.drafter.requests.end(scheduler_output.finished_req_ids)
        return output

    def spec_report(self) -> dict[str, Any]:
        """Statistics of the methods, for ``LLM.collective_rpc("spec_report")``; those of rank 0 count."""
        return self.model_runner.drafter.report()
