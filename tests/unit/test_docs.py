"""The documentation names what there is, and nothing else."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from loosehanger.cli.command_line import COMMANDS
from loosehanger.paths import ROOT
from scripts import fault_page
from tests.e2e.documents import SLOW

README = (ROOT / "README.md").read_text(encoding="utf-8")
OF_JOBS = ROOT / "loosehanger" / "lab" / "job_options.py"
WRAPPERS = sorted(path.name for path in ROOT.glob("*.sh"))


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_the_readme_names_every_wrapper(wrapper: str) -> None:
    assert f"./{wrapper}" in README


def test_every_command_that_is_named_anywhere_is_there() -> None:
    """In documentation, messages and comments: the wrapper of a command that was removed is easily missed."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    scripts: dict[str, str] = {}
    commands: dict[tuple[str, str], str] = {}
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.is_file() and path.suffix != ".png":
            text = path.read_text(encoding="utf-8")
            scripts |= dict.fromkeys(re.findall(r"(?<![\w/.*])\./([\w-]+\.sh)", text), name)
            commands |= dict.fromkeys(
                re.findall(r"[`$] ?\./lab ([a-z][a-z-]*)|^\./lab ([a-z][a-z-]*)", text, re.MULTILINE), name
            )
    assert {script: name for script, name in scripts.items() if not (ROOT / script).exists()} == {}
    named = {word: name for words, name in commands.items() for word in words if word}
    assert {"setup", "status", "prove"} <= set(named)
    assert {word: name for word, name in named.items() if word not in {*COMMANDS, "help"}} == {}


def test_the_documentation_names_every_command() -> None:
    assert {name for name in COMMANDS if f"./lab {name}" not in README and f"`{name}`" not in README} == set()


def test_every_link_leads_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("*/*/README.md"), *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page}: {target}"


def test_every_picture_is_shown_and_taken_by_a_test() -> None:
    """A test in a browser opens the page and takes the picture: it fails when there is no such page any more."""
    pictures = {path.stem for path in (ROOT / "docs").glob("*.png")}
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("loosehanger/**/README.md")]
    shown = {name for page in pages for name in re.findall(r"docs/([\w-]+)\.png\)", page.read_text(encoding="utf-8"))}
    assert shown == pictures
    taken = re.findall(
        r'\bpicture\(\w+, "(\w+)"\)', (ROOT / "tests/browser/test_console.py").read_text(encoding="utf-8")
    )
    assert pictures <= {f"console-{name}" for name in taken}


def test_every_path_that_the_guide_for_contributors_names_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:loosehanger|scripts|tests|docs|spark-jobs|roles|playbooks)/[\w./-]*)`", text)
    assert len(named) > 30
    assert [path for path in named if not (re.search("[A-Z]{4}", path) or (ROOT / path).exists())] == []


def test_the_guide_for_contributors_names_every_part_of_the_package() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    parts = {path.parent.name for path in (ROOT / "loosehanger").glob("*/__init__.py")}
    assert {part for part in parts if f"`{part}/`" not in text} == set()


def test_the_readme_names_every_variable_that_a_user_can_set() -> None:
    sources = [*ROOT.glob("scripts/*.sh"), *ROOT.glob("scripts/*.py"), *ROOT.glob("inventories/*/group_vars/*")]
    sources.append(ROOT / "loosehanger" / "lab" / "console_password.py")
    used = {name for path in sources for name in re.findall(r"\bLAB_[A-Z_]+\b", path.read_text(encoding="utf-8"))}
    assert used - {"LAB_OUTCOME", "LAB_SPARK_JAVA", "LAB_CLASSES_TO"} == set(re.findall(r"\bLAB_[A-Z_]+\b", README))


@pytest.mark.parametrize(
    ("program", "sources"),
    [
        ("producer", [*(ROOT / "producer").glob("*.py")]),
        ("consumers", [*(ROOT / "loosehanger" / "events").glob("*.py")]),
        ("spark-jobs", [OF_JOBS, *(ROOT / "loosehanger" / "jobs").glob("*.py")]),
    ],
)
def test_every_option_and_variable_of_a_program_is_documented(program: str, sources: list[Path]) -> None:
    readme = (ROOT / program / "README.md").read_text(encoding="utf-8")
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    options = set(re.findall(r'(?:add_argument|option)\(\s*"(--[a-z][a-z-]+)"', text))
    assert options
    variables = set(re.findall(r'"((?:PRODUCER|CONSUMER)_[A-Z_]+)"', text))
    assert {name for name in options | variables if name not in readme} == set()


def test_every_variable_of_the_console_is_documented() -> None:
    readme = (ROOT / "loosehanger" / "console" / "README.md").read_text(encoding="utf-8")
    used = {
        name
        for path in (ROOT / "loosehanger" / "console").glob("*.py")
        for name in re.findall(r"\bCONSOLE_[A-Z_]+\b", path.read_text(encoding="utf-8"))
    }
    assert used == set(re.findall(r"\bCONSOLE_[A-Z_]+\b", readme))


def test_the_command_hands_over_to_python() -> None:
    assert len((ROOT / "lab").read_text(encoding="utf-8").splitlines()) <= 40


def test_a_document_that_says_that_it_is_slow_is_marked_so() -> None:
    for page in ROOT.glob("playbooks/*/README.md"):
        text = page.read_text(encoding="utf-8")
        assert bool(SLOW.match(text)) == ("<!-- slow" in text), page


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapper_is_short_and_has_one_purpose(wrapper: str) -> None:
    lines = (ROOT / wrapper).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 4
    assert lines[1].startswith("# ")
    assert "set -euo pipefail" in lines
    assert (ROOT / wrapper).stat().st_mode & 0o111


def test_the_manifests_of_both_mirrors_differ_in_their_region_only() -> None:
    folder = ROOT / "playbooks" / "03-broadcast" / "manifests"
    north, south = (_neutral(folder / name, code) for name, code in (("mm2-na.yaml", "na"), ("mm2-sa.yaml", "sa")))
    assert north == south


def _neutral(path: Path, code: str) -> str:
    text = path.read_text(encoding="utf-8")
    region = {"na": "north", "sa": "south"}[code]
    for word in (f"{region}-america", f"{region}america", f"{region.title()} America", f"mm2-{code}", f"__mm2_{code}_"):
        text = text.replace(word, "@")
    return text


def test_the_page_of_faults_is_made_from_the_catalogue() -> None:
    text = fault_page.PAGE.read_text(encoding="utf-8")
    assert text == fault_page.page(text), "docs/faults.md is stale: run python -m scripts.fault_page, and commit it"
