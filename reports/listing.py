"""What ``napkin list`` shows: names and a line about each. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator


def rows(what: str) -> Iterator[tuple[str, ...]]:
    """The rows of one list."""
    match what:
        case "models":
            yield from _models()
        case "dtypes":
            yield from _dtypes()
        case "optimizers":
            yield from _optimizers()
        case "rules":
            yield from _rules()
        case "quantities":
            yield from _quantities()
        case "thumbs":
            yield from _thumbs()


def _models() -> Iterator[tuple[str, ...]]:
    from calc.catalogue import CATALOGUE

    for entry in CATALOGUE.values():
        options = "; ".join(f"{name}: {words}" for name, words in entry.options.items())
        yield entry.name, f"{entry.description}{f' ({options})' if options else ''}"
    yield "hf:PATH", "a Hugging Face config.json, or the folder that holds it"
    yield "FILE.py:NAME", "your own: NAME = calc.Spec(…) in FILE.py"


def _dtypes() -> Iterator[tuple[str, ...]]:
    from calc.dtypes import ITEM_SIZE

    for name, size in ITEM_SIZE.items():
        yield name, f"{size} {'bytes' if size != 1 else 'byte'}"


def _optimizers() -> Iterator[tuple[str, ...]]:
    from calc.options import OPTIMIZERS

    for name in OPTIMIZERS:
        yield name, "the one that the model's own spec builds" if name == "spec" else "torch.optim, with its defaults"


def _rules() -> Iterator[tuple[str, ...]]:
    from calc import rules  # noqa: F401  importing it fills the registry
    from calc.cost import REGISTRY

    for op, rule in sorted(REGISTRY.rules.items()):
        yield op, "counted", rule.statement
    for op, free in sorted(REGISTRY.frees.items()):
        yield op, "free", free.because


def _quantities() -> Iterator[tuple[str, ...]]:
    from calc.quantities import QUANTITIES

    for definition in QUANTITIES.values():
        yield definition.name, str(definition.unit), definition.meaning


def _thumbs() -> Iterator[tuple[str, ...]]:
    from calc.textbook import RULES

    for rule in RULES:
        yield rule.name, rule.statement, rule.source
