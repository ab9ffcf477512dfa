"""The table of rules: what is stated of each operator, of which shapes, where that is from, and the tests that it stands.

Tests are no part of an installed program; which of them stand behind a rule is data, written by ``tests.rules.table``.
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
    """An operator's rule, or the reason why it is free. ``calls`` of it are compared with torch; an error in it fails the check of
    ``model``. A rule of a user's own has neither."""

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
        """The tests in words."""
        if not self.calls:
            return self.untested
        compared = f"{self.calls} call{'s' if self.calls > 1 else ''} in tests/rules/cases.py"
        return f"{compared}; an error in it fails {self.model!r} of tests/zoo" if self.model else f"{compared}; {self.untested}"


def find(operator: str) -> RuleEntry | None:
    """What is known of an operator."""
    rule = REGISTRY.find(operator)
    if rule is None:
        return None
    tested = _tested().get(operator, {})
    calls, model = tested.get("calls", 0), tested.get("model")
    untested = tested.get("because", "" if tested else "no test of this program")
    if isinstance(rule, Free):
        return RuleEntry(operator, "free", "", rule.because, "", "stated free", "", calls, model, untested)
    return RuleEntry(operator, "counted", _family(rule), rule.statement, rule.shapes, rule.source, rule.convention, calls, model, untested)


def table(words: Sequence[str] = ()) -> Iterator[RuleEntry]:
    """All entries, those counted first; only those in whose operator, family or text every one of ``words`` occurs."""
    for operator in (*sorted(REGISTRY.rules), *sorted(REGISTRY.frees)):
        entry = find(operator)
        if entry is not None and all(word.lower() in _text(entry) for word in words):
            yield entry


def _text(entry: RuleEntry) -> str:
    texts = (entry.operator, entry.kind, entry.family, entry.statement, entry.shapes, entry.source, entry.convention)
    return "\n".join(texts).lower()


def _family(rule: Rule) -> str:
    """The file that the rule stands in."""
    return rule.function.__module__.rpartition(".")[2]


@cache
def _tested() -> Mapping[str, Any]:
    tests: Mapping[str, Any] = json.loads(_TESTED.read_text(encoding="utf-8"))
    return tests
