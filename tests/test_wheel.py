"""The built wheel works where the repository is not: package data, entry points, models and all."""

from __future__ import annotations

import zipfile

import pytest
from spec_zoo import ZOO

pytestmark = pytest.mark.slow


def test_the_wheel_holds_packages_and_models_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {n.split("/")[0] for n in names if ".dist-info" not in n}

    source = wheel.parent / "source"
    roots = (".", "kernels", "plugins")

    assert tops == {init.parent.name for root in roots for init in (source / root).glob("spec_*/__init__.py")}
    assert {*(f"spec_zoo/models/{model.file}" for model in ZOO.values()), "spec_zoo/prompts.jsonl"} <= set(names)


def test_it_is_imported_from_where_it_was_installed(stranger, tmp_path):
    where = stranger.shell(
        "python -c 'import spec_core, spec_zoo; print(spec_core.__file__, spec_zoo.__file__)'", tmp_path
    )

    assert all(str(stranger.folder) in path for path in where.split())


def test_it_lists_its_plugins_and_generates(stranger, tmp_path):
    assert "draft-model" in stranger.shell("spec plugins", tmp_path)
    out = stranger.shell("spec generate -m zoo:pico -p 'def f(' -n 8 --method draft-model --json", tmp_path)
    assert '"tokens"' in out
