"""What the README tells a newcomer to type works as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import calc
from reports import cli

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def example() -> str:
    """The user's own module, exactly as printed."""
    match = re.search(r"<!-- example:begin -->\n```python\n(.*?)```\n<!-- example:end -->", README, re.DOTALL)
    assert match is not None
    return match[1]


def test_the_example_of_a_users_own_module_is_short() -> None:
    """About ten lines."""
    assert len([line for line in example().splitlines() if line.strip()]) <= 12


def test_the_example_of_a_users_own_module_derives_and_checks(tmp_path: Path) -> None:
    """d f + f + f d + d parameters, 64*256 + 256 + 256*64 + 64 at its defaults, and every check of a real run holds."""
    (tmp_path / "my_model.py").write_text(example(), encoding="utf-8")

    result = calc.derive(calc.load(f"{tmp_path / 'my_model.py'}:spec"), cache=False)
    report = calc.check(result)

    assert result["parameters"].value == 64 * 256 + 256 + 256 * 64 + 64
    assert report.ok
    assert report.passed > 0
    assert dict(report.sizes) == {"B": 3, "d": 5, "f": 20}


def test_the_worked_numbers_are_right() -> None:
    """2 B T f d, times L, twice that backward, and 4 B T f bytes, at B = 8, T = 1024, d = 768, f = 3072, L = 12."""
    one = 2 * 8 * 1024 * 3072 * 768

    for number in (one, 12 * one, 2 * 12 * one, 4 * 8 * 1024 * 3072):
        assert f"{number:,}" in README


def verified(text: str, folder: Path) -> Result:
    """What ``napkin verify`` says of it."""
    (folder / "README.md").write_text(text, encoding="utf-8")
    return CliRunner().invoke(cli.napkin, ["verify", str(folder / "README.md"), "--require-claims", "13"])


def test_the_numbers_of_the_readme_are_live(tmp_path: Path) -> None:
    """All of them hold, and none holds with another first digit."""
    assert verified(README, tmp_path).exit_code == 0
    page = README.partition("<!-- document:begin -->")[0]  # what follows is an example, quoted
    claims = list(re.finditer(r"([1-9])([\d,.]*)(?: [A-Z]+)?<!--=", page))
    assert len(claims) == 13
    wrong = README
    for claim in reversed(claims):
        wrong = f"{wrong[: claim.start()]}{9 - int(claim[1]) or 1}{wrong[claim.start() + 1 :]}"
    result = verified(wrong, tmp_path)

    assert result.exit_code == 1
    assert [f"{9 - int(claim[1]) or 1}{claim[2]}" for claim in claims] == re.findall(r"document says ([\d,.]+)", result.stdout)
    assert result.stdout.endswith("0 of 13 claims hold\n")


def between(name: str) -> str:
    """What stands between two comments, without its fence."""
    match = re.search(rf"<!-- {name}:begin -->\n(`+)\w+\n(.*?)\n\1\n<!-- {name}:end -->", README, re.DOTALL)
    assert match is not None
    return match[2]


def test_the_example_of_a_live_document_holds_as_the_workflow_checks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line of the workflow, typed beside the document."""
    monkeypatch.chdir(tmp_path)
    Path("design.md").write_text(between("document") + "\n", encoding="utf-8")
    (words,) = re.findall(r"- run: napkin (.*)", between("workflow"))
    result = CliRunner().invoke(cli.napkin, words.split())

    assert (result.exit_code, result.stdout) == (0, "")
    Path("design.md").write_text(between("document").replace("996 MB", "997 MB"), encoding="utf-8")
    wrong = CliRunner().invoke(cli.napkin, words.split())
    assert wrong.exit_code == 1
    assert wrong.stdout.startswith("::error file=design.md,line=5,col=")


def test_every_folder_of_the_packages_is_in_the_tree() -> None:
    """And nothing that is not there."""
    tree = re.search(r"## Where things are\n\n```\n(.*?)```", README, re.DOTALL)
    assert tree is not None
    named, parent = set(), ""
    for line in tree[1].splitlines():
        folder = line.split()[0].rstrip("/")
        parent = parent if line.startswith(" ") else folder
        named.add(f"{parent}/{folder}" if line.startswith(" ") else folder)
    real = {
        str(path.relative_to(ROOT))
        for top in ("calc", "reports", "templates")
        for path in [ROOT / top, *(ROOT / top).iterdir()]
        if path.is_dir() and path.name != "__pycache__"
    }

    assert named == real | {"tests"}


SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_the_security_page_names_tests_that_there_are() -> None:
    """Every file in its table; and the README leads to it."""
    named = re.findall(r"`(tests/[^`]*)`", SECURITY)

    assert len(named) > 10
    assert [] == [name for name in named if not (ROOT / name).is_file()]
    assert "(SECURITY.md)" in README


def test_the_limits_of_the_security_page_are_those_of_the_code() -> None:
    """Each with what it limits."""
    from calc.capacity.sharding.table import MOST_RANKS
    from calc.graph import reading
    from reports.live import document, written_numbers

    limits = {
        "characters, 200,000 lines": document.LONGEST,
        "lines": document.MOST_LINES,
        "statements": document.MOST_STATEMENTS,
        "claims": document.MOST_CLAIMS,
        "layers": document.MOST_LAYERS,
        "digits": written_numbers.MOST_DIGITS,
        "characters and 500 terms": reading.LENGTH,
        "terms": reading.TERMS,
        "combinations of ranks": MOST_RANKS,
    }
    page = " ".join(SECURITY.split())

    assert [] == [what for what, limit in limits.items() if f"{limit:,} {what}" not in page]
