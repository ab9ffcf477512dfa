"""Sizes and other named values as text: ``B = 8, T = 1,024`` in prose, ``B=8, T=1024`` as they are typed. One writer and one reader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from calc.errors import BadInputError

# Notations: in prose, in messages whose numbers are read again, as typed.
PROSE, PLAIN, TYPED = "{} = {:,}", "{} = {}", "{}={}"


def sizes_text(sizes: Mapping[str, object], notation: str = PROSE, between: str = ", ") -> str:
    """``B = 8, T = 1,024``, or in another notation."""
    return between.join(notation.format(name, size) for name, size in sizes.items())


def is_assignment(word: str) -> bool:
    """Whether a word is ``g=32`` or ``zero-grad=zero``; ``gpt2:dropout=0.1`` is a model."""
    name, equals, _ = word.partition("=")
    return bool(equals) and name.replace("-", "_").isidentifier()


def assignment(text: str, form: str, error: type[BadInputError] = BadInputError) -> tuple[str, str]:
    """``"B=8"`` as a name and the text of its value. ``form`` completes the message of the error if a part is missing."""
    name, _, value = (part.strip() for part in text.partition("="))
    if not name or not value:
        raise error(f"cannot read {text[:40]!r}: write {form}")
    return name, value


def read_assignments(texts: Iterable[str], form: str) -> dict[str, str]:
    """The text of each value by its name. Raises BadInputError also for a name that is given twice, which may be a slip."""
    values: dict[str, str] = {}
    for name, value in (assignment(text, form) for text in texts):
        if name in values:
            raise BadInputError(f"{name[:40]} is given twice, {values[name][:40]!r} and {value[:40]!r}: give it once")
        values[name] = value
    return values
