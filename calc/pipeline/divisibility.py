"""Sizes that must be multiples of something, found where a model says nothing of it: it runs at its own sizes and not at others.

Symbols divide only what is declared to be a multiple of them. Where the step raises with symbols in place of sizes, and runs at the
sizes asked for, a size that these allow (an image of 32 that is halved twice is a multiple of 4) is taken for such a multiple, and
the recording starts anew; the assumption says so. A size that is split among others may have to be a multiple once more: a width of
which each head rotates pairs is one of twice the heads. Where no multiple is enough, sizes stay numbers, and that is said as well.
Torch-free.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from calc.dimensions import Dim
from calc.errors import DividedError, NapkinError, SizesError, line_in
from calc.graph.unbacked_sizes import Declared
from calc.spec import Spec

Recorded = TypeVar("Recorded")

_POWERS = (2, 4, 8, 16, 32, 64)
_DIVISION = re.compile(r"([A-Za-z_]\w*)\)* *//? *\(*(\w+)")
# How often recording with a further multiple is tried.
_MOST_TRIED = 40
# A batch is divided by nothing.
_NEVER_DIVIDES = ("B",)


def first_that_records(
    spec: Spec,
    sizes: Mapping[str, int],
    error: SizesError,
    record: Callable[[Spec], Recorded],
    progress: Callable[[str], None],
    cost: Callable[[Recorded], int] = lambda _: 0,
) -> Recorded | None:
    """What ``record`` makes of ``spec`` with the fewest and smallest further multiples that let it; nothing where there are none, or too
    many to try.

    ``sizes`` are those asked for, ``error`` is what recording without multiples came to. ``cost`` is what a record takes for granted
    beside multiples: a smaller multiple is none for more of that.
    """
    left = [_MOST_TRIED]
    first = _first(spec, sizes, error, record, progress, left)
    return None if first is None else _least(spec, *first, record, progress, left, cost)


def _least(
    given: Spec,
    spec: Spec,
    recorded: Recorded,
    record: Callable[[Spec], Recorded],
    progress: Callable[[str], None],
    left: list[int],
    cost: Callable[[Recorded], int],
) -> Recorded:
    """What was ``recorded`` of ``spec``, or what is with smaller multiples or without some: each that it has beside ``given`` is tried with
    its divisors, the smallest first."""
    for name in [name for name, dim in spec.dimensions.items() if dim.because]:
        for smaller in _smaller(given, spec, name):
            if not left[0]:
                return recorded
            left[0] -= 1
            multiple = smaller.dimensions[name].multiple_of if name in smaller.dims else None
            progress(f"trying {name} {'as it is declared' if multiple is None else f'as a multiple of {multiple}'}")
            try:
                other = record(smaller)
            except NapkinError:
                continue
            if cost(other) <= cost(recorded):
                spec, recorded = smaller, other
                break
    return recorded


def _smaller(given: Spec, spec: Spec, name: str) -> Iterator[Spec]:
    """``spec`` with less said of ``name``: no more than ``given`` says, unless it is all that was found; then its divisors."""
    dim, before = spec.dimensions[name], given.dimensions.get(name)
    others = {n: d for n, d in spec.dimensions.items() if d.because and n != name}
    if others and not any(str(d.default).startswith(f"{name}/") for d in others.values()):
        rest = {n: d for n, d in spec.dims.items() if n != name}
        yield replace(spec, dims=rest if before is None else {**spec.dims, name: before})
    if isinstance(dim.multiple_of, int):
        known = before.multiple_of if before and isinstance(before.multiple_of, int) else 1
        for part in range(2, dim.multiple_of):
            if dim.multiple_of % part == 0 and part % known == 0 and part > known:
                yield replace(spec, dims={**spec.dims, name: replace(dim, multiple_of=part)})


def _first(
    spec: Spec,
    sizes: Mapping[str, int],
    error: SizesError,
    record: Callable[[Spec], Recorded],
    progress: Callable[[str], None],
    left: list[int],
) -> tuple[Spec, Recorded] | None:
    """The first further multiples with which ``record`` makes something of ``spec``, with what it makes; ``left`` counts tries."""
    no_further: list[tuple[Spec, SizesError]] = []
    for more in candidates(spec, sizes, error):
        if not left[0]:
            break
        left[0] -= 1
        progress(more.why)
        try:
            return more.spec, record(more.spec)
        except SizesError as other:
            reason = other
        except NapkinError:
            continue
        if _situation(spec, str(reason)) == _situation(spec, str(error)):
            no_further += [(more.spec, reason)] if str(reason) != str(error) else []
            continue
        deeper = _first(more.spec, sizes, reason, record, progress, left)
        if deeper is not None:
            return deeper
    for nearer, reason in no_further:  # what fails for the same reason at the same line, with other sizes
        deeper = _first(nearer, sizes, reason, record, progress, left)
        if deeper is not None:
            return deeper
    return None


def candidates(spec: Spec, sizes: Mapping[str, int], failure: SizesError) -> Iterator[Declared]:
    """``spec`` with one more size declared a multiple: first what ``failure`` divides, then what else it names, by what it names too."""
    for name, part in _pairs(spec, failure):
        dim = spec.dimensions[name]
        if dim.tied or dim.plus or dim.unbacked_at:
            continue
        multiples = _finer(spec, sizes, name, part)
        if multiples:
            yield _declared(spec, multiples, str(failure))


def _pairs(spec: Spec, failure: SizesError) -> Iterable[tuple[str, int | str]]:
    """Dimensions that may have to be multiples, with of what."""
    if isinstance(failure, DividedError):
        divided = [(_dimension(spec, name), part if isinstance(part, int) else _dimension(spec, part)) for name, part in failure.pairs]
        return [(name, part) for name, part in divided if name and part]
    error = str(failure)
    named = _named(spec, error)
    numbers = sorted(int(word) for word in _words(error) if word.isdigit() and 1 < int(word) <= 4096)
    parts: list[int | str] = [*numbers, *named, *_POWERS, *spec.dims]
    wholes = sorted((*named, *spec.dims), key=_NEVER_DIVIDES.__contains__)
    return dict.fromkeys((*_divided(spec, error), *((name, part) for name in wholes for part in parts)))


def _divided(spec: Spec, error: str) -> list[tuple[str, int | str]]:
    """Sizes that ``error`` has divided and rounded, with what they are divided by: ``(S - P)//P`` would be exact for multiples of P."""
    quotients: list[tuple[str, str]] = []
    for whole, part in _DIVISION.findall(_said(error)):
        quotients += [(name, part) for name in _named(spec, error)] if whole == part else [(_dimension(spec, whole), part)]
    return [(name, int(part) if part.isdigit() else part) for name, part in quotients if name and (part.isdigit() or part in spec.dims)]


def _dimension(spec: Spec, symbol: str) -> str:
    """The dimension that a symbol is, or is a quotient of; of none the empty string."""
    return next((name for name in spec.dims if symbol == name or symbol.startswith(f"{name}_per_")), "")


def _finer(spec: Spec, sizes: Mapping[str, int], name: str, part: int | str) -> dict[str, Dim]:
    """``name`` as a multiple of ``part`` too, where that says more than is declared and ``sizes`` allow it; else nothing."""
    dim = spec.dimensions[name]
    if isinstance(part, int) and isinstance(dim.multiple_of, str):
        quotient, known = _quotient(spec, name, dim.multiple_of)
        share = sizes[name] // sizes[dim.multiple_of]
        return {quotient: replace(known, multiple_of=part)} if _says_more(known, part) and share % part == 0 else {}
    if isinstance(part, int):
        return {name: replace(dim, multiple_of=part)} if _says_more(dim, part) and sizes[name] % part == 0 else {}
    if isinstance(dim.multiple_of, str) or part in _NEVER_DIVIDES or sizes.get(part, 1) == 1 or _is_made_of(spec, part, name):
        return {}
    return _split(spec, name, dim, part) if sizes[name] % ((dim.multiple_of or 1) * sizes[part]) == 0 else {}


def _is_made_of(spec: Spec, name: int | str | None, part: str) -> bool:
    """Whether a dimension is another, or a multiple of it, or of what is one."""
    return name == part or (isinstance(name, str) and _is_made_of(spec, spec.dimensions[name].multiple_of, part))


def _split(spec: Spec, name: str, dim: Dim, other: str) -> dict[str, Dim]:
    """``name`` as a multiple of ``other``; what it was a multiple of is a part of the quotient from then on."""
    quotient, known = _quotient(spec, name, other)
    kept = {quotient: replace(known, multiple_of=dim.multiple_of)} if dim.multiple_of else {}
    return {name: replace(dim, multiple_of=other), **kept}


def _quotient(spec: Spec, whole: str, part: str) -> tuple[str, Dim]:
    """The dimension that is tied to ``whole/part``; a new one where the model names none."""
    known = spec.dimensions
    of = f"{whole}/{part}"
    name = next((n for n, d in known.items() if d.tied and str(d.default).replace(" ", "") == of), f"{whole}_per_{part}")
    return name, known.get(name, Dim(of, of, tied=True))


def as_numbers(spec: Spec, error: str) -> Spec:
    """``spec`` that lets its sizes stay numbers one after the other: first what ``error`` divides by, then what else it names."""
    names = dict.fromkeys((*_named(spec, error), *spec.dims))
    order = sorted(names, key=lambda name: (name in _NEVER_DIVIDES, not re.search(rf"// *{name}\b", error)))
    return replace(spec, gives_way=tuple((name,) for name in order if not spec.dimensions[name].tied))


def _said(error: str) -> str:
    """What an error says after the place that it names, without advice of ours, which names sizes of its own."""
    return error.partition("; declare what")[0].partition(": ")[2]


def _words(error: str) -> list[str]:
    return re.findall(r"[A-Za-z_]\w*|\d+", _said(error))


def _named(spec: Spec, error: str) -> list[str]:
    named = {_dimension(spec, word) for word in _words(error)}
    return [name for name in spec.dims if name in named]


def _says_more(dim: Dim, part: int) -> bool:
    """Whether being a multiple of ``part`` says more than is declared."""
    known = dim.multiple_of
    return known is None or (isinstance(known, int) and part > known and part % known == 0)


def _declared(spec: Spec, multiples: Mapping[str, Dim], error: str) -> Declared:
    why = error.removeprefix(f"{spec.name} ").removeprefix(f"{spec.name}: ").partition("; ")[0]
    dims = {name: replace(dim, because=f"found by recording: without it {why}") for name, dim in multiples.items()}
    said = " and ".join(f"{dim.default if dim.tied else name} to be a multiple of {dim.multiple_of}" for name, dim in dims.items())
    return Declared(replace(spec, dims={**spec.dims, **dims}), f"taking {said}")


def _situation(spec: Spec, error: str) -> tuple[str, tuple[str, ...]]:
    """The line that an error names, and what it says but for sizes."""
    return line_in(error), tuple(word for word in _words(error) if not word.isdigit() and not _dimension(spec, word))
