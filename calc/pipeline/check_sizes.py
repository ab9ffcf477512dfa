"""Selects the sizes of a check's real run, with the reason: a step with billions of parameters is checked on a small version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calc.derive.result import Derivation
from calc.spec import Spec
from calc.symbolic.assignments import PLAIN, sizes_text


@dataclass(frozen=True, slots=True)
class Chosen:
    """All sizes of the run, and a sentence with the reason."""

    sizes: Mapping[str, int]
    because: str


def chosen(derivation: Derivation, spec: Spec, given: Mapping[str, int]) -> Chosen:
    """The given sizes; else those of the active special case (e.g. B = 1); else the spec's sizes for checks; else those of the derivation.

    Where Napkin reduced the spec's sizes for checks, the number of layers is that of the general case, and only sizes of the special case
    that are no larger are used. A default size follows the sizes in its expression (f = 4*d when d is set).
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
    reasons = [f"{', '.join(given)} as given"] if given else []
    if small:
        reasons.append(f"{', '.join(small)} small, {spec.reduced}" if spec.reduced else f"{', '.join(small)} as the spec says (check_at)")
    reasons += [f"{sizes_text(raised, PLAIN)}, the smallest at which the step runs as at the sizes of the derivation"] if raised else []
    special = [name for name in own if name not in given.keys() | raised.keys() and spec.check_at.get(name, own[name]) != own[name]]
    reasons += [f"{sizes_text({n: own[n] for n in special}, PLAIN)} as in the derivation, a special case"] if special else []
    return "; ".join(reasons) if moved or given else "those of the derivation"
