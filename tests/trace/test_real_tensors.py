"""Real tensors in a model: those that its file made when it was imported, and those that it reads from a file."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import calc
from calc.pipeline.check import Report
from calc.spec import Spec
from tests.checks import failures
from tests.trace.modules import DIMS, function, spec

TABLE = torch.eye(DIMS["d"])
ARRAY = np.eye(DIMS["d"], dtype="float32")
STREAM = pickle.dumps(TABLE)

MADE: dict[str, Callable[[], Tensor]] = {
    "at import": lambda: TABLE,
    "a view of one made at import": lambda: TABLE.T,
    "a copy of one": lambda: TABLE.clone(),
    "of an array": lambda: torch.from_numpy(ARRAY),
    "unpickled": lambda: pickle.load(io.BytesIO(STREAM)),  # it was pickled above
}


class Holding(nn.Module):
    """A layer, and a buffer or a parameter that is a real tensor."""

    def __init__(self, d: Any, made: Tensor, learned: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(d, d)
        if learned:
            self.table: Tensor = nn.Parameter(made)
        else:
            self.register_buffer("table", made)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) @ self.table


def checked(s: Spec) -> Report:
    return calc.check(calc.derive(s, cache=False))


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("made", MADE)
def test_a_module_may_hold_a_real_tensor(made: str, learned: bool) -> None:
    """It is a buffer or a parameter like those made by the module, in the checkpoint too."""
    assert [] == failures(checked(spec(lambda n: Holding(n.d, MADE[made](), learned))))


@pytest.mark.parametrize("made", MADE)
def test_a_forward_may_use_a_real_tensor(made: str) -> None:
    """It is made, and where autograd saves it also freed, in the step."""
    assert [] == failures(checked(function(lambda x: x @ MADE[made]())))
    assert [] == failures(checked(function(lambda x: x @ MADE[made]().type(x.dtype).T)))


def test_a_sparse_buffer_that_no_step_uses_changes_nothing() -> None:
    """Whisper's own code has one, for its alignment of words."""

    def held(d: Any) -> nn.Module:
        module = nn.Linear(d, d)
        module.register_buffer("heads", torch.ones(2, 3).to_sparse(), persistent=False)
        return module

    with_buffer, without = (calc.derive(spec(build), cache=False) for build in (lambda n: held(n.d), lambda n: nn.Linear(n.d, n.d)))

    assert [without[name].text for name in without] == [with_buffer[name].text for name in without]
