"""The one way from the audit to torch: real experiments, imported when one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calc.spec import Spec


def experiment(name: str, *args: Any, **kwargs: Any) -> Any:
    """What an experiment of ``calc.measure.experiments`` gives: plain data, the same in every run."""
    from calc.measure import experiments

    return getattr(experiments, name)(*args, **kwargs)


def shared_weights() -> Spec:
    """A network that uses one matrix in every layer."""
    from calc.models.shared import SPEC

    return SPEC
