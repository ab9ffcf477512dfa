"""The operators of a model's step at sizes: from its closed forms, or from a trace at exactly those sizes if there are none.

The number of identical operators is a closed form if a loop only repeats them. If the trip count is also a size inside the loop, the step
is traced once more at the requested sizes, which needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from calc.derive.operators import Operators, Work, of_trace, operators
from calc.errors import UnequalIterationsError
from calc.graph.guards import resolve
from calc.options import Options
from calc.pipeline import pipeline
from calc.spec import Spec


@dataclass(frozen=True)
class StepOperators:
    """``works`` in integers at all ``sizes``; ``operators`` has the closed forms that hold there."""

    sizes: Mapping[str, int]
    operators: Operators
    works: tuple[Work, ...]


def step_operators(
    spec: Spec,
    sizes: Mapping[str, int] | None = None,
    *,
    options: Options | None = None,
    cache: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> StepOperators:
    """What each operator of one training step of ``spec`` does and moves; sizes not given are the spec's defaults."""
    spec.sizes(sizes or {})  # refuse invalid sizes before the work begins
    options = options or Options()
    graph = pipeline.graph_at(spec, sizes, options, cache=cache, progress=progress)
    values = resolve(graph, sizes or {})
    works = operators(graph).in_force(values)
    try:
        return StepOperators(values, works, works.at_all(values))
    except UnequalIterationsError:
        progress("tracing the step at these sizes")
    from calc.trace import trace_at

    derivation = pipeline.derive(spec, sizes, options=options, cache=cache, progress=progress)
    record = trace_at(derivation.spec, derivation.specialized, derivation.sizes, {}, options)
    return StepOperators(values, works, of_trace(graph, record))
