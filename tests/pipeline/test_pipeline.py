"""Tracing through the cache: a hit is an equal graph without tracing, and nothing that differs is ever a hit."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.nn.functional as F
from torch import Tensor, nn

import calc
from calc.errors import DimensionError, NapkinError
from calc.graph import serialize
from calc.graph.step import Graph
from calc.spec import Spec
from tests.quick import few


class Builds:
    """Builds a linear layer, and counts how often: a hit builds nothing."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self, n: Any) -> nn.Module:
        self.number += 1
        return nn.Linear(n.d, n.m)


def spec(build: Callable[[Any], Any], **changes: Any) -> Spec:
    parts: dict[str, Any] = {
        "name": "cached",
        "dims": {"B": 3, "d": 7, "m": 11},
        "build": build,
        "inputs": _inputs,
        "loss": lambda module, x, y: F.mse_loss(module(x), y),
        "key": "cached:1",
    }
    return Spec(**{**parts, **changes})


def _inputs(n: Any) -> tuple[Tensor, ...]:
    import torch

    return torch.randn(n.B, n.d), torch.randn(n.B, n.m)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("NAPKIN_CACHE", str(folder))
    return folder


def files(folder: Path) -> list[Path]:
    """Two for each trace: the step as it was traced, and certified where sizes are degenerate too."""
    return sorted(folder.iterdir()) if folder.exists() else []


def kept(file: Path) -> str:
    """The graph in an entry, behind the line of its key."""
    return file.read_text().partition("\n")[2]


def traced(
    builds: Builds, sizes: dict[str, int] | None = None, *, options: dict[str, str] | None = None, **changes: Any
) -> tuple[Graph, bool]:
    """The graph, and whether the model was built for it."""
    before = builds.number
    graph = calc.trace(spec(builds, **changes), sizes, **{"optimizer": "sgd", **(options or {})})
    return graph, builds.number > before


# -- hits --------------------------------------------------------------------------------------------------------------------


def test_a_second_trace_is_equal_and_builds_nothing(cache: Path) -> None:
    """The graph as it was."""
    builds = Builds()
    first, built = traced(builds)
    second, built_again = traced(builds)

    assert (built, built_again) == (True, False)
    assert first == second
    assert serialize.dumps(first) in [kept(file) for file in files(cache)]
    assert len(files(cache)) == 2


def test_a_hit_says_so(cache: Path) -> None:
    """On the progress line."""
    said: list[str] = []
    for _ in range(2):
        calc.trace(spec(Builds()), progress=said.append)

    assert said[-1] == "trace read from the cache"
    assert said.count(said[-1]) == 1


HIT = """
import json, sys
sys.modules["torch"] = None
import calc
refuse = lambda *_: 1 / 0
spec = calc.Spec(name="cached", dims={"B": 3, "d": 7, "m": 11}, build=refuse, inputs=refuse, loss=refuse, key="cached:1")
result = calc.derive(spec, {"d": 13})
print(json.dumps({name: result[name].value for name in result}))
"""


@pytest.mark.slow
def test_a_hit_needs_no_torch(cache: Path) -> None:
    """In a Python that cannot import it, at other sizes than those traced: d * m + m = 13 * 11 + 11 parameters."""
    calc.trace(spec(Builds()))
    done = subprocess.run([sys.executable, "-c", HIT], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    here = calc.derive(spec(Builds()), {"d": 13}, cache=False)

    assert json.loads(done.stdout) == {name: here[name].value for name in here}
    assert json.loads(done.stdout)["parameters"] == 13 * 11 + 11


@pytest.mark.parametrize("batch", [1, 3])
def test_a_hit_has_the_name_of_its_call(cache: Path, batch: int) -> None:
    """Two files of one content share a trace, also that of a special case, and each derivation names its own."""
    calc.derive(spec(Builds()), {"B": batch})
    again = calc.derive(spec(Builds(), name="copy", source="another file"), {"B": batch})

    assert ("copy", "another file") == (again.model, again.source)


def test_a_hit_has_the_values_of_its_call(cache: Path) -> None:
    """Sizes are not part of what is cached: a default expression follows them as it does without a cache."""
    builds = Builds()
    dims = {"B": 3, "d": 7, "m": "2*d + 1"}
    traced(builds, dims=dims)
    graph, built = traced(builds, {"d": 13}, dims=dims)

    assert not built
    assert {"B": 3, "d": 13, "m": 27} == {dim.name: dim.value for dim in graph.dims}
    assert calc.derive(graph)["parameters"].value == 13 * 27 + 27
    assert calc.derive(graph, {"d": 17})["parameters"].value == 17 * 35 + 35


@pytest.mark.parametrize("sizes", few([{"B": 1}, {"d": 11}, {"B": 1, "d": 1, "m": 1}, {"B": 5, "d": 3, "m": 2}, {"B": 10**9}], 2))
def test_the_cache_changes_no_result(cache: Path, sizes: dict[str, int]) -> None:
    """At a batch of 1, at equal sizes, in another order: the same expressions and values with a cache as without."""
    traced(Builds())
    with_cache = calc.derive(spec(Builds()), sizes)
    without = calc.derive(spec(Builds()), sizes, cache=False)

    assert {n: with_cache[n].value for n in with_cache} == {n: without[n].value for n in without}


def test_earlier_calls_change_nothing(cache: Path) -> None:
    """The same command gives the same derivation, certificates and assumptions included, whatever the cache holds."""
    calc.derive(spec(Builds()), {"B": 1, "d": 29})
    with_cache = calc.derive(spec(Builds()))
    without = calc.derive(spec(Builds()), cache=False)

    assert dataclasses.replace(with_cache, spec=None) == dataclasses.replace(without, spec=None)


# -- misses ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"optimizer": "adamw"}, {"attention": "math"}])
def test_other_options_are_another_trace(cache: Path, options: dict[str, str]) -> None:
    """Even where the model would run alike."""
    builds = Builds()
    traced(builds)
    graph, built = traced(builds, options=options)

    assert built
    assert len(files(cache)) == 2 + 2
    assert options.items() <= dict(graph.options).items()


def test_a_changed_model_is_another_trace(cache: Path) -> None:
    """Its key is a digest of its content."""
    builds = Builds()
    traced(builds)
    _, built = traced(builds, key="cached:2")

    assert built
    assert len(files(cache)) == 2 + 2


def test_a_changed_file_of_the_user_is_another_trace(cache: Path, tmp_path: Path) -> None:
    """One more layer in the file: the new number, not the old one."""
    file = tmp_path / "my_model.py"
    text = """
import calc, torch
from torch import nn
SPEC = calc.Spec(
    name="mine", dims={"B": 3, "d": 7},
    build=lambda n: nn.Sequential(LAYERS),
    inputs=lambda n: (torch.randn(n.B, n.d),), loss=lambda module, x: module(x).sum(),
)
"""
    numbers = []
    for layers in (1, 2):
        file.write_text(text.replace("LAYERS", ", ".join(["nn.Linear(n.d, n.d)"] * layers)))
        numbers.append(calc.derive(calc.load(f"{file}:SPEC"))["parameters"].value)

    assert numbers == [7 * 7 + 7, 2 * (7 * 7 + 7)]
    assert len(files(cache)) == 2


# -- without a cache ----------------------------------------------------------------------------------------------------------


def test_a_model_without_key_is_never_cached(cache: Path) -> None:
    """Without a key, two models cannot be distinguished."""
    builds = Builds()
    traced(builds, key="")
    _, built = traced(builds, key="")

    assert built
    assert files(cache) == []


def test_the_environment_turns_the_cache_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """``NAPKIN_CACHE=off`` neither reads nor writes, here or in the usual place."""
    monkeypatch.setenv("NAPKIN_CACHE", "off")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.chdir(tmp_path)
    builds = Builds()
    traced(builds)
    _, built = traced(builds)

    assert built
    assert list(tmp_path.iterdir()) == []


def test_a_call_may_do_without_the_cache(cache: Path) -> None:
    """It neither writes nor reads what is there."""
    builds = Builds()
    calc.trace(spec(builds), cache=False)
    assert files(cache) == []
    traced(builds)
    before = builds.number
    calc.trace(spec(builds), cache=False)

    assert builds.number > before


def test_the_usual_place_is_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """``$XDG_CACHE_HOME/napkin``."""
    monkeypatch.delenv("NAPKIN_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    traced(Builds())

    assert len(files(tmp_path / "napkin")) == 2


# -- damage -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    few(
        [lambda t: "", lambda t: t[: len(t) // 2], lambda t: "{}", lambda t: t.replace('"traces"', '"traced"'), lambda t: "~" + t[1:]], 3
    ),
)
def test_a_damaged_file_is_ignored_and_replaced(cache: Path, damage: Callable[[str], str]) -> None:
    """As good as none: traced again, and whole afterwards. Each is reported once."""
    builds, said = Builds(), list[str]()
    first, _ = traced(builds)
    for file in files(cache):
        file.write_text(damage(file.read_text()))
    second = calc.trace(spec(builds), optimizer="sgd", progress=said.append)
    third, built = traced(builds)

    assert not built
    assert first == second == third
    assert [DAMAGED] * 2 == [line for line in said if "cache" in line]
    assert second in [serialize.loads(kept(file)) for file in files(cache)]


DAMAGED = "trace in the cache damaged: deleted"


def _sealed(data: dict[str, Any]) -> str:
    """A graph's data with the digest of what they are."""
    body = json.dumps({name: value for name, value in data.items() if name != "sha256"}, separators=(",", ":"))
    return f'{{"sha256":"{hashlib.sha256(body.encode()).hexdigest()}",{body[1:]}'


def _forged(file: Path, change: Callable[[Any], None]) -> None:
    """Change the graph of an entry and give it the digest that it then has."""
    key, _, text = file.read_text().partition("\n")
    data = json.loads(text)
    change(data)
    file.write_text(f"{key}\n{_sealed(data)}")


def _other_number(data: Any) -> None:
    data["traces"][0]["storages"][0][0] = 4


def _lost_axis(data: Any) -> None:
    for tensor in data["traces"][0]["tensors"]:
        tensor[1] = tensor[1][:1]


@pytest.mark.parametrize("change", [_other_number, _lost_axis])
def test_a_forged_entry_that_contradicts_itself_is_replaced(cache: Path, change: Callable[[Any], None]) -> None:
    """Its digest is right, and its closed forms fail its own certificates: the cache is at fault, not the model."""
    builds, said = Builds(), list[str]()
    first = calc.derive(spec(builds), optimizer="sgd")
    for file in files(cache):
        _forged(file, change)
    second = calc.derive(spec(builds), optimizer="sgd", progress=said.append)
    before = builds.number
    calc.derive(spec(builds), optimizer="sgd")

    assert {name: first[name].value for name in first} == {name: second[name].value for name in second}
    assert said.count(DAMAGED) == 1
    assert builds.number == before


def test_an_entry_of_another_model_is_not_taken_for_this_one(cache: Path) -> None:
    """Whole, under the name of the other's."""
    calc.derive(spec(Builds(), key="cached:2"), optimizer="sgd")
    (entry,) = files(cache)
    text = entry.read_text()
    entry.unlink()
    first = calc.derive(spec(Builds()), optimizer="sgd")
    (entry,) = files(cache)
    entry.write_text(text)
    builds = Builds()

    assert first == dataclasses.replace(calc.derive(spec(builds), optimizer="sgd"), spec=first.spec)
    assert builds.number > 0
    assert entry.read_text() != text


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)], ids=["pipe", "folder", "device"])
def test_what_is_no_file_in_the_cache_is_left_alone(cache: Path, make: Callable[[Path], None]) -> None:
    """Neither waited for, nor read, nor replaced."""
    first = calc.derive(spec(Builds()), optimizer="sgd")
    (entry,) = files(cache)
    entry.unlink()
    make(entry)
    kind = os.lstat(entry).st_mode
    builds = Builds()

    assert first == dataclasses.replace(calc.derive(spec(builds), optimizer="sgd"), spec=first.spec)
    assert builds.number > 0
    assert [entry] == files(cache)
    assert os.lstat(entry).st_mode == kind


def test_a_cache_that_cannot_be_written_is_no_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file stands where the folder should be."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path / "file" / "cache"))

    assert traced(Builds())[0].model == "cached"


def test_a_model_that_is_refused_leaves_nothing_in_the_cache(cache: Path) -> None:
    """So that it is refused again."""
    for _ in range(2):
        with pytest.raises(NapkinError, match=r"build must return a torch\.nn\.Module"):
            calc.trace(spec(lambda n: None))

    assert files(cache) == []


# -- what derive does with sizes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "message"),
    [({"Q": 3}, "this model has no dimension 'Q'"), ({"B": 0}, "B = 0 is not positive"), ({"B": 2.5}, "B = 2.5 is not an integer")],
)
def test_bad_sizes_are_refused_before_anything_is_traced(sizes: dict[str, int], message: str) -> None:
    """A dimension that is not there, and values that are no size."""
    builds = Builds()
    with pytest.raises(DimensionError, match=message):
        calc.derive(spec(builds), sizes, cache=False)

    assert builds.number == 0


def test_a_derivation_from_a_spec_keeps_it_and_one_from_a_graph_has_none(cache: Path) -> None:
    """A check needs the model; a trace is enough for a derivation. It goes on alone, so it has certificates for more sizes."""
    s = spec(Builds())
    from_spec = calc.derive(s)

    assert from_spec.spec is s
    from_graph = calc.derive(calc.trace(s))
    assert from_graph.spec is None
    assert set(map(repr, from_spec.certificates)) < set(map(repr, from_graph.certificates))
    assert dataclasses.replace(from_spec, spec=None, certificates=from_graph.certificates) == from_graph


# -- sizes that were not requested ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [{"B": 1}, {"B": 1, "d": 29, "m": 2}])
def test_a_quantity_is_certified_at_degenerate_sizes_once_they_are_requested(sizes: dict[str, int]) -> None:
    """Not before: a derivation has the certificates that its own sizes need. It has the value of a derivation at those sizes."""
    builds, said = Builds(), list[str]()
    derivation = calc.derive(spec(builds), cache=False, progress=said.append)
    before, lines = builds.number, len(said)
    there = calc.derive(spec(Builds()), sizes, cache=False)

    at_sizes = {name: quantity.at(**sizes) for name, quantity in derivation.quantities.items() if quantity.text}
    assert at_sizes == {name: quantity.value for name, quantity in there.quantities.items() if quantity.text}
    assert builds.number > before
    assert all(line.startswith("tracing a certificate") for line in said[lines:])
    again = builds.number
    derivation["memory.peak"].at(B=1, m=13)
    assert builds.number == again


def test_other_sizes_need_no_certificate_more() -> None:
    builds = Builds()
    derivation = calc.derive(spec(builds), cache=False)
    before = builds.number

    assert derivation["parameters"].at(B=5, d=29, m=31) == 29 * 31 + 31
    assert builds.number == before


def test_later_certificates_are_cached(cache: Path) -> None:
    """And no other derivation is another one by it."""
    builds = Builds()
    for expected in (True, False):
        derivation = calc.derive(spec(builds))
        before = builds.number
        derivation["memory.peak"].at(B=1)
        assert (builds.number > before) == expected
        assert len(derivation.certificates) == 2


WITHOUT_TORCH = HIT.replace('result = calc.derive(spec, {"d": 13})', 'calc.derive(spec)["memory.peak"].at(B=1)').partition("print")[0]


@pytest.mark.slow
def test_without_torch_sizes_that_have_to_be_traced_are_refused_unless_cached(cache: Path) -> None:
    """In one line that says what is missing."""
    run = [sys.executable, "-c", WITHOUT_TORCH]
    calc.derive(spec(Builds()))
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=60)
    assert "TraceError: cached: at these sizes the step has to be traced, which takes torch: install it" in done.stderr
    calc.derive(spec(Builds()))["memory.peak"].at(B=1)

    assert subprocess.run(run, capture_output=True, text=True, check=False, timeout=60).returncode == 0
