"""JSON of commands has no number that JSON lacks."""

import json
import math

from spec_commands.common import as_json
from spec_commands.json_text import format_json


def refuse(name):
    raise AssertionError(f"{name} is no JSON")


def test_numbers_that_json_lacks_become_null_at_every_depth():
    value = {"a": [1.5, math.nan, (math.inf, {"b": -math.inf})], "c": "NaN"}

    for text in (format_json(value), format_json(value, indent=1), as_json(value)):
        assert json.loads(text, parse_constant=refuse) == {"a": [1.5, None, [None, {"b": None}]], "c": "NaN"}
