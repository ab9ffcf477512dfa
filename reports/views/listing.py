"""What ``napkin list`` shows, all or what holds some words: names and a line about each. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from reports.typeset.numbers import integer
from reports.writers.terminal import Terminal, bold, dim, right

if TYPE_CHECKING:
    from reports.page.rule_table import RuleEntry

_FEW = 4  # entries that are shown in full

COLUMNS = {
    "models": ("name", "about"),
    "dtypes": ("name", "size", "layout"),
    "optimizers": ("name", "about", "state"),
    "quantities": ("name", "unit", "meaning"),
    "rules-of-thumb": ("name", "statement", "source"),
}


def document(kind: str, search_words: Sequence[str] = ()) -> dict[str, Any]:
    """A list as plain data."""
    if kind == "questions":
        from reports.views import questions

        pairs = zip(questions.rows(), questions.document(), strict=True)
        return {"schema": 2, kind: [entry for row, entry in pairs if _holds(row, search_words)]}
    if kind == "rules":
        from reports.page import rule_table

        return {"schema": 2, "rules": [{**asdict(entry), "test": entry.test} for entry in rule_table.table(search_words)]}
    return {"schema": 2, kind.replace("-", "_"): [dict(zip(COLUMNS[kind], row, strict=True)) for row in rows(kind, search_words)]}


def show(kind: str, search_words: Sequence[str], out: Terminal) -> int:
    """Write one list; return the number of its entries."""
    if kind == "rules":
        from reports.page import rule_table

        entries = list(rule_table.table(search_words))
        _show_rules(entries, out) if search_words else _show_families(entries, out)
        return len(entries)
    table = list(rows(kind, search_words))
    if kind == "questions":
        _show_questions(table, search_words, out)
    else:
        out.table((), table)
    return len(table)


def _show_questions(table: Sequence[Sequence[str]], search_words: Sequence[str], out: Terminal) -> None:
    """Name and summary of each; of a few, or of the one that is named, the keys with their units instead."""
    entries = [row for row in table if [row[0]] == list(search_words)] or table
    if len(entries) > _FEW:
        out.table((), [row[:2] for row in entries])
        out.line("The keys of one: napkin list questions NAME", style="dim")
        return
    from reports.views import questions

    for i, (name, *_) in enumerate(entries):
        out.lines(*([""] if i else []))
        questions.show(name, out)


def _show_families(entries: Sequence[RuleEntry], out: Terminal) -> None:
    """How many operators each family of rules counts, and some of their names."""
    families: dict[str, list[str]] = {}
    for entry in entries:
        name = entry.operator.removeprefix("aten.").removesuffix(".default")
        families.setdefault(entry.family or "free", []).append(name)
    rows = [(family, integer(len(names)), _some(names)) for family, names in sorted(families.items())]
    out.table(("Family", *right("operators"), "for example"), rows)
    out.line("The rules of a family or an operator, with statement, shapes and source: napkin list rules WORD", style="dim")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_FEW]) + (", …" if len(names) > _FEW else "")


def _show_rules(entries: Iterable[RuleEntry], out: Terminal) -> None:
    """Each rule with all that is stated of it, then the operators that are free."""
    free = []
    for entry in entries:
        if entry.kind == "free":
            free.append((entry.operator, "free", entry.statement))
            continue
        out.line(bold(entry.operator), dim(f"  counted, {entry.family}"))
        for name in ("statement", "shapes", "source", "convention", "test"):
            if getattr(entry, name):
                out.line(dim(f"  {name:<10}   "), getattr(entry, name), hang=15)
        out.line()
    out.table((), free)


def rows(kind: str, search_words: Sequence[str] = ()) -> Iterator[tuple[str, ...]]:
    """The rows of one list in which every one of ``search_words`` occurs."""
    for row in _rows(kind):
        if _holds(row, search_words):
            yield row


def _holds(row: Sequence[str], search_words: Sequence[str]) -> bool:
    text = "\n".join(row).lower()
    return all(word.lower() in text for word in search_words)


def _rows(kind: str) -> Iterator[tuple[str, ...]]:
    match kind:
        case "models":
            yield from _models()
        case "dtypes":
            yield from _dtypes()
        case "optimizers":
            yield from _optimizers()
        case "quantities":
            yield from _quantities()
        case "rules-of-thumb":
            yield from _rules_of_thumb()
        case "questions":
            from reports.views import questions

            yield from questions.rows()


def _models() -> Iterator[tuple[str, ...]]:
    from calc.models.catalogue import CATALOGUE, configs

    for entry in CATALOGUE.values():
        options = "; ".join(f"{name}: {words}" for name, words in entry.options.items())
        yield entry.name, f"{entry.description}{f' ({options})' if options else ''}"
    for name in configs():
        yield f"transformers:{name}", "class of the transformers library at its default sizes"
    yield "hf:PATH", "a Hugging Face config.json, or the folder that holds it"
    yield "FILE.py:NAME", "your own: NAME = calc.Spec(…) in FILE.py"


def _dtypes() -> Iterator[tuple[str, ...]]:
    from calc.mathematics.dtypes.layouts import FORMATS
    from calc.units import ITEM_SIZE
    from reports.views.formats import bytes_words, layout_words

    for layout in FORMATS.values():
        stored = f"{'in memory' if layout.name == 'tf32' else 'torch:'} {layout.stored}; " if layout.stored else ""
        yield layout.name, bytes_words(layout), f"{stored}{layout_words(layout)}{f'; {layout.about}' if layout.about else ''}"
    for name in sorted(ITEM_SIZE.keys() - {layout.stored for layout in FORMATS.values()}):
        yield name, f"{ITEM_SIZE[name]} {'bytes' if ITEM_SIZE[name] != 1 else 'byte'}", "torch's name"


def _optimizers() -> Iterator[tuple[str, ...]]:
    from calc.options import LBFGS_STATE, NAMED_OPTIMIZERS, REFUSED, named
    from calc.symbolic.readable import readable

    for optimizer in NAMED_OPTIMIZERS.values():
        yield optimizer.name, named(optimizer.name), optimizer.words
    yield "spec", "the one that the model's own spec builds: Spec(…, optimizer=lambda parameters: …)", "what it keeps"
    for name, because in REFUSED.items():
        yield name, f"refused: {because}", f"{readable(LBFGS_STATE)} bytes" if name == "lbfgs" else ""


def _quantities() -> Iterator[tuple[str, ...]]:
    from calc.derive.quantities import QUANTITIES

    for definition in QUANTITIES.values():
        yield definition.name, str(definition.unit), definition.meaning


def _rules_of_thumb() -> Iterator[tuple[str, ...]]:
    from calc.derive.rules_of_thumb import RULES

    for rule in RULES:
        yield rule.name, rule.statement, rule.source
