"""Recorded graphs on disk: what is written reads back the same, derives without torch, and anything else is refused."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import calc
from calc import graph_json
from calc.errors import BadInputError
from calc.graph import Graph
from tests.trace import modules
from tests.trace.modules import spec

MODELS = {
    "linear": lambda: calc.load("linear"),
    "stack": modules.stack,
    "tied": modules.tied,
    "attention": lambda: spec(
        lambda n: modules.Attention(n.d, n.h),
        dims={"B": 2, "T": 7, "d": calc.Dim(12, multiple_of="h"), "h": 3},
        inputs=lambda n: (torch.randn(n.B, n.T, n.d),),
    ),
    "buffers": lambda: spec(lambda n: modules.Buffered(n.d)),
    "dropout": lambda: spec(lambda n: nn.Sequential(nn.Linear(n.d, n.d), nn.Dropout(0.25)), notes=("a – note",)),
}


@functools.cache
def graph(name: str) -> Graph:
    return calc.trace(MODELS[name](), cache=False)


@functools.cache
def written(name: str = "linear") -> str:
    return graph_json.dumps(graph(name))


# -- there and back ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_graph_loads_equal(name: str, tmp_path: Path) -> None:
    """Every record, tensor, event, condition and note, and the same bytes when written again."""
    file = tmp_path / "graph.json"
    graph_json.save(graph(name), file)
    loaded = graph_json.load(file)

    assert graph(name) == loaded
    assert graph_json.dumps(loaded) == file.read_text() == written(name)


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_graph_derives_the_same(name: str) -> None:
    """Expressions, values, steps, coverage and certificates."""
    assert calc.derive(graph(name)) == calc.derive(graph_json.loads(written(name)))


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """Over an older one, and with nothing left beside it."""
    file = tmp_path / "graph.json"
    file.write_text("older")
    graph_json.save(graph("linear"), file)

    assert [file] == list(tmp_path.iterdir())
    assert graph_json.load(file) == graph("linear")


def test_a_saved_graph_is_plain_ascii_json_of_one_line() -> None:
    """Any tool can read it."""
    assert written("dropout").isascii()
    assert "\n" not in written("dropout")
    assert json.loads(written("dropout"))["kind"] == "napkin graph"


BLOCKED = """
import json, sys
sys.modules["torch"] = sys.modules["transformers"] = None
import calc
from calc import graph_json
result = calc.derive(graph_json.load(sys.argv[1]), json.loads(sys.argv[2]))
peak = result["memory.peak"].at(**json.loads(sys.argv[3]))
print(json.dumps([{n: [result[n].text, result[n].value] for n in result}, [s.id for s in result.steps], peak]))
"""


@pytest.mark.parametrize(("name", "sizes", "at"), [("attention", {"B": 3, "T": 11}, {"T": 13}), ("stack", {"L": 17}, {"d": 19})])
def test_a_saved_graph_derives_with_torch_blocked(name: str, sizes: dict[str, int], at: dict[str, int], tmp_path: Path) -> None:
    """The same expressions, values and steps as here, at other sizes too, in a Python that cannot import torch."""
    file = tmp_path / "graph.json"
    graph_json.save(graph(name), file)
    command = [sys.executable, "-c", BLOCKED, str(file), json.dumps(sizes), json.dumps(at)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    quantities, steps, peak = json.loads(done.stdout)
    here = calc.derive(graph(name), sizes)

    assert quantities == {n: [here[n].text, here[n].value] for n in here}
    assert steps == [s.id for s in here.steps]
    assert peak == here["memory.peak"].at(**at)


# -- anything else is refused ----------------------------------------------------------------------------------------------


def refusal(act: Callable[[], Any]) -> str:
    with pytest.raises(BadInputError) as found:
        act()
    message = str(found.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("text", ["", "hello", "{", "nan,", "\x00", '{"kind": "napkin graph"', "[" * 100_000, "// no"])
def test_what_is_not_json_is_refused(text: str) -> None:
    """In one line that says what to give."""
    assert refusal(lambda: graph_json.loads(text)).startswith("the text is not JSON (")


@pytest.mark.parametrize("text", ["null", "[]", "7", '"napkin graph"', "{}", '{"schema": 1}', '{"kind": "report", "schema": 1}', "NaN"])
def test_foreign_json_is_refused(text: str) -> None:
    """It is JSON, and no graph."""
    assert refusal(lambda: graph_json.loads(text)) == "the text is no saved graph: give a file written by calc.save"


@pytest.mark.parametrize("schema", [0, 2, "1", None])
def test_another_schema_is_refused(schema: object) -> None:
    """With both versions named."""
    data = {**json.loads(written()), "schema": schema}
    message = refusal(lambda: graph_json.loads(json.dumps(data)))

    assert message == f"the text is a graph of schema {schema!r}, this version reads {graph_json.SCHEMA}: trace the model again"


PARTS = ("model", "dims", "symbols", "folds", "records", "certificates", "assumptions", "options", "basis", "notes")
RECORD_PARTS = ("sizes", "storages", "ops", "events", "saved", "parameters", "gradients", "state", "windows", "tensors", "texts")


@pytest.mark.parametrize("key", PARTS)
def test_a_graph_that_lacks_a_part_is_refused(key: str) -> None:
    """The part is named."""
    data = json.loads(written())
    del data[key]

    assert refusal(lambda: graph_json.loads(json.dumps(data))) == f"the text is a damaged graph (KeyError: {key!r}): trace the model again"


@pytest.mark.parametrize("key", RECORD_PARTS)
def test_a_record_that_lacks_a_part_is_refused(key: str) -> None:
    """One record of several is enough."""
    data = json.loads(written())
    del data["certificates"][-1][key]

    assert refusal(lambda: graph_json.loads(json.dumps(data))) == f"the text is a damaged graph (KeyError: {key!r}): trace the model again"


@given(st.data())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
def test_a_truncated_graph_is_refused(data: st.DataObject) -> None:
    """Wherever it ends."""
    end = data.draw(st.integers(0, len(written()) - 1))

    refusal(lambda: graph_json.loads(written()[:end]))


JUNK = st.sampled_from([None, 7, -1, "junk", [], {}, [7], {"t": 10**6}, True, 1.5, "B**", ["a", "b", "c", "d", "e"]])


@given(st.data())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
def test_a_graph_with_a_damaged_spot_is_refused(data: st.DataObject) -> None:
    """Any value replaced by another: never an error that is not ours."""
    tree = json.loads(written())
    node = tree
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        child = node[key]
        if not isinstance(child, dict | list) or not child or data.draw(st.integers(0, 3)) == 0:
            break
        node = child
    node[key] = data.draw(JUNK)
    try:
        loaded: Graph | None = graph_json.loads(json.dumps(tree))
    except BadInputError as error:
        loaded = None
        message = str(error)
    assert loaded == graph("linear") or "\n" not in message  # what it was replaced by may have been the same


@pytest.mark.parametrize(
    ("part", "value"),
    [("basis", {"B": "B**", "D": "D", "K": "K"}), ("basis", "junk"), ("symbols", ["B", "D"]), ("records", []), ("loops", ["Q"])],
)
def test_a_graph_whose_parts_do_not_fit_together_is_refused(part: str, value: object) -> None:
    """When it is loaded: nothing is derived from it."""
    data = {**json.loads(written()), part: value}

    refusal(lambda: graph_json.loads(json.dumps(data)))


CHANGED = "the text is a graph that was changed after it was saved: trace the model again"


def test_a_graph_with_another_number_in_it_is_refused() -> None:
    """It would load, and give a closed form that nobody recorded."""
    data = json.loads(written())
    data["records"][0]["storages"][0][0] = 4

    assert CHANGED == refusal(lambda: graph_json.loads(json.dumps(data)))
    assert CHANGED == refusal(lambda: graph_json.loads(written().replace("float32", "float16")))


@pytest.mark.parametrize("digest", ["", "0" * 64, None, 7])
def test_a_digest_of_something_else_is_refused(digest: object) -> None:
    """Whatever it is."""
    data = {**json.loads(written()), "sha256": digest}

    assert CHANGED == refusal(lambda: graph_json.loads(json.dumps(data)))


def test_a_graph_set_otherwise_is_the_same_graph() -> None:
    """Indented by an editor, with its digest at the end."""
    data = json.loads(written())
    data["sha256"] = data.pop("sha256")

    assert graph("linear") == graph_json.loads(json.dumps(data, indent=2))


@pytest.mark.parametrize(
    ("make", "cause"),
    [
        (lambda folder: folder / "missing.json", "No such file or directory"),
        (lambda folder: folder, "Is a directory"),
        (lambda folder: _bytes(folder / "binary.json"), "not text"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(make: Callable[[Path], Path], cause: str, tmp_path: Path) -> None:
    """The path and the cause."""
    path = make(tmp_path)

    assert refusal(lambda: graph_json.load(path)) == f"cannot read the graph {str(path)!r}: {cause}"


def _bytes(path: Path) -> Path:
    path.write_bytes(b"\xff\xfe\x00")
    return path


def test_a_refusal_of_a_file_names_it(tmp_path: Path) -> None:
    """Among many."""
    file = tmp_path / "other.json"
    file.write_text("{}")

    assert refusal(lambda: graph_json.load(file)) == f"{str(file)!r} is no saved graph: give a file written by calc.save"


@pytest.mark.parametrize("source", [None, 7, "gpt2", {"kind": "napkin graph"}])
def test_only_a_graph_or_a_spec_derives(source: object) -> None:
    """A name must be loaded first."""
    message = refusal(lambda: calc.derive(source))  # type: ignore[arg-type]  # the mistake that is tested

    assert message == f"derive needs a graph or a spec, not {type(source).__name__}"
