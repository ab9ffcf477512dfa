"""What models cache between calls, and what a trace may leave there."""

from __future__ import annotations

from typing import Any

from calc.platform.model_files import restored


def _is_float(value: Any) -> bool:
    return type(value) is float


def test_what_passes_is_taken_out_of_each_table_and_the_rest_stays() -> None:
    """A value in the place of another, new keys and values, a key beside the value of one that is gone, and a table of which nothing
    changed."""
    same, replaced, grown, renamed = {"a": 1}, {"a": 2, "b": 3}, dict[Any, Any](), dict[Any, Any](a=5)
    with restored([same, replaced, grown, renamed], _is_float):
        replaced["a"], grown["c"], grown["d"], grown[0.5] = 0.25, (1, 0.75), 7, 8
        renamed[0.5] = renamed.pop("a")

    assert [{"a": 1}, {"a": 2, "b": 3}, {"d": 7}, {}] == [same, replaced, grown, renamed]
