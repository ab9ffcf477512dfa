"""The wheel, as installed somewhere else: it carries templates and data, and works from any directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# What a folder holds besides code must travel; tests and caches must not.
DATA = [ROOT / "calc" / "data", ROOT / "reports" / "data", ROOT / "templates"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the tree: building in place would leave its traces there."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    for name in ("calc", "reports", "templates", "tests"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    _run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(tree)], cwd=folder)
    return next(folder.glob("*.whl"))


def _run(command: list[str], cwd: Path, **environment: str) -> str:
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_wheel_carries_all_data_and_no_tests(wheel: Path) -> None:
    """Every file of the data folders and templates, the licence, and three top-level packages."""
    names = set(zipfile.ZipFile(wheel).namelist())
    files = {str(p.relative_to(ROOT)) for folder in DATA for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts}

    assert files <= names
    assert {"calc", "reports", "templates"} == {n.split("/")[0] for n in names if ".dist-info/" not in n}
    assert any(n.endswith("licenses/LICENSE") for n in names)


def test_the_installed_wheel_works_from_another_directory(wheel: Path, tmp_path: Path) -> None:
    """It derives and writes a report there, with nothing of the source tree in reach."""
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    _run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), str(wheel)], cwd=elsewhere)
    environment = {"PYTHONPATH": str(site), "NAPKIN_CACHE": "off"}

    files = "import calc, reports, templates; print(calc.__file__, reports.__file__, templates.__file__)"
    where = _run([sys.executable, "-c", files], elsewhere, **environment)
    main = "import sys; from reports.cli import main; sys.argv[0] = 'napkin'; main()"
    _run([sys.executable, "-c", main, "report", "linear", "-o", "out"], elsewhere, **environment)

    assert all(str(site) in place for place in where.split())
    assert {"report.md", "report.html", "report.json"} <= {p.name for p in (elsewhere / "out").iterdir()}
