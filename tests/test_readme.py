"""What the README tells a newcomer to type works as it stands."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import calc
from reports import cli

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SKILL = (ROOT / "SKILL.md").read_text(encoding="utf-8")


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


_TOP = r"(?m)^\$ (?:\. \.venv/bin/activate && )?(napkin .*?)(?:\s+# .*)?$"
_SLOW = ("napkin report", "napkin predict", "napkin check gpt2",
         "napkin layout", "napkin sweep gpt2", "napkin shard", "napkin inference", "napkin roofline",
         "napkin derive gpt2", "napkin compare", "napkin ask largest-batch", "napkin published kaplan",
         "napkin homework")  # fmt: skip
_CONFIG = """{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 100, "max_position_embeddings": 32}"""


def commands(text: str) -> list[str]:
    """What a reader may type: after ``$``, and in backquotes."""
    inline = (code for code in re.findall(r"`(napkin [^`]*)`", text) if not re.search(r"[…<]|MODEL", code))
    return list(dict.fromkeys((*re.findall(_TOP, text), *inline)))


def typed() -> list[Any]:
    every = dict.fromkeys((*commands(README), *(command for command in commands(SKILL) if " " in command.removeprefix("napkin "))))
    return [pytest.param(each, marks=pytest.mark.slow if each.startswith(_SLOW) else ()) for each in every]


@pytest.mark.parametrize("command", typed())
def test_every_command_works_as_it_is_printed(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the files that it names: the example's module, a small config, the example's document."""
    if re.fullmatch(r"napkin (derive|ask|check|verify|report)( --\S+)*( json)?", command):
        return  # named, not typed
    monkeypatch.chdir(tmp_path)
    (tmp_path / "path" / "to").mkdir(parents=True)
    for name, text in (("my_model.py", example()), ("path/to/config.json", _CONFIG), ("design.md", between("document") + "\n"),
                       ("README.md", README)):  # fmt: skip
        Path(name).write_text(text, encoding="utf-8")
    result = CliRunner().invoke(cli.napkin, shlex.split(command)[1:])

    assert result.exit_code == 0, result.stderr
    if "--json" in command:
        assert json.loads(result.stdout)


def test_the_five_most_used_commands_are_printed_first() -> None:
    """And the picture is one of moderate size, in the repository."""
    first = [command.split()[1] for command in commands(README)[:6]]
    (picture,) = re.findall(r"!\[[^]]+\]\(([^)]+)\)", README)

    assert first == ["--help", "derive", "check", "report", "ask", "verify"]
    assert 10_000 < (ROOT / picture).stat().st_size <= 150_000


def test_every_target_of_make_that_is_named_exists() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)

    assert set(re.findall(r"(?:`|\$ )make ([a-z-]+)", README)) <= set(targets)


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
