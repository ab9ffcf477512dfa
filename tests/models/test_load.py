"""From what a user writes to a spec, and the one line they get when it stands for none."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

import calc
from calc.errors import BadInputError, DimensionError, NapkinError, SpecError
from calc.models.catalogue import CATALOGUE
from calc.models.load import load

MODEL = """
import torch
from calc import Spec

spec = Spec(
    name="my model",
    dims={"B": 4, "n": 3},
    build=lambda n: torch.nn.Linear(n.n, 1),
    inputs=lambda n: (torch.randn(n.B, n.n),),
    loss=lambda module, x: module(x).sum(),
    check_at={"B": 2},
)
other = 3
"""


def written(folder: Path, text: str, name: str = "model.py") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def refusal(name: str) -> str:
    """The message that refuses ``name``, which must be one line."""
    with pytest.raises(NapkinError) as caught:
        load(name)
    message = str(caught.value)

    assert "\n" not in message
    return message


# -- built-in names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_name_of_the_catalogue_loads(name: str) -> None:
    """As a built-in spec of that name, with a key for the cache."""
    spec = load(name)

    assert (spec.name, spec.source) == (name, "built-in")
    assert spec.key == f"built-in:{name}"


def test_the_public_function_loads_too() -> None:
    """``calc.models.load`` is what users call."""
    assert calc.load("mlp").name == "mlp"


def test_an_option_is_part_of_the_name_and_of_the_key() -> None:
    """A trace with dropout must not be taken for one without."""
    spec = load("gpt2:dropout=0.1")

    assert spec.name == "gpt2:dropout=0.1"
    assert spec.key != load("gpt2").key
    assert load("gpt2:dropout=0").key == load("gpt2").key


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("GPT2", "unknown model 'GPT2': did you mean gpt2? (give a built-in name, hf:PATH of a config.json, or FILE.py:NAME)"),
        ("gtp2", "unknown model 'gtp2': did you mean gpt2? (give a built-in name, hf:PATH of a config.json, or FILE.py:NAME)"),
        (
            "wavenet",
            f"unknown model 'wavenet': the built-in ones are {', '.join(CATALOGUE)}"
            " (give a built-in name, hf:PATH of a config.json, or FILE.py:NAME)",
        ),
        ("gpt2:drop=0.1", "gpt2 has no option 'drop': it has dropout"),
        ("gpt2:dropout=much", "gpt2: dropout = 'much' is not a number"),
        ("mlp:dropout=0.1", "mlp has no options, so nothing may follow its name: mlp"),
        ("llama/config.json", "'llama/config.json' is not a built-in model: for a Hugging Face config write hf:llama/config.json"),
        ("absent.py", "no file absent.py: give the path of the Python file that holds the spec"),
        ("absent.py:spec", "no file absent.py: give the path of the Python file that holds the spec"),
    ],
)
def test_an_unknown_name_is_refused_with_what_to_write(name: str, message: str) -> None:
    """The nearest names, or the form that was probably meant."""
    assert refusal(name) == message


LONG = "x" * 10_000


@pytest.mark.parametrize("name", ["", ":", "hf:", LONG, f"hf:{LONG}", f"{LONG}.py:a", "a\0b", "hf:a\0b", "a\0b.py:c"])
def test_no_name_at_all_escapes_as_a_traceback(name: str) -> None:
    """Empty, endless, and with a null byte."""
    assert len(refusal(name)) < 500


# -- the user's own file -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_users_file_gives_its_spec(tmp_path: Path) -> None:
    """Under its own name; its source names the file and its content."""
    file = written(tmp_path, MODEL)

    spec = load(f"{file}:spec")

    assert spec.name == "my model"
    assert re.fullmatch(r"model\.py, sha256 [0-9a-f]{16}", spec.source)
    assert spec.sizes() == {"B": 4, "n": 3}


@pytest.mark.slow
def test_the_key_follows_the_content_of_the_file_and_of_what_it_imports(tmp_path: Path) -> None:
    """A neighbor's change must not be answered from the cache."""
    written(tmp_path, "import torch\n\nWIDTH = 3\n", "napkin_test_neighbor.py")
    fresh = "import sys\nsys.modules.pop('napkin_test_neighbor', None)\nfrom napkin_test_neighbor import WIDTH\n"
    file = written(tmp_path, fresh + MODEL)
    first, again = load(f"{file}:spec").key, load(f"{file}:spec").key
    written(tmp_path, "import torch\n\nWIDTH = 33\n", "napkin_test_neighbor.py")
    neighbor_changed = load(f"{file}:spec").key
    file.write_text(file.read_text() + "\n")
    changed = load(f"{file}:spec").key

    assert first == again
    assert len({first, neighbor_changed, changed}) == 3


def test_a_file_is_run_again_only_if_it_has_changed(tmp_path: Path) -> None:
    """A trace replaces functions in the loaded module: one that a second load had replaced would be traced with Python's own."""
    file = written(tmp_path, MODEL)
    first = load(f"{file}:spec")

    assert load(f"{file}:spec").build is first.build
    written(tmp_path, MODEL.replace('"n": 3', '"n": 5'))
    assert (3, 5) == (first.dims["n"], load(f"{file}:spec").dims["n"])


def test_what_a_users_file_prints_goes_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Data is on stdout, and only data."""
    load(f"{written(tmp_path, MODEL + 'print(1234567)')}:spec")
    out, err = capsys.readouterr()

    assert (out, err) == ("", "1234567\n")


def test_a_dataclass_in_a_users_file_works(tmp_path: Path) -> None:
    """The file is a proper module while it runs."""
    imports = "from __future__ import annotations\nfrom dataclasses import dataclass, field\n"
    config = "@dataclass\nclass Config:\n    n: int = field(default=3)\n"

    assert load(f"{written(tmp_path, imports + config + MODEL)}:spec").name == "my model"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import math\n\nmath.sqrt(-1)\n", "{file} line 3: ValueError: math domain error"),
        ("def f():\n    return g()\n\nf()\n", "{file} line 2: NameError: name 'g' is not defined"),
        ("x = (\n", "{file} line 1: SyntaxError: '(' was never closed"),
        ("x = 1\n  y = 2\n", "{file} line 2: IndentationError: unexpected indent"),
        ("import nowhere_to_be_found\n", "{file} line 1: ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("import sys\nsys.exit(3)\n", "{file} line 2: SystemExit: 3"),
        ("raise RuntimeError('first\\nsecond')\n", "{file} line 1: RuntimeError: first"),
        ("assert False\n", "{file} line 1: AssertionError"),
    ],
)
def test_an_error_in_a_users_file_is_one_line_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    """The file, the line, the error; no traceback of ours."""
    file = written(tmp_path, text)

    assert refusal(f"{file}:spec") == message.format(file=file)


def test_an_error_in_a_library_is_placed_at_the_users_line(tmp_path: Path) -> None:
    """Line 3 called it."""
    file = written(tmp_path, "import torch\n\ntorch.zeros(2, 3) @ torch.zeros(5)\n")

    assert refusal(f"{file}:spec").startswith(f"{file} line 3: RuntimeError: ")


def test_a_name_that_is_no_spec_is_refused_with_those_that_are(tmp_path: Path) -> None:
    """Both for a name that is not there and for one that is something else."""
    file = written(tmp_path, MODEL)

    assert refusal(f"{file}:model") == f"{file}: no name 'model'; its specs are spec"
    assert refusal(f"{file}:other") == f"{file}: 'other' is of type int, not a spec; its specs are spec"


def test_a_file_with_one_spec_needs_no_name(tmp_path: Path) -> None:
    """Of two, the name says which."""
    file = written(tmp_path, MODEL)
    both = written(tmp_path, f"{MODEL}\nsecond = spec\n", "both.py")

    assert load(str(file)).key == load(f"{file}:spec").key
    assert refusal(str(both)) == f"{both}: write {both}:NAME; its specs are spec, second"


def test_a_class_is_no_spec(tmp_path: Path) -> None:
    """The class of the user's own module is the likeliest mistake: it is called by what it is, not by the type of a class."""
    classes = "\nfrom torch import nn\nclass Net(nn.Module): pass\nclass Mine: pass\n"
    file = written(tmp_path, MODEL + classes)

    assert refusal(f"{file}:Net") == f"{file}: 'Net' is a module class, not a spec; its specs are spec"
    assert refusal(f"{file}:Mine") == f"{file}: 'Mine' is a class, not a spec; its specs are spec"


def test_a_file_without_a_spec_is_refused_with_an_example(tmp_path: Path) -> None:
    """The five parts that every spec has."""
    file = written(tmp_path, "x = 1\n")

    assert refusal(f"{file}:spec").endswith("write NAME = calc.Spec(name=…, dims=…, build=…, inputs=…, loss=…)")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"n": 3', '"n": 0', "n = 0 is not positive: sizes are integers from 1 to 2**63 - 1"),
        ('"n": 3', '"n": 2.5', "n = 2.5 is not an integer: sizes are integers from 1 to 2**63 - 1"),
        ('"n": 3', '"n": "2*q"', "a dimension expression mentions 'q', which is not a dimension of this model"),
        ('check_at={"B": 2}', 'check_at={"Q": 2}', "this model has no dimension 'Q': it has B, n"),
    ],
)
def test_a_spec_whose_own_sizes_do_not_resolve_is_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    """With the name it was loaded by."""
    file = written(tmp_path, MODEL.replace(old, new))

    assert refusal(f"{file}:spec") == f"{file}:spec: {message}"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('dims={"B": 4, "n": 3}', "dims={}", "spec 'my model' names no dimension: give dims={'B': 8, ...}"),
        ('"n": 3', '"lambda": 3', "spec 'my model': 'lambda' cannot name a dimension: use letters, digits and _"),
        ("loss=lambda module, x: module(x).sum()", "loss=3", "spec 'my model': loss must be a function"),
        (
            'check_at={"B": 2}',
            'trip_counts=("L",)',
            "spec 'my model': trip_counts names 'L', which is no dimension: use one of B, n",
        ),
    ],
)
def test_a_malformed_spec_is_refused_at_its_line(old: str, new: str, message: str, tmp_path: Path) -> None:
    """``Spec`` itself raises, within the user's file."""
    file = written(tmp_path, MODEL.replace(old, new))

    assert refusal(f"{file}:spec") == f"{file} line 5: SpecError: {message}"


def test_the_type_of_a_refusal_is_preserved(tmp_path: Path) -> None:
    """So that callers can tell a bad size from a bad name."""
    with pytest.raises(DimensionError):
        load(f"{written(tmp_path, MODEL.replace('3}', '0}'))}:spec")
    with pytest.raises(SpecError):
        load(f"{written(tmp_path, 'x = 1')}:spec")
    with pytest.raises(BadInputError):
        load("nothing")


class Lazy(types.ModuleType):
    """Imports what it stands for when it is first asked for anything, which here is not installed."""

    def __getattr__(self, name: str) -> object:
        raise ImportError(f"{name} needs another package")


def test_a_module_that_imports_itself_when_it_is_used_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries put such modules beside those that are loaded; they are no part of the model."""
    monkeypatch.setitem(sys.modules, "lazy_part", Lazy("lazy_part"))
    spec = load(f"{written(tmp_path, MODEL)}:spec")

    assert not calc.derive(spec, cache=False).specialized
