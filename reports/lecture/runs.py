"""The only place where the audit uses torch: real experiments, imported on first use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calc.mathematics.initialization import Initial
    from calc.measure.sampling import Sampled
    from calc.spec import Spec


def experiment(name: str, *args: Any, **kwargs: Any) -> Any:
    """The result of an experiment of ``calc.measure``: plain data, equal in every run."""
    from calc.measure import experiments, experiments_training, loading, random_sources

    room = next(room for room in (experiments, experiments_training, loading, random_sources) if hasattr(room, name))
    return getattr(room, name)(*args, **kwargs)


def own_spec(name: str) -> Spec | None:
    """The spec of a model that only the audit uses (``shared``, ``scalar``); ``None`` for other names."""
    from calc.models import scalar, shared

    return {"shared": shared.SPEC, "scalar": scalar.SPEC}.get(name)


def resumed(forget: str = "") -> tuple[str, ...]:
    """Names of the tensors that differ between uninterrupted training and training resumed from a file without the part ``forget``."""
    from calc.measure.resume import resume
    from calc.models.load import load
    from calc.options import made

    def forgetting(state: dict[str, Any]) -> None:
        if forget:
            del state[forget]

    schedule = "CosineAnnealingLR", {"T_max": 4}
    return resume(load("mlp"), load("mlp").check_at, options=made(optimizer="adamw"), corrupt=forgetting, schedule=schedule).differing


def variances(model: str) -> dict[str, str]:
    """E[w²] of each parameter of a model at initialization, in its sizes."""
    from calc.mathematics.initialization import initial
    from calc.models.load import load

    return {law.name: law.second for law in initial(load(model)).drawn}


def moments(model: str, sizes: Mapping[str, int], draws: int) -> tuple[Initial, dict[str, Sampled]]:
    """(derived, sampled) second moments of a model at initialization."""
    from calc.mathematics.initialization import initial
    from calc.measure.sampling import sample
    from calc.models.load import load

    derived = initial(load(model), sizes)
    return derived, sample(load(model), derived.sizes, draws)
