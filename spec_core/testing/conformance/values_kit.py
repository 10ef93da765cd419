"""Checks of the values that requests may give to a plugin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from spec_core.contract.request import Request
from spec_core.errors import UsageError
from spec_core.loop.run import Run
from spec_core.testing.conformance.base import Conformance, expect
from spec_core.testing.conformance.probes import SUBJECT
from spec_core.testing.conformance.promise import promise

TRIED: tuple[Any, ...] = (
    None, True, -1, 0, 0.5, 2, 10**18, 1e308, "", "a", "\0", "a" * 5000, [], [1, 2], [3, 0], [-1], [[]], ["a"], {},
    {"a": None},
)  # fmt: skip
"""Values that a client may send."""


class ValueChecks(Conformance):
    """Part of the classes of methods and rules."""

    def reading_run(self, **settings: Any) -> tuple[str, Run]:
        """A run with the plugin, and its name there."""
        return SUBJECT, self.run([self.mine()], **settings)

    def value_request(self, plugin: str, name: str, value: Any) -> Request:
        return Request(
            self.prompts()[0], max_tokens=6, name=f"{name} = {value!r:.40}", plugin_values={plugin: {name: value}}
        )

    def accepted_values(self, plugin: str, run: Run) -> Iterator[tuple[str, Any]]:
        """(name, value) of all that the plugin accepts."""
        for name in self.compat_answer.request_values:
            for value in TRIED:
                try:
                    run.cancel(run.submit(self.value_request(plugin, name, value)))
                except UsageError as error:
                    reason = error.__cause__
                    expect(
                        reason is None or isinstance(reason, (UsageError, TypeError, ValueError)),
                        f"the check of {name} raised {type(reason).__name__} for {value!r:.40}: {reason}",
                    )
                else:
                    yield name, value

    def needs_values(self) -> None:
        if not self.compat_answer.request_values:
            pytest.skip("reads no values of requests")

    @promise("Any value of a request is accepted or refused with a reason: neither its check nor a hook fails on it.")
    def test_values_of_requests_are_accepted_or_refused(self) -> None:
        self.needs_values()
        plugin, run = self.reading_run()
        for name, value in list(self.accepted_values(plugin, run)):
            expect(
                run.generate(self.value_request(plugin, name, value)).result.finish_reason != "error",
                f"{name} = {value!r:.40} was accepted, and the text ended with an error",
            )
