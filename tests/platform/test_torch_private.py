"""What Napkin uses of torch that is not public: in one file, and reported where a version lacks it or is newer than any that was tried."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from calc.errors import TorchVersionError
from calc.platform import torch_private

ROOT = Path(__file__).resolve().parents[2]
_PRIVATE = re.compile(r"\b_[a-zA-Z]\w*")
PUBLIC_OPERATORS = ("torch.ops.",)  # names of operators are data, as in rules and traces
REPLACED = ("torch.nn.init._no_grad_trunc_normal_",)  # an attribute that is replaced for a while


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def _private_uses(tree: ast.AST) -> list[str]:
    """Private names of torch's modules that a file imports or reads."""
    used = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            used += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            used += [alias.name for alias in node.names if alias.name.partition(".")[0] == "torch"]
        elif isinstance(node, ast.Attribute) and _dotted(node).startswith("torch."):
            used.append(_dotted(node))
    return [name for name in used if (_PRIVATE.search(name) or ".experimental" in name) and not name.startswith(PUBLIC_OPERATORS)]


def test_private_names_of_torch_are_read_in_one_file() -> None:
    """Every other file of calc and reports imports them from there."""
    files = [file for top in ("calc", "reports") for file in sorted((ROOT / top).rglob("*.py")) if file.name != "torch_private.py"]
    uses = {str(file.relative_to(ROOT)): _private_uses(ast.parse(file.read_text(encoding="utf-8"))) for file in files}
    known = {*torch_private.ATTRIBUTES, *REPLACED}

    assert {} == {file: names for file, used in uses.items() if (names := [name for name in used if name not in known])}
    assert ["torch._C"] == _private_uses(ast.parse("import torch._C"))
    assert ["torch.utils._pytree.tree_map"] == _private_uses(ast.parse("from torch.utils._pytree import tree_map"))


@pytest.mark.parametrize("name", sorted(torch_private._PLACES))
def test_this_torch_has_every_private_name(name: str) -> None:
    """Looked up as those that need it look it up."""
    optional = name == "scaled_mm"  # only the measurement of fp8 products needs that one

    assert optional or getattr(torch_private, name) is not None


@pytest.mark.parametrize("name", torch_private.ATTRIBUTES)
def test_this_torch_has_every_private_attribute(name: str) -> None:
    """Read from the objects that the table names."""
    first, *rest = name.split(".")
    owner: Any = importlib.import_module(first)
    for i, part in enumerate(rest):
        if not hasattr(owner, part):
            importlib.import_module(".".join((first, *rest[: i + 1])))
        assert hasattr(owner, part), f"{name}: no {part}"
        owner = getattr(owner, part)


def test_a_torch_that_lacks_a_name_is_refused_in_one_line_that_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the versions that have it."""
    monkeypatch.setitem(torch_private._PLACES, "gone", ("torch._C", "_no_such_name"))
    with pytest.raises(TorchVersionError) as refused:
        torch_private.gone  # noqa: B018  # looking it up is the point

    assert "has no torch._C._no_such_name, which Napkin needs" in str(refused.value)
    assert all(version in str(refused.value) for version in torch_private.TRIED)


def test_only_a_torch_newer_than_every_version_tried_is_untried() -> None:
    """Whatever its build is called."""
    newest = torch_private.TRIED[-1]

    assert "" == torch_private.untried(f"{newest}.3+cu132")
    assert "" == torch_private.untried("2.12.1")
    assert f"torch 3.0.0a0 is newer than {newest}, the newest that Napkin was tried with" == torch_private.untried("3.0.0a0")


@pytest.mark.slow
def test_a_newer_torch_gives_one_line_of_warning_and_the_provenance_says_so() -> None:
    """And no error: the step is derived."""
    code = (
        "import torch; torch.__version__ = '2.99.0'; import calc; "
        "print(calc.trace(calc.load('linear'), cache=False).provenance['torch_untried'])"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)

    said = f"torch 2.99.0 is newer than {torch_private.TRIED[-1]}, the newest that Napkin was tried with"
    assert (0, f"{said}\n", f"warning: {said}\n") == (run.returncode, run.stdout, run.stderr)


def test_the_resolver_has_no_upper_bound_of_torch_and_the_table_begins_with_its_lower_one() -> None:
    """The pinned version is among those tried."""
    project, pinned = ((ROOT / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "constraints.txt"))
    pin = re.search(r"^torch==(\d+\.\d+)", pinned, re.MULTILINE)

    assert [f"torch>={torch_private.TRIED[0]}"] == re.findall(r'"(torch[<>=][^"]*)"', project)
    assert pin is not None
    assert pin[1] in torch_private.TRIED
