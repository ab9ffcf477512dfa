"""Every model of the zoo has gradients that equal autograd's, or is refused in one line: never a wrong one."""

from __future__ import annotations

import pytest

from calc.errors import NapkinError
from calc.mathematics.gradients import _as_traced, _sizes, gradients, trial
from calc.options import Options
from tests.zoo import ZOO

# What equations do not have: a gradient that a user's hook changes, a write that overlaps what it reads, points outside a domain,
# memory that nobody has written.
OTHERWISE = ("hooks of a user", "in place on a view, rows that are put", "angles", "rarer random numbers", "constants like another")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ZOO if name not in OTHERWISE])
def test_gradients_hold_or_are_refused(name: str) -> None:
    """In float64, at one set of sizes."""
    exhibit = ZOO[name]
    spec, options = exhibit.make(), Options(attention=exhibit.options.attention)
    try:
        equations = gradients(spec, options=options)
    except NapkinError as refusal:
        pytest.skip(str(refusal)[:120])

    spec = _as_traced(equations, spec, {}, options)
    assert trial(equations, spec, _sizes(equations.program, spec, 0, {}), options, 0).ok
