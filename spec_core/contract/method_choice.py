"""What a name that stands for methods means for one target."""

from __future__ import annotations

from typing import Any

import attrs
from attrs.validators import instance_of, optional


@attrs.frozen
class MethodChoice:
    """Methods for one target, by the function of an entry point in the group ``spec_core.method_choice``.

    The function is called with the target, which may have no weights yet, and with a function that receives a method as
    users name it and returns why the target does not run it, None if it does.

    methods: as users name them. control: the controller, used if the settings name none. note: for the user, one line:
    what was chosen, and why.
    """

    methods: tuple[Any, ...] = attrs.field(converter=tuple)
    control: str | None = attrs.field(default=None, validator=optional(instance_of(str)))
    note: str = attrs.field(default="", validator=instance_of(str))
