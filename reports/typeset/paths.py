"""Module paths that differ in few components as one pattern, with braces as in a shell: ``layer1.{0–2}.bn1.{weight,bias}``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Alternatives = tuple[tuple[str, ...], ...]  # for each component of a path, what it may be


def pattern(paths: Sequence[str]) -> str:
    """A text that lists ``paths``, each once."""
    return ", ".join(patterns(paths))


def patterns(paths: Sequence[str]) -> tuple[str, ...]:
    """Patterns that expand to ``paths`` and to no others."""
    return tuple(".".join(map(_component, alternatives)) for alternatives in _merged({_split(path): None for path in paths}))


def _split(path: str) -> Alternatives:
    return tuple((part,) for part in path.split("."))


def _merged(patterns: Iterable[Alternatives]) -> list[Alternatives]:
    """Patterns that differ in one component only are merged, component by component, last component first."""
    merged = list(patterns)
    for place in reversed(range(max(map(len, merged), default=0))):
        together: dict[object, list[Alternatives]] = {}
        for each in merged:
            key = (each[:place], each[place + 1 :]) if place < len(each) else each
            together.setdefault((len(each), key), []).append(each)
        merged = [_union(place, group) for group in together.values()]
    return merged


def _union(place: int, group: Sequence[Alternatives]) -> Alternatives:
    if len(group) == 1:
        return group[0]
    return (*group[0][:place], tuple(name for each in group for name in each[place]), *group[0][place + 1 :])


def _component(alternatives: Sequence[str]) -> str:
    if len(alternatives) == 1:
        return alternatives[0]
    numbers = [int(name) for name in alternatives if name.isascii() and name.isdigit()]
    if len(numbers) == len(alternatives) > 2 and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return f"{{{numbers[0]}–{numbers[-1]}}}"
    return f"{{{','.join(alternatives)}}}"
