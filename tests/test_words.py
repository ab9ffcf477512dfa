"""Words that a reader would have to decode do not come back: the field has better ones. What is switched off has its reason in words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

REPLACED = {
    "born and not yet dead": "allocated and not yet freed",
    "run one after another": "disjoint, so they add",
    "autograd holds this tensor": "why the backward needs it: dW = xᵀ dy needs x",
    "(takes?|took|taking) for granted": "assumes, assumptions",
    "as nothing was said": "by default",
    "for want of a rule": "without a rule",
    "travel with the package": "bundled",
    "derived anew": "re-derived",
    "any other of its letters": "any other variable",
    "request itself could not be met": "the input was invalid",
    "behind each stands": "each is followed by",
    "that its sizes allow": "inferred from the sizes",
    "what runs again": "what is recomputed in the backward",
    "turned round|turns? a question round": "solves for",
    "go(es)? before ours": "override the built-in ones",
    "the memory that is there": "views",
    "made-up": "synthetic",
    "points that the model cannot have": "invalid sizes",
    "no unit that is known": "unknown unit",
    "not a unit of it": "wrong unit",
    "begins no statement|is no statement": "unknown statement",
    "means nothing here": "is not allowed in an expression",
    "rule over exact": "rule ÷ exact − 1",
    "alike but for their place": "identical",
    "thousand million": "10⁹",
    "written over, through": "a write through any view",
    "by itself is no size": "is a valid size only inside floor, ceil or round",
    "true as written, false as": "literally true but misleading",
    "bound(s|ed)? from below": "lower bound",
    "nothing is said of": "what holds, or why nothing does",
    "gives? way to": "is replaced by",
    "decided by data|data decides?": "data-dependent (unbacked)",
    "kept for (the|a) backward": "saved for backward",
    "takeovers?|reigns?": "crossover, interval",
    "reckonings?": "worked calculation",
    "step ?work": "step operators",
    "stand-?ins?": "operator override",
    "coincidences?": "size specialization",
    "(recorded|traced) apart|cases? of (its|their) own": "traced separately, special case",
    "runs? otherwise": "runs other operators",
    "largest moments?": "peak candidate",
    "number \\d+ from the (first|last)": "iteration 2, call 3 from the end",
    "a kin of": "or the like",
    "are no modules": "are not modules",
    "number that a claim follows": "number followed by a claim",
    "in whose place it stands": "at its position",
    "goes by its number": "uses its value",
    "evaluated for real": "computed on real tensors",
    "found by recording": "inferred by tracing",
    "initialis|normalis|quantis|neighbour|colour": "US spelling, as PyTorch",
}
"""Regular expressions of whole words, matched in any case, and what to write instead."""

ANY = re.compile(rf"\b(?:{'|'.join(REPLACED)})", re.IGNORECASE)

VAGUE = ("found", "known", "held", "kept", "told", "asked", "again", "such", "other", "what", "here", "there")
"""Names that say how a value came about or nothing at all; a name says what the value is."""

OF_FORMATS = {("reports/page/inputs.py", "other")}
"""Fields whose names are keys of a format."""

SWITCH = re.compile(r"#\s*(?:noqa|type:\s*ignore)\b.*")
EXPLAINED = re.compile(r"# (?:noqa: [A-Z]+\d+(?:, [A-Z]+\d+)*|type: ignore\[[a-z-]+(?:, ?[a-z-]+)*\])  # \w")
SKIP = re.compile(r"pytest\.(?:skip|xfail)\(.*|\bmark\.(?:skip|skipif|xfail)\b.*")
GIVEN = re.compile(r"""pytest\.(?:skip|xfail)\((?:f?"\w|str\()|\bmark\.\w+\(.*reason=f?"\w""")

CLEAN = ("calc", "reports", "templates", "tests", "README.md", "CONTRIBUTING.md", "SKILL.md", "SECURITY.md")
"""Folders and documents whose texts have none of these words. More may join; none may leave."""

def files(room: str) -> list[Path]:
    """The Python files, templates and decisions of a room, without this file."""
    path = ROOT / room
    if path.is_file():
        return [path]
    every = sorted(f for f in path.rglob("*") if f.suffix in (".py", ".j2", ".css") or f.name == "DECISIONS.md")
    return [file for file in every if file != Path(__file__).resolve()]


def texts(file: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each string literal and docstring; of a template or a document, of each line. Keys of dictionaries are formats."""
    source = file.read_text(encoding="utf-8")
    if file.suffix != ".py":
        yield from enumerate(source.splitlines(), 1)
        return
    tree = ast.parse(source)
    keys = {id(key) for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys if _is_word(key)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in keys:
            yield node.lineno, " ".join(node.value.split())


def _is_word(key: ast.expr | None) -> bool:
    return isinstance(key, ast.Constant) and str(key.value).isidentifier()


def replaced(text: str) -> list[str]:
    """Each replaced word in a text with the better one. Most texts have none, which one search says."""
    if not ANY.search(text):
        return []
    matches = ((re.search(rf"\b(?:{words})", text, re.IGNORECASE), better) for words, better in REPLACED.items())
    return [f"{match[0]!r}: write {better}" for match, better in matches if match]


@pytest.mark.parametrize("room", CLEAN)
def test_a_room_has_none_of_the_replaced_words(room: str) -> None:
    """In no help text, message, docstring or template; each offender is named with its place."""
    assert files(room), room
    offenders = [
        f"{file.relative_to(ROOT)}:{line}: {each}" for file in files(room) for line, text in texts(file) for each in replaced(text)
    ]

    assert offenders == []


@pytest.mark.parametrize("words", ["the storages born and not yet dead", "The Colour of a dot", "5 tensors kept for the backward"])
def test_a_planted_word_is_noticed(words: str) -> None:
    """Inside a sentence, in any case."""
    assert len(replaced(words)) == 1


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of each variable, parameter, function, class and alias. The second operand of a special method is ``other``."""
    operands = {id(arg) for node in ast.walk(tree) for arg in _operands(node)}
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name) if id(node) not in operands:
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.alias(asname=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name


def _operands(node: ast.AST) -> list[ast.arg]:
    """The parameters of ``def __add__(self, other)``, or of ``lambda self, other: …``."""
    special = isinstance(node, ast.Lambda) or (isinstance(node, ast.FunctionDef) and node.name.startswith("__"))
    return node.args.args if special and [arg.arg for arg in node.args.args] in (["self", "other"], ["cls", "other"]) else []


def vague(source: str) -> list[tuple[int, str]]:
    """Line and name of each of the ``VAGUE`` names, private ones included."""
    return [(line, name) for line, name in names(ast.parse(source)) if name.strip("_").lower() in VAGUE]


@pytest.mark.parametrize("room", ["calc", "reports"])
def test_a_name_says_what_the_value_is(room: str) -> None:
    """No variable, parameter, field, function or class is called ``found``, ``known`` or the like."""
    paths = [file for file in files(room) if file.suffix == ".py"]
    assert paths, room

    vague_names = [(str(file.relative_to(ROOT)), line, name) for file in paths for line, name in vague(file.read_text(encoding="utf-8"))]
    assert [] == [f"{file}:{line}: {name}" for file, line, name in vague_names if (file, name) not in OF_FORMATS]


@pytest.mark.parametrize(
    "source", ["found = 1", "def _kept(): ...", "def f(known): ...", "[held for held in x]", "class A:\n    here: int", "import a as told"]
)
def test_a_planted_vague_name_is_noticed(source: str) -> None:
    """Of a variable, a function, a parameter, in a comprehension, as a field, of an import."""
    assert len(vague(source)) in (1, 2)


def test_the_second_operand_of_a_special_method_may_be_called_other() -> None:
    """As in Python's own documentation; that of another function may not."""
    assert [] == vague("class A:\n    def __add__(self, other): ...")
    assert [(1, "other")] == vague("def add(self, other): ...")


def unexplained(line: str) -> bool:
    """Whether a line ignores a finding of ruff or mypy, or skips a test, without a code or without words that say why."""
    switch, skip = SWITCH.search(line), SKIP.search(line)
    return bool(switch and not EXPLAINED.match(switch[0])) or bool(skip and not GIVEN.match(skip[0]))


@pytest.mark.parametrize("room", ["calc", "reports", "templates", "tests"])
def test_each_ignore_and_each_skip_says_why(room: str) -> None:
    """Beside it; those no longer needed are reported by ruff (RUF100) and mypy (warn_unused_ignores). Mypy does not read tests."""
    lines = [(file, n, line) for file in files(room) for n, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)]
    assert lines, room

    offenders = [(file, n) for file, n, line in lines if unexplained(line) or (room == "tests" and "# type: ignore" in line)]
    assert [] == [f"{file.relative_to(ROOT)}:{n}" for file, n in offenders]


@pytest.mark.parametrize(
    "line",
    [
        "x = f()  # noqa",
        "x = f()  # noqa: E731",
        "import x  # noqa: F401  importing it is the point",
        "x = f()  # type: ignore  # untyped in torch",
        "x = f()  # type: ignore[misc]",
        "x = f()  # type:ignore[misc]  # untyped in torch",
        "    pytest.skip()",
        '    pytest.skip("")',
        "@pytest.mark.skip",
        "@pytest.mark.skipif(CHROMIUM is None)",
        '@pytest.mark.xfail(reason="")',
    ],
)
def test_a_planted_ignore_without_a_reason_is_noticed(line: str) -> None:
    """The same line with a code and words is not."""
    assert unexplained(line)


@pytest.mark.parametrize(
    "line",
    [
        "x = f()  # noqa: E731  # binds the weight",
        "x = f()  # type: ignore[misc, index]  # none is None",
        "    pytest.skip(str(error))",
        '@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")',
    ],
)
def test_an_ignore_with_a_reason_stays(line: str) -> None:
    """A code and words for a linter, words for a skip."""
    assert not unexplained(line)
