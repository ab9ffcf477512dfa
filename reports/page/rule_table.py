"""The table of operator rules: statement, shapes, source and tests of each.

Tests are not installed with the package, so ``tests.rules.table`` writes which of them cover a rule into ``reports/data/tested.json``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from calc.rules import families  # noqa: F401  # importing it fills the registry
from calc.rules.registry import REGISTRY, Free, Rule

_TESTED = Path(__file__).resolve().parent.parent / "data" / "tested.json"


@dataclass(frozen=True, slots=True)
class RuleEntry:
    """An operator's rule, or the reason why the operator is free.

    ``calls``: how many real calls the tests compare with torch. ``model``: the model of tests/zoo whose check fails if the rule is wrong.
    A user's own rule has neither; ``untested`` says why.
    """

    operator: str
    kind: str
    family: str
    statement: str
    shapes: str
    source: str
    convention: str
    calls: int
    model: str | None
    untested: str

    @property
    def test(self) -> str:
        """The tests of the rule, as text."""
        if not self.calls:
            return self.untested
        compared = f"{self.calls} call{'s' if self.calls > 1 else ''} in tests/rules/cases.py"
        caught = f"a planted error in it fails the check of {self.model!r} in tests/zoo"
        return f"{compared}; {caught if self.model else self.untested}"


def find(operator: str) -> RuleEntry | None:
    """The entry of an operator; ``None`` if it has no rule and is not declared free."""
    rule = REGISTRY.find(operator)
    if rule is None:
        return None
    tested = _tested().get(operator, {})
    calls, model = tested.get("calls", 0), tested.get("model")
    untested = tested.get("because", "" if tested else "not tested in this package")
    if isinstance(rule, Free):
        return RuleEntry(operator, "free", "", rule.because, "", "stated free", "", calls, model, untested)
    return RuleEntry(operator, "counted", _family(rule), rule.statement, rule.shapes, rule.origin, rule.convention, calls, model, untested)


def table(search_words: Sequence[str] = ()) -> Iterator[RuleEntry]:
    """All entries whose texts contain every one of ``search_words``, ignoring case; counted operators first."""
    for operator in (*sorted(REGISTRY.rules), *sorted(REGISTRY.frees)):
        entry = find(operator)
        if entry is not None and all(word.lower() in _text(entry) for word in search_words):
            yield entry


def _text(entry: RuleEntry) -> str:
    texts = (entry.operator, entry.kind, entry.family, entry.statement, entry.shapes, entry.source, entry.convention)
    return "\n".join(texts).lower()


def _family(rule: Rule) -> str:
    """The module that defines the rule: ``matmul``."""
    return rule.function.__module__.rpartition(".")[2]


@cache
def _tested() -> Mapping[str, Any]:
    tests: Mapping[str, Any] = json.loads(_TESTED.read_text(encoding="utf-8"))
    return tests
