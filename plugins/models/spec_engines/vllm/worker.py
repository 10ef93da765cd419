"""vLLM's worker of this platform, which tells methods of this project about requests and steps."""

from __future__ import annotations

from typing import Any

from spec_engines.vllm import first, interface
from spec_engines.vllm.drafter import Drafter


class Worker(interface.platform_worker()):  # type: ignore[misc]
    """Worker for ``worker_cls``. Only its runner differs from vLLM's."""

    def init_device(self) -> None:
        """vLLM calls it before it reads weights. Raises UsageError for a configuration without a drafter."""
        interface.check_config(self.vllm_config)
        self.door = self._runner_module()
        with self.door.replace_drafter():
            super().init_device()
        if self.door is first:
            first.attach_drafter(self.model_runner)

    def load_model(self, *args: Any, **keywords: Any) -> None:
        """The second runner loads models for its own drafters only."""
        super().load_model(*args, **keywords)
        if self.door is not first:
            self.door.attach(self.model_runner)

    def _runner_module(self) -> Any:
        """The module of this project that knows the runner that vLLM has chosen."""
        if not self.vllm_config.use_v2_model_runner:
            return first
        from spec_engines.vllm import second

        return second

    @property
    def drafter(self) -> Drafter:
        """The drafter of the runner."""
        drafter: Drafter = self.door.drafter_of(self.model_runner)
        return drafter

    def compile_or_warm_up_model(self) -> Any:
        """vLLM tries its kernels."""
        self.drafter.warming = True
        try:
            return super().compile_or_warm_up_model()
        finally:
            self.drafter.warming = False

    def execute_model(self, scheduler_output: Any) -> Any:
        """vLLM calls it with the requests that begin and that finished, once more after the last one."""
        self.drafter.update(scheduler_output.finished_req_ids, scheduler_output.scheduled_new_reqs)
        return super().execute_model(scheduler_output)

    def spec_report(self) -> dict[str, Any]:
        """Statistics of the methods, for ``LLM.collective_rpc("spec_report")``; rank 0's count."""
        return self.drafter.report()
