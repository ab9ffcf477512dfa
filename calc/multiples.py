"""Sizes that must be multiples of something, found where a model says nothing of it: it runs at its own sizes and not at others.

Symbols divide only what is declared to be a multiple of them. Where the step raises with symbols in place of sizes, and runs at the
sizes asked for, a size that these allow (an image of 32 that is halved twice is a multiple of 4) is taken for such a multiple, and
the recording starts anew; the assumption says so. Where no multiple is enough, sizes stay numbers, and that is said as well. Torch-free.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from calc.decided import Declared
from calc.dims import Dim
from calc.errors import NapkinError, SizesError
from calc.spec import Spec

Recorded = TypeVar("Recorded")

_POWERS = (2, 4, 8, 16, 32, 64)
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
    left: list[int] | None = None,
) -> Recorded | None:
    """What ``record`` makes of ``spec`` with the first further multiples that let it; nothing where there are none, or too many to try.

    ``sizes`` are those asked for, ``error`` is what recording without multiples came to, ``left`` how many tries are left.
    """
    left = [_MOST_TRIED] if left is None else left
    further: list[tuple[Spec, SizesError]] = []
    for more in candidates(spec, sizes, str(error)):
        if not left[0]:
            break
        left[0] -= 1
        progress(more.why)
        try:
            return record(more.spec)
        except SizesError as other:
            if str(other) != str(error):
                further.append((more.spec, other))
        except NapkinError:
            continue
    for nearer, reason in further:
        found = first_that_records(nearer, sizes, reason, record, progress, left)
        if found is not None:
            return found
    return None


def candidates(spec: Spec, sizes: Mapping[str, int], error: str) -> Iterator[Declared]:
    """``spec`` with one more size declared a multiple: first of what ``error`` names, by numbers and sizes that it names too."""
    numbers = [int(word) for word in _words(error) if word.isdigit()]
    for name in _named_first(spec, error):
        dim = spec.dimensions[name]
        if dim.tied or dim.plus or dim.decided_at:
            continue
        for part in dict.fromkeys((*sorted(n for n in numbers if 1 < n <= 4096), *_POWERS)):
            if _finer(dim, part) and sizes[name] % part == 0:
                yield _declared(spec, name, part, error)
        for other in spec.dims if dim.multiple_of is None else ():
            if other != name and other not in _NEVER_DIVIDES and 1 < sizes[other] and sizes[name] % sizes[other] == 0:
                yield _declared(spec, name, other, error)


def as_numbers(spec: Spec, error: str) -> Spec:
    """``spec`` that lets its sizes stay numbers one after the other: first what ``error`` divides by, then what else it names."""
    divisors = [name for name in _named_first(spec, error) if re.search(rf"// *{name}\b", error)]
    order = sorted(_named_first(spec, error), key=lambda name: (name in _NEVER_DIVIDES, name not in divisors))
    return replace(spec, gives_way=tuple((name,) for name in order if not spec.dimensions[name].tied))


def _words(error: str) -> list[str]:
    return re.findall(r"[A-Za-z_]\w*|\d+", error.partition(": ")[2])


def _named_first(spec: Spec, error: str) -> list[str]:
    words = _words(error)
    named = [name for name in spec.dims if any(word == name or word.startswith(f"{name}_per_") for word in words)]
    return [*named, *(name for name in spec.dims if name not in named)]


def _finer(dim: Dim, part: int) -> bool:
    """Whether being a multiple of ``part`` says more than is declared."""
    known = dim.multiple_of
    return known is None or (isinstance(known, int) and part > known and part % known == 0)


def _declared(spec: Spec, name: str, part: int | str, error: str) -> Declared:
    why = error.removeprefix(f"{spec.name} ").removeprefix(f"{spec.name}: ").partition("; ")[0]
    dim = replace(spec.dimensions[name], multiple_of=part, because=f"found by recording: without it {why}")
    return Declared(replace(spec, dims={**spec.dims, name: dim}), f"taking {name} to be a multiple of {part}")
