"""Module paths that differ in few components as one pattern, with braces as in a shell: ``layer1.{0–2}.bn1.{weight,bias}``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

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
    if all(name.isascii() and name.isdigit() and name == str(int(name)) for name in alternatives):
        alternatives = _runs(sorted(map(int, alternatives)))
    return f"{{{','.join(alternatives)}}}"


def _runs(numbers: Sequence[int]) -> list[str]:
    """``0, 1, 2, 3, 5`` → ``0–3, 5``: at least three consecutive numbers are a range."""
    runs: list[str] = []
    for _, group in groupby(enumerate(numbers), key=lambda numbered: numbered[1] - numbered[0]):
        run = [number for _, number in group]
        runs += [f"{run[0]}–{run[-1]}"] if len(run) > 2 else map(str, run)
    return runs
