"""Sizes at which a check runs the step for real, and why there: a step of billions of parameters is checked on a small relative."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from calc.derive.result import Derivation
from calc.spec import Spec


@dataclass(frozen=True, slots=True)
class Chosen:
    """All sizes of the run, and a sentence on why it takes these."""

    sizes: Mapping[str, int]
    because: str


def chosen(derivation: Derivation, spec: Spec, given: Mapping[str, int]) -> Chosen:
    """Sizes given; else those of the special case in force (a batch of one); else those that the spec checks at; else the derivation's.

    Where Napkin made the spec's sizes for checks small, layers are as many as the usual case takes, and only what is no larger is kept
    of the special case. A size that the derivation has by default moves with the sizes it is made of (f = 4*d when d is set).
    """
    fixed = {
        n: v
        for n, v in derivation.specialized.items()
        if not spec.dimensions[n].tied and (not spec.reduced or v <= spec.check_at.get(n, v))
    }
    free = [name for name in spec.check_at if spec.reduced and name not in given.keys() | fixed.keys()]
    small = spec.sizes_from(derivation.sizes, {**spec.check_at, **fixed, **given})
    raised = derivation.usual(small, free)
    sizes = spec.sizes_from(derivation.sizes, {**spec.check_at, **fixed, **given, **raised})
    return Chosen(sizes, _because(derivation, spec, given, sizes, {**fixed, **raised}, raised))


def _because(
    derivation: Derivation,
    spec: Spec,
    given: Mapping[str, int],
    sizes: Mapping[str, int],
    own: Mapping[str, int],
    raised: Mapping[str, int],
) -> str:
    moved = {name for name in sizes if sizes[name] != derivation.sizes[name] and not spec.dimensions[name].tied}
    small = [name for name in spec.check_at if name in moved and name not in given.keys() | own.keys()]
    reasons = [f"{_names(given)} as given"] if given else []
    if small:
        reasons.append(f"{_names(small)} small, {spec.reduced}" if spec.reduced else f"{_names(small)} as the spec says (check_at)")
    reasons += [f"{_are(raised)}, the smallest at which the step runs as at the sizes of the derivation"] if raised else []
    apart = [name for name in own if name not in given.keys() | raised.keys() and spec.check_at.get(name, own[name]) != own[name]]
    reasons += [f"{_are({n: own[n] for n in apart})} as in the derivation, a case of its own"] if apart else []
    return "; ".join(reasons) if moved or given else "those of the derivation"


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)


def _are(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())
