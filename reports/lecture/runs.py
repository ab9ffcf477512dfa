"""The one way from the audit to torch: real experiments, imported when one is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calc.mathematics.initialization import Initial
    from calc.measure.sampling import Sampled
    from calc.spec import Spec


def experiment(name: str, *args: Any, **kwargs: Any) -> Any:
    """What an experiment of ``calc.measure`` gives: plain data, the same in every run."""
    from calc.measure import experiments, experiments_training

    return getattr(experiments if hasattr(experiments, name) else experiments_training, name)(*args, **kwargs)


def own_spec(name: str) -> Spec | None:
    """A model that only the audit uses: one shared matrix, or the scalar model."""
    from calc.models import scalar, shared

    return {"shared": shared.SPEC, "scalar": scalar.SPEC}.get(name)


def resumed(forget: str = "") -> tuple[str, ...]:
    """The tensors that differ between a training at a stretch and one resumed from a file, from which one part may be missing."""
    from calc.measure.resume import resume
    from calc.models.load import load
    from calc.options import made

    def forgetting(state: dict[str, Any]) -> None:
        if forget:
            del state[forget]

    return resume(load("mlp"), load("mlp").check_at, options=made(optimizer="adamw"), forgetting=forgetting).differing


def moments(model: str, sizes: Mapping[str, int], draws: int) -> tuple[Initial, dict[str, Sampled]]:
    """Moments of a model at initialisation, derived and sampled."""
    from calc.mathematics.initialization import initial
    from calc.measure.sampling import sample
    from calc.models.load import load

    derived = initial(load(model), sizes)
    return derived, sample(load(model), derived.sizes, draws)
