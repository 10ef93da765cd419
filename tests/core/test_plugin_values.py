"""Values of a request for plugins: checked by the plugin before the first token, and read by it alone."""

from __future__ import annotations

from types import MappingProxyType

import attrs
import pytest
from toys import finish

from spec_core import Compat, Run, UsageError, hookimpl
from spec_core.testing import ToyTarget


@attrs.define(eq=False)
class Reader:
    """Reads a number and a list of requests, and keeps what it read of each."""

    seen: dict = attrs.field(factory=dict)

    @hookimpl
    def compat(self):
        return Compat(request_values={"scale": float, "ids": self.check_ids, "any": lambda value: value, "odd": {}.pop})

    def check_ids(self, value):
        if not isinstance(value, list):
            raise UsageError("ids is not a list", hint="give a list of ids")
        return tuple(value)

    @hookimpl
    def accept(self, step):
        for seq in step.undecided:
            self.seen[seq.name] = dict(step.request_values(seq))


class Silent:
    @hookimpl
    def draft(self, step):
        """Nothing."""


def reading_run():
    reader = Reader()
    return reader, Run(ToyTarget(recurrent=False), [("silent", Silent())], rule=("reader", reader))


def test_a_plugin_reads_the_values_of_each_request():
    reader, run = reading_run()
    values = {"scale": 2, "ids": [1, 2]}
    run.submit([1, 2], max_tokens=2, name="a", plugin_values={"reader": values})
    run.submit([1, 2], max_tokens=2, name="b", plugin_values=MappingProxyType({"reader": {"any": {"x": [None, True]}}}))
    run.submit([1, 2], max_tokens=2, name="c")
    values["ids"].append(3)
    finish(run)

    assert reader.seen == {"a": {"scale": 2.0, "ids": (1, 2)}, "b": {"any": {"x": [None, True]}}, "c": {}}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (3, "plugin_values is of type int"),
        ([("reader", {})], "plugin_values is of type list"),
        ({"reader": 3}, "plugin_values of 'reader' is of type int"),
        ({"silent": {}}, "names 'silent', which reads no values of requests; plugins that do: reader"),
        ({"other": {}}, "names 'other'"),
        ({7: {}}, "names 7"),
        ({"reader": {"scal": 1}}, "plugin 'reader' reads no value 'scal'"),
        ({"reader": {3: 1}}, "plugin 'reader' reads no value 3"),
        ({"reader": {"scale": "x"}}, "plugin_values of 'reader': scale = 'x': could not convert"),
        ({"reader": {"scale": [1]}}, "plugin_values of 'reader': scale"),
        ({"reader": {"ids": 3}}, "plugin_values of 'reader': ids: ids is not a list"),
        ({"reader": {"odd": 3}}, "the plugin's check failed: KeyError"),
        ({"reader": {"any": float("nan")}}, "has the number nan"),
        ({"reader": {"any": 1 << 64}}, "more than 64 bits"),
        ({"reader": {"any": object()}}, "a value of type object"),
        ({"reader": {"any": {1: 2}}}, "a value of type dict"),
        ({"reader": {"any": "\ud800"}}, "half a surrogate pair"),
        ({"reader": {"any": "a" * (1 << 16)}}, "more than 65536 characters and values"),
        ({"reader": {"any": [[]] * (1 << 16)}}, "more than 65536 characters and values"),
        ({"reader": {"any": [[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]}}, "more than 16 levels"),
    ],
)
def test_wrong_values_are_refused_before_the_first_token(values, message):
    reader, run = reading_run()
    with pytest.raises(UsageError) as refused:
        run.submit([1, 2], plugin_values=values)

    assert message in str(refused.value)
    assert not run.busy
    assert reader.seen == {}


def test_a_run_without_such_a_plugin_says_so():
    with pytest.raises(UsageError, match="no plugin of this run does"):
        Run(ToyTarget(recurrent=False), [("silent", Silent())]).submit([1], plugin_values={"silent": {"a": 1}})


def test_values_for_a_plugin_that_failed_are_refused():
    _, run = reading_run()
    run.stats.switched_off["reader"] = "it raised"
    with pytest.raises(UsageError, match="switched off in this run: it raised"):
        run.submit([1], plugin_values={"reader": {"scale": 1}})


def test_a_value_without_a_check_is_refused_by_its_author():
    with pytest.raises(TypeError, match="callable"):
        Compat(request_values={"scale": 1.0})
