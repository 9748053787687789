"""The house rules that a machine can check."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.mark.parametrize(
    "arguments", [["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]], ids=["lint", "format", "types"]
)
def test_the_source_is_clean(arguments):
    result = subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_ci_runs_the_test_command_of_the_readme_letter_for_letter():
    commands = re.search(r"```bash\n(.+)\n(.+)\n```", (ROOT / "README.md").read_text())
    assert commands is not None
    main, tests = commands.groups()
    assert "requirements.txt && " in main
    assert main.endswith("python train.py pos=rope")
    assert tests.endswith("-m pytest")
    assert tests in (ROOT / ".ci" / "run").read_text().splitlines()


def test_every_requirement_is_pinned_to_one_version():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    packages = [line for line in lines if not line.startswith(("#", "-e"))]
    assert lines[-1] == "-e ."
    assert all(re.match(r"[a-z0-9-]+==[\d.]+ +# \w", line) for line in packages)
    assert f"pip install {packages[0].split()[0]} --index-url" in read("README.md")


FLOORS = (
    {"errors", "bounds", "compat"},
    {"positions", "storage", "distributed"},
    {"interventions", "model", "config"},
    {"data", "tracking"},
    {"objectives", "analysis"},
    {"evaluation", "report"},
    {"training"},
    {"sweeps"},
    {"commands"},
)
"""The packages of src/posenc from the ground up."""


def test_the_packages_are_listed_from_the_top_down():
    (listed,) = re.findall(r"```\n(.+?)```", read("docs/architecture.md"), re.DOTALL)
    assert [set(re.split(", ", line.split("  ")[0])) for line in listed.splitlines()] == [*reversed(FLOORS)]


def test_a_package_imports_only_those_below_it():
    below: set[str] = set()
    root = ROOT / "src" / "posenc"
    for floor in FLOORS:
        for package in floor:
            files = [*(root / package).rglob("*.py"), *root.glob(f"{package}.py")]
            assert files
            for file in files:
                imported = set(re.findall(r"(?:from|import) posenc\.(\w+)", file.read_text()))
                assert imported <= below | {package} or file.name == "__main__.py", file
        below |= floor
    there = {path.stem for path in root.iterdir() if not path.name.startswith("__")}
    assert there == below


def test_the_position_schemes_import_what_the_readme_installs_for_them_and_nothing_else():
    install = re.search(r"schemes\s+need\s+only\s.*?`pip install (.+?)`", read("README.md"), re.DOTALL)
    assert install is not None
    given = [name.replace("-", "_") for name in install.group(1).split()]
    script = f"""
import sys, {", ".join(given)}
top_level = lambda: {{name.partition(".")[0] for name in sys.modules}}
before = top_level()
import posenc.positions
print(*(top_level() - before - sys.stdlib_module_names))
"""
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["posenc"]


@pytest.mark.parametrize("package", ["positions", "interventions", "model"])
def test_the_science_imports_torch_and_nothing_else(package):
    files = (ROOT / "src" / "posenc" / package).glob("*.py")
    lines = re.compile(r"^ *(?:from|import) (\w+)", re.MULTILINE)
    imported = {name for file in files for name in lines.findall(file.read_text())}
    assert imported - sys.stdlib_module_names - {"annotated_types"} == {"torch", "posenc"}


def test_the_analysis_imports_no_torch():
    script = """
import importlib, pkgutil, sys, posenc.analysis as analysis
for module in pkgutil.iter_modules(analysis.__path__, "posenc.analysis."):
    importlib.import_module(module.name)
print(*({"torch", "lightning"} & sys.modules.keys()))
"""
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.split() == []
    for file in (ROOT / "src" / "posenc" / "analysis").glob("*.py"):
        assert not re.search(r"^ *(from|import) (torch|lightning)\b", file.read_text(), re.MULTILINE), file


def test_nothing_asks_which_scheme_it_has():
    sources = "".join(file.read_text() for file in (ROOT / "src").rglob("*.py"))
    schemes = "|".join(file.stem for file in (ROOT / "conf" / "pos").iterdir())
    assert not re.search(rf"[=!]= ['\"]({schemes})['\"]", sources)


def test_the_private_names_of_libraries_are_used_in_compat_alone():
    private = re.compile(
        r"(?<![\w.])(?:[\w.]+|super\(\))\._[a-z]\w*|[(,] ?_[a-z]\w*=(?!=)|__dataclass_fields__|import _\w+"
    )
    files = [file for file in (ROOT / "src").rglob("*.py") if file.name != "compat.py"]
    found = {name for file in files for name in private.findall(file.read_text())}
    theirs = {name for name in found if not name.startswith(("self.", "cls."))}
    assert theirs == {"os._exit", "context._replace"}  # which are documented


def test_uv_installs_the_versions_of_the_requirements():
    locked = {package["name"]: package.get("version") for package in tomllib.loads(read("uv.lock"))["package"]}
    pinned = re.findall(r"^([a-z0-9-]+)==([\d.]+)", read("requirements.txt"), re.MULTILINE)
    assert {name: locked[name] for name, _ in pinned} == dict(pinned)


def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), flags=re.M)
    names = [re.sub(r"[^\w\- ]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).lower()) for heading in headings]
    return {name.replace(" ", "-") for name in names}


def test_every_link_from_one_page_to_another_resolves_with_its_anchor():
    folders = ("docs", "benchmarks", "results")
    pages = [*ROOT.glob("*.md"), *(page for folder in folders for page in (ROOT / folder).rglob("*.md"))]
    assert len(pages) > 30
    for page in pages:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if "://" in link:
                continue
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            assert target.exists(), f"{page}: {link}"
            if target.is_dir() and anchor:
                target /= "README.md"
            assert not anchor or anchor in anchors(target), f"{page}: {link}"


def read(name: str) -> str:
    return (ROOT / name).read_text()
