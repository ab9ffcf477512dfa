"""Bytes of iteration, random generators and schedulers, beside what torch and pickle write."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calc.errors import BadInputError
from calc.memory.progress import GENERATORS, ITERATION, SCHEDULERS, pickled, scheduler

_TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=7)
_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31 - 1) | st.floats(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_TEXT, inner, max_size=5),
    max_leaves=30,
)


@given(_PLAIN)
def test_a_pickle_of_plain_data_has_the_bytes_that_are_counted(value: Any) -> None:
    assert pickled(value) == len(pickle.dumps(_interned(value), 2))


def _interned(value: Any) -> Any:
    """With one object for equal texts, as names of attributes are; a pickle refers to the same object only."""
    texts: dict[str, str] = {}

    def one(part: Any) -> Any:
        if isinstance(part, dict):
            return {texts.setdefault(key, key): one(item) for key, item in part.items()}
        return [one(item) for item in part] if isinstance(part, list) else part

    return one(value)


@pytest.mark.parametrize("value", [list(range(2001)), list(range(1000)), {str(i): i * 7 for i in range(1001)}, [[]] * 0, [{}, {}]])
def test_long_lists_and_dictionaries_are_in_thousands(value: Any) -> None:
    """With a memo of more than 256 entries."""
    assert pickled(value) == len(pickle.dumps(value, 2))


@pytest.mark.parametrize(
    ("value", "said"), [(2**31, "2147483648 has more than 32 bits"), ((1,), "a tuple is not plain data of a scheduler")]
)
def test_other_data_is_refused(value: Any, said: str) -> None:
    with pytest.raises(BadInputError, match=f"^{said}$"):
        pickled(value)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_keeps_the_state_that_is_derived(name: str, groups: int) -> None:
    """Its keys in order, and the bytes of its pickle after 300 of 70,000 steps."""
    kind = scheduler(name)
    optimizer = torch.optim.SGD([{"params": [torch.nn.Parameter(torch.zeros(2))]} for _ in range(groups)], lr=0.1)
    real = getattr(torch.optim.lr_scheduler, kind.kind)(optimizer, **kind.arguments(70_000))
    for _ in range(300):
        optimizer.step()
        real.step()
    state = kind.state(300, 70_000, groups)

    assert list(state) == list(real.state_dict())
    assert pickled(state) == len(pickle.dumps(real.state_dict(), 2))
    assert pickled(state) > pickled(kind.state(2, 4, groups))


def test_generators_have_the_bytes_that_are_stated() -> None:
    """8 + 4 + 4 + 8 + 8·624 + 24 + 8 + 4 + 4 = 5056 on the CPU; 624 words of 4 bytes of Python and NumPy, and a place."""
    cpu, cuda, numpy, python = GENERATORS

    assert (torch.get_rng_state().nbytes, 16, np.random.MT19937(0).state["state"]["key"].nbytes) == (cpu.nbytes, cuda.nbytes, numpy.nbytes)
    assert len(random.getstate()[1]) == python.nbytes // 4 + 1
    assert torch.tensor(3).nbytes == ITERATION


def test_an_unknown_scheduler_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"^unknown scheduler 'cosin': did you mean cosine\? \(cosine, linear, .*\)$"):
        scheduler("cosin")
