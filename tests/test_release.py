"""Refusals of ``make release``, and the files it needs: changelog, fragments, citation."""

from __future__ import annotations

import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

from tools import arm, release

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def git(folder: Path, *words: str) -> None:
    person = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *person, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path) -> Path:
    """A committed project of version 1.2.3 that is ready for a release."""
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d" / "README.md").write_text("fragments")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3 (2026-01-01)\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "x")


def test_a_clean_tree_with_a_changelog_section_is_ready(tree):
    release.check_ready(tree, release.version_of(tree), tag=True)


@pytest.mark.parametrize("tag", [True, False])
def test_a_tree_with_changes_is_refused(tree, tag):
    (tree / "new.txt").write_text("x")

    with pytest.raises(release.ReleaseError, match=r"has changes:\n\?\? new\.txt"):
        release.check_ready(tree, "1.2.3", tag)


def test_a_version_without_a_changelog_section_is_refused(tree):
    with pytest.raises(release.ReleaseError, match=r"no section 1\.2\.4: write it from changelog"):
        release.check_ready(tree, "1.2.4", tag=True)


def test_fragments_that_are_left_are_refused(tree):
    (tree / "changelog.d" / "7.fix.md").write_text("Fixed.")
    commit(tree)

    with pytest.raises(release.ReleaseError, match=r"has fragments: 7\.fix\.md"):
        release.check_ready(tree, "1.2.3", tag=True)


def test_a_version_that_is_tagged_is_refused_unless_no_tag_is_wanted(tree):
    git(tree, "tag", "v1.2.3")

    release.check_ready(tree, "1.2.3", tag=False)
    with pytest.raises(release.ReleaseError, match=r"v1\.2\.3 exists"):
        release.check_ready(tree, "1.2.3", tag=True)


def test_a_wheel_without_a_compiled_extension_is_refused(tmp_path):
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("spec_kernels/native/_native.abi3.so", "")

    with pytest.raises(release.ReleaseError, match="has no spec_core/sampling/native/_choice"):
        release.check_wheel(wheel)


def test_a_command_that_fails_ends_the_release(tmp_path):
    with pytest.raises(release.ReleaseError, match="failed with exit status 3"):
        release.run(("sh", "-c", "exit 3"), tmp_path)


def test_without_a_cross_compiler_the_wheel_for_arm_is_refused_with_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(release.ReleaseError, match=r"needs aarch64-linux-gnu-gcc, .*apt-get install .*ARM=0"):
        arm.check_tools()


def test_a_wheel_that_generates_another_text_on_arm_is_refused(tmp_path, monkeypatch):
    """The text of the right command is compared."""
    monkeypatch.setattr(arm, "outputs", lambda uv, wheel, folder, commands: [words[0] for words in commands])

    release.check_emulated(tmp_path / "uv", tmp_path, tmp_path / "x.whl", "generate")
    with pytest.raises(release.ReleaseError, match=r"x\.whl generates 'generate', this machine 'other'"):
        release.check_emulated(tmp_path / "uv", tmp_path, tmp_path / "x.whl", "other")


def test_notes_are_the_section_of_the_version():
    changelog = "# Changelog\n\n## 1.2.0 (2026-02-01)\n\n### Fixes\n\n- A.\n\n## 1.1.0 (2026-01-01)\n\n- B.\n"

    assert release.notes(changelog, "1.2.0") == "### Fixes\n\n- A.\n"
    assert release.notes(changelog, "1.1.0") == "- B.\n"


def test_the_workflow_uploads_what_make_release_writes():
    """Without a token, after all steps of the build, for tags alone."""
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    commands = [step["run"] for step in build["steps"] if "run" in step]
    uploads = [step["with"]["path"] for step in build["steps"] if "with" in step]

    assert workflow[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads "on" as true
    assert "make release TAG=0" in commands and any("gcc-aarch64-linux-gnu qemu-user" in words for words in commands)
    assert uploads == ["dist/", "build/release/notes.md"]
    assert (publish["needs"], publish["permissions"]["id-token"]) == ("build", "write")
    assert "password" not in str(publish)


def test_the_tests_of_a_release_exist():
    assert all((ROOT / test).is_file() for test in release.TESTS)


def test_changelog_fragments_have_a_known_type():
    types = {entry["directory"] for entry in PYPROJECT["tool"]["towncrier"]["type"]}
    names = [path.name for path in (ROOT / "changelog.d").iterdir() if path.name not in release.KEPT_FRAGMENTS]

    assert not [name for name in names if name.count(".") != 2 or name.split(".")[1] not in types]


def test_the_citation_has_the_version_and_licence_of_the_project():
    lines = (ROOT / "CITATION.cff").read_text("utf-8").splitlines()

    assert f"version: {PYPROJECT['project']['version']}" in lines
    assert f"license: {PYPROJECT['project']['license']}" in lines
