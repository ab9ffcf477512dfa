"""What models cache between calls, and what a trace may leave there."""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.nn.functional import one_hot

from calc.platform import model_files
from calc.platform.model_files import ModelFiles, replaced_by_name, restored


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


def _loaded(patch: pytest.MonkeyPatch, name: str, **values: Any) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(values, __file__=f"/models/{name}.py")
    patch.setitem(sys.modules, name, module)
    return module


def test_a_module_is_looked_through_when_it_is_new_or_has_other_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more module is loaded, and one in the middle of its import goes on: two are looked through, and what they cache is listed."""
    files, seen, look_through = ModelFiles(), list[str](), model_files._Contents.of
    _loaded(monkeypatch, "napkin_whole", TABLE={})
    halfway = _loaded(monkeypatch, "napkin_halfway", TABLE={})
    files.names()
    monkeypatch.setattr(model_files._Contents, "of", lambda module: seen.append(module.__name__) or look_through(module))

    halfway.__dict__["cached"] = functools.lru_cache(len)
    added = _loaded(monkeypatch, "napkin_added", TABLE={}).__dict__["TABLE"]
    files.names()

    assert ["napkin_halfway", "napkin_added"] == seen
    assert (halfway, "cached") in files.remembering
    assert any(table is added for table in files.tables)


def test_the_globals_are_the_same_list_while_no_module_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    files = ModelFiles()
    before = files.names()
    assert files.names() is before

    _loaded(monkeypatch, "napkin_added")
    assert files.names() is not before


def test_functions_of_torch_are_known_by_the_name_that_a_file_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in C++ and those in Python. A function of another package in C may say that it is of a module itself, not of its name."""
    files, of_c = ModelFiles(), [].append
    setattr(of_c, "__module__", ModuleType("in_c"))  # noqa: B010  # a name by its type
    module = _loaded(monkeypatch, "napkin_importing", encoded=one_hot, product=torch.einsum, of_c=of_c, own=_is_float)
    files.names()

    assert ["encoded", "product"] == [name for owner, name in files.of_torch if owner is module]


def test_a_function_is_replaced_under_each_of_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    module = _loaded(monkeypatch, "napkin_importing", encoded=one_hot)
    with replaced_by_name(torch.nn.functional, one_hot=_is_float):
        assert (_is_float, _is_float) == (module.__dict__["encoded"], torch.nn.functional.one_hot)

    assert (one_hot, one_hot) == (module.__dict__["encoded"], torch.nn.functional.one_hot)

