"""A question that tests ask with numbers of a published training, and the text of a refusal."""

from __future__ import annotations

from typing import Any

import pytest

from calc.capacity.questions import ask
from calc.errors import BadInputError

RUN = {"parameters": "70e9", "tokens": "15e12", "gpu": "h100-sxm", "mfu": "0.5"}


def refusal(question: str, **given: Any) -> str:
    """What asking is refused with."""
    with pytest.raises(BadInputError) as caught:
        ask(question, **given)
    return str(caught.value)
