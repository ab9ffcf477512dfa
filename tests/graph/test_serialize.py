"""Traced graphs on disk: what is written reads back the same, derives without torch, and anything else is refused."""

from __future__ import annotations

import functools
import hashlib
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
from calc.errors import BadInputError
from calc.graph import serialize
from calc.graph.step import Graph
from tests.quick import few
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
    return serialize.dumps(graph(name))


# -- there and back ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", few(MODELS, 3))
def test_a_saved_graph_loads_equal(name: str, tmp_path: Path) -> None:
    """Every trace, tensor, event, condition and note, and the same bytes when rewritten."""
    file = tmp_path / "graph.json"
    serialize.save(graph(name), file)
    loaded = serialize.load(file)

    assert graph(name) == loaded
    assert serialize.dumps(loaded) == file.read_text() == written(name)


@pytest.mark.parametrize("name", few(MODELS, 3))
def test_a_loaded_graph_derives_the_same(name: str) -> None:
    """Expressions, values, steps, coverage and certificates."""
    assert calc.derive(graph(name)) == calc.derive(serialize.loads(written(name)))


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """Over an older one, and with nothing left beside it."""
    file = tmp_path / "graph.json"
    file.write_text("older")
    serialize.save(graph("linear"), file)

    assert [file] == list(tmp_path.iterdir())
    assert serialize.load(file) == graph("linear")


def test_a_saved_graph_is_plain_ascii_json_of_one_line() -> None:
    """Any tool can read it."""
    assert written("dropout").isascii()
    assert "\n" not in written("dropout")
    assert json.loads(written("dropout"))["kind"] == "napkin graph"


BLOCKED = """
import json, sys
sys.modules["torch"] = sys.modules["transformers"] = None
import calc
from calc.graph import serialize
result = calc.derive(serialize.load(sys.argv[1]), json.loads(sys.argv[2]))
peak = result["memory.peak"].at(**json.loads(sys.argv[3]))
print(json.dumps([{n: [result[n].text, result[n].value] for n in result}, [s.id for s in result.steps], peak]))
"""


@pytest.mark.parametrize(("name", "sizes", "at"), [("attention", {"B": 3, "T": 11}, {"T": 13}), ("stack", {"L": 17}, {"d": 19})])
def test_a_saved_graph_derives_with_torch_blocked(name: str, sizes: dict[str, int], at: dict[str, int], tmp_path: Path) -> None:
    """The same expressions, values and steps as here, at other sizes too, in a Python that cannot import torch."""
    file = tmp_path / "graph.json"
    serialize.save(graph(name), file)
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
    with pytest.raises(BadInputError) as raised:
        act()
    message = str(raised.value)
    assert "\n" not in message
    return message


def damaged(data: Any) -> str:
    """What the refusal of a graph says is wrong in it."""
    message = refusal(lambda: serialize.loads(json.dumps(data)))
    assert message.startswith("the text is a damaged graph: ")
    assert message.endswith(": trace the model again")
    return message[29:-23]


@pytest.mark.parametrize("text", ["", "hello", "{", "nan,", "\x00", '{"kind": "napkin graph"', "[" * 100_000, "// no"])
def test_what_is_not_json_is_refused(text: str) -> None:
    """In one line that says what to give."""
    assert refusal(lambda: serialize.loads(text)).startswith("the text is not JSON (")


@pytest.mark.parametrize("text", ["null", "[]", "7", '"napkin graph"', "{}", '{"schema": 1}', '{"kind": "report", "schema": 1}', "NaN"])
def test_foreign_json_is_refused(text: str) -> None:
    """It is JSON, and no graph."""
    assert refusal(lambda: serialize.loads(text)) == "the text is not a saved graph: give a file written by calc.graph.serialize.save"


@pytest.mark.parametrize("schema", [0, 1, "2", None])
def test_another_schema_is_refused(schema: object) -> None:
    """With both versions named."""
    data = {**json.loads(written()), "schema": schema}
    message = refusal(lambda: serialize.loads(json.dumps(data)))

    assert message == f"the text is a graph of schema {schema!r}, this version reads {serialize.SCHEMA}: trace the model again"


PARTS = ("model", "dims", "symbols", "folds", "traces", "certificates", "assumptions", "options", "basis", "notes")
RECORD_PARTS = ("sizes", "storages", "ops", "events", "saved", "parameters", "gradients", "state", "windows", "tensors", "texts")


@pytest.mark.parametrize("key", PARTS)
def test_a_graph_that_lacks_a_part_is_refused(key: str) -> None:
    """The part is named."""
    data = json.loads(written())
    del data[key]

    assert damaged(data) == f"it lacks {key!r}"


@pytest.mark.parametrize("key", RECORD_PARTS)
def test_a_trace_that_lacks_a_part_is_refused(key: str) -> None:
    """One trace of several is enough."""
    data = json.loads(written())
    del data["certificates"][-1][key]

    assert damaged(data) == f"certificates[{len(data['certificates']) - 1}] lacks {key!r}"


@given(st.data())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
def test_a_truncated_graph_is_refused(data: st.DataObject) -> None:
    """Wherever it ends."""
    end = data.draw(st.integers(0, len(written()) - 1))

    refusal(lambda: serialize.loads(written()[:end]))


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
        loaded: Graph | None = serialize.loads(json.dumps(tree))
    except BadInputError as error:
        loaded = None
        message = str(error)
    assert loaded == graph("linear") or "\n" not in message  # what it was replaced by may have been the same


AT = "traces[0].storages[0][0]"
LISTS: list[Any] = [[[[[[[[[[[1]]]]]]]]]]]
BYTES = ("traces", 0, "storages", 0, 0)
ARGUMENT = ("traces", 0, "ops", 0, 4, 0, 1)
FUNCTIONS = "expected an expression with the functions floor, ceiling, Max, Min, Mod"
LARGE = "expected an expression of at most 500 terms and 20,000 bits"
ROLES = "parameter, buffer, input, gradient, optimizer state, master weight, activation, temporary"
SIZE = "expected an expression with + - * / // % ** and floor, ceiling, Max, Min, Mod"
WRONG = [
    (("model",), 7, "model is 7, expected text"),
    (("dims",), [], "it has 0 names of 0 dimensions, expected as many, from 1 to 1000"),
    (("dims", 1, "name"), "B", "it has 2 names of 3 dimensions, expected as many, from 1 to 1000"),
    (("dims", 0, "value"), 2**63, "dims[0].value is 9223372036854775808, expected an integer from 1 to 9223372036854775807"),
    (("dims", 0, "value"), True, "dims[0].value is true, expected an integer from 1 to 9223372036854775807"),
    (("dims", 0, "surprise"), 1, "dims[0] has 'surprise', which no dimension has"),
    (("symbols",), ["B", "D", "Q"], "symbols[2] is 'Q', expected a dimension or the quotient of a fold: B, D, K"),
    (("loops",), ["Q"], "loops[0] is 'Q', expected a symbol: B, D, K"),
    (("basis",), "junk", "basis is 'junk', expected an object"),
    (("basis", "B"), "B**", "basis.B is 'B**', expected an expression"),
    (("basis", "B"), "Q", "basis.B is 'Q', expected an expression in B, D, K"),
    (("basis",), {"B": "B", "D": "D"}, "it lacks basis.K"),
    (("options", "optimizer"), "sgdd", None),
    (("guards",), [["B ? 2", True, "here"]], "guards[0][0] is 'B ? 2', expected an expression"),
    (("guards",), [["B + 2", True, "here"]], "guards[0][0] is 'B + 2', expected a guard on sizes, e.g. B < 2"),
    (("traces",), [], "it has no traces"),
    (("traces",), {}, "traces is an object of 0, expected a list"),
    (("traces", 0, "sizes"), {"Q": 1}, "traces[0].sizes.Q is 'Q', expected a symbol: B, D, K"),
    (("certificates", 0, "sizes"), {"D": 1, "K": 1}, "it lacks certificates[0].sizes.B"),
    (BYTES, None, f"{AT} is null, expected an integer from 0 on"),
    (BYTES, 10**4000, f"{AT} is a number of about 3986 digits, expected an integer from 0 on"),
    (BYTES, "sin(B)", f"{AT} is 'sin(B)', {FUNCTIONS}"),
    (BYTES, "Mod(B)", f"{AT} is 'Mod(B)', {FUNCTIONS}"),
    (BYTES, "B.real", f"{AT} is 'B.real', {SIZE}"),
    (BYTES, "B if B else B", f"{AT} is 'B if B else B', {SIZE}"),
    (BYTES, "B**B", f"{AT} is 'B**B', expected integer powers up to 64"),
    (BYTES, "9**9**9", f"{AT} is '9**9**9', expected integer powers up to 64"),
    (BYTES, "(B + D + K)**64", f"{AT} is '(B + D + K)**64', {LARGE}"),
    (BYTES, "((B**64)**64)**64", f"{AT} is '((B**64)**64)**64', {LARGE}"),
    (BYTES, "-" * 70 + "B", f"{AT} is '{'-' * 59}…', expected an expression of at most 60 levels"),
    (BYTES, "(" * 3000, f"{AT} is '{'(' * 59}…', expected an expression"),
    (("traces", 0, "storages", 0, 1), "rubbish", f"traces[0].storages[0][1] is 'rubbish', expected a role: {ROLES}"),
    (("traces", 0, "ops", 0, 1), 10**6, None),
    (ARGUMENT, {"t": 10**6}, None),
    (ARGUMENT, {}, "traces[0].ops[0][4][0][1] lacks 't'"),
    (ARGUMENT, LISTS, f"traces[0].ops[0][4][0][1]{'[0]' * 9} is a list of 1, expected lists in at most 8 others"),
    (("traces", 0, "ops", 0, 8), 0, "traces[0].ops[0][8] is 0, expected nothing: there is none to refer to"),
    (("traces", 0, "events", 0, 0), 2, "traces[0].events[0][0] is 2, expected a change: 1, -1"),
    (("traces", 0, "windows"), [[0, 1]], "traces[0].windows is a list of 1, expected a list of 2"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "value", "message"), WRONG, ids=lambda x: ".".join(map(str, x))[:50] if isinstance(x, tuple) else "")
def test_a_wrong_value_is_refused_with_its_place(place: tuple[str | int, ...], value: object, message: str | None) -> None:
    """Where it is, what it is, and what is expected there; whatever digest stands at the top."""
    data = json.loads(written())
    node = data
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value

    refused_with = damaged(data)
    assert refused_with == message if message else "expected" in refused_with or "did you mean sgd?" in refused_with


def test_no_text_of_a_graph_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of every size and condition, with the right digest; and what does load never reaches a parser that runs code."""
    code = f"__import__('os').mkdir({str(tmp_path / 'ran')!r})"
    data = json.loads(written())
    data["traces"][0]["storages"][0][0] = data["basis"]["B"] = data["dims"][0]["expr"] = code
    data["guards"] = [[code, True, "here"]]
    for key in ("dims", "basis", "guards", "traces"):
        refusal(lambda key=key: serialize.loads(sealed({**json.loads(written()), key: data[key]})))
    monkeypatch.setattr("sympy.parsing.sympy_parser.eval_expr", lambda *_: pytest.fail("a text was run"))
    monkeypatch.setattr("builtins.eval", lambda *_: pytest.fail("a text was run"))
    calc.derive(serialize.loads(written()))["memory.peak"].at(B=3)

    assert not (tmp_path / "ran").exists()


def sealed(data: dict[str, Any]) -> str:
    """A graph's data as they would be saved: with the digest of what they are."""
    body = json.dumps({key: value for key, value in data.items() if key != "sha256"}, separators=(",", ":"))
    return f'{{"sha256":"{hashlib.sha256(body.encode()).hexdigest()}",{body[1:]}'


def test_a_graph_that_no_step_gives_is_one_line() -> None:
    """With a valid digest and form, and with a matrix of one axis."""
    data = json.loads(written())
    for part in ("traces", "certificates"):
        for trace in data[part]:
            for tensor in trace["tensors"]:
                tensor[1] = tensor[1][:1]
    loaded = serialize.loads(sealed(data))

    assert refusal(lambda: calc.derive(loaded)) == (
        "the graph of linear does not fit together (ValueError: not enough values to unpack (expected 2, got 1)): trace the model again"
    )


CHANGED = "the text is a graph that was changed after it was saved: trace the model again"


def test_a_graph_with_another_number_in_it_is_refused() -> None:
    """It would load, and give a closed form of no trace."""
    data = json.loads(written())
    data["traces"][0]["storages"][0][0] = 4

    assert CHANGED == refusal(lambda: serialize.loads(json.dumps(data)))
    assert CHANGED == refusal(lambda: serialize.loads(written().replace("float32", "float16")))


@pytest.mark.parametrize("digest", ["", "0" * 64, None, 7])
def test_a_digest_of_something_else_is_refused(digest: object) -> None:
    """Whatever it is."""
    data = {**json.loads(written()), "sha256": digest}

    assert CHANGED == refusal(lambda: serialize.loads(json.dumps(data)))


def test_a_graph_set_otherwise_is_the_same_graph() -> None:
    """Indented by an editor, with its digest at the end."""
    data = json.loads(written())
    data["sha256"] = data.pop("sha256")

    assert graph("linear") == serialize.loads(json.dumps(data, indent=2))


@pytest.mark.parametrize(
    ("make", "cause"),
    [
        (lambda folder: folder / "missing.json", "No such file or directory"),
        (lambda folder: folder, "it is a folder, not a regular file"),
        (lambda folder: _bytes(folder / "binary.json"), "byte 0 is not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(make: Callable[[Path], Path], cause: str, tmp_path: Path) -> None:
    """The path and the cause."""
    path = make(tmp_path)

    assert refusal(lambda: serialize.load(path)) == f"cannot read the graph {path}: {cause}"


def _bytes(path: Path) -> Path:
    path.write_bytes(b"\xff\xfe\x00")
    return path


def test_a_refusal_of_a_file_names_it(tmp_path: Path) -> None:
    """Among many."""
    file = tmp_path / "other.json"
    file.write_text("{}")

    assert refusal(lambda: serialize.load(file)) == f"{str(file)!r} is not a saved graph: give a file written by calc.graph.serialize.save"
