"""What every command has alike: its line in the help, and how sizes are given."""

from __future__ import annotations

import re
import sys

import click
import pytest
from click.testing import CliRunner

from reports.cli import COMMANDS, GROUPS, napkin
from reports.cli.listing import LISTS
from tests.quick import few

SIZED = {
    "derive linear": "B=3 D=7 K=5", "compare linear B=5": "D=7 K=5", "gradients linear": "B=3", "initialization linear": "B=3",
    "storage linear": "B=3 D=7", "inference linear": "B=3", "roofline linear --gpu a100-sxm-80": "B=3 D=7 K=5",
    "sweep linear": "B=1,2", "bytes-per-parameter linear": "D=7 K=5", "einsum 'a b, b c -> a c'": "a=3 b=2 c=4",
    "ask training-time parameters=70e9 gpu=h100-sxm mfu=0.5": "tokens=15e12 gpus=1024",
    "shard L=6 d=64 h=4 f=128 V=512": "T=128 data=2",
    "layout L=6 d=64 h=4 f=128 V=512 gpu=h100-sxm": "T=128 devices=2 batch=4",
}  # fmt: skip


def output(*words: str) -> str:
    done = CliRunner().invoke(napkin, list(words))
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("command", few(SIZED, 4))
def test_sizes_are_given_the_same_way_to_every_command(command: str) -> None:
    """``T=4096``, ``-d T=4096`` and both together."""
    import shlex

    words, sizes = shlex.split(command), SIZED[command].split()
    plain = output(*words, *sizes)

    assert plain == output(*words, *(word for size in sizes for word in ("-d", size)))
    assert plain == output(*words, "-d", sizes[0], *sizes[1:])


def test_a_model_comes_before_its_sizes() -> None:
    done = CliRunner().invoke(napkin, ["derive", "B=4", "gpt2"])

    assert (2, "napkin: the model comes before its sizes: napkin derive gpt2 B=4\n") == (done.exit_code, done.stderr)


def test_the_help_has_every_command_in_a_line_by_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 80 columns none is cut, and none is imported for it."""
    monkeypatch.setenv("COLUMNS", "80")
    text = output("--help")
    lines = [line.split(maxsplit=1) for line in text.splitlines()]

    for title, group in GROUPS.items():
        assert f"{title}:\n" in text
        for name, (_, words) in group.items():
            assert [name, words] in lines
    assert "..." not in text.partition("Options:")[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_begins_with_a_sentence(name: str) -> None:
    """It has a subject or a verb, and ends like a sentence."""
    command = napkin.get_command(click.Context(napkin), name)

    assert command is not None
    first = (command.help or "").partition("\n\n")[0].strip()
    assert first[0].isupper()
    assert first.endswith((".", ":"))


@pytest.mark.parametrize("width", [60, 90])
@pytest.mark.parametrize("command", [
    "roofline linear --gpu h100-sxm", "predict linear --gpu h100-sxm", "storage linear", "initialization cruncher",
    "compare linear D=3", "bytes-per-parameter linear",
])  # fmt: skip
def test_a_size_stays_beside_its_name_in_a_narrow_terminal(command: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """``h = 12`` is on one line; ``COLUMNS`` counts in a pipe too."""
    monkeypatch.setenv("COLUMNS", str(width))
    text = output(*command.split())

    assert max(map(len, text.splitlines())) <= width
    assert re.findall(r"\b[A-Za-z]\n *= |\b[A-Za-z] =\n", text) == []


@pytest.mark.parametrize("width", [60, 90])
@pytest.mark.parametrize("command", [
    "derive linear", "derive linear --explain flops.forward.matmul", "derive linear --saved", "list rules convolution",
    "list quantities", "list questions days", "ask training-time parameters=70e9 tokens=15e12 gpu=h100-sxm gpus=1024 mfu=0.5",
    "shard L=6 d=64 h=4 g=2 f=128 V=512 T=128 data=2 tensor=2 gpu=h100-sxm", "optimizer adamw", "dtype bf16", "storage",
])  # fmt: skip
def test_no_name_is_split_in_a_narrow_terminal(command: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every word of it stands in the text of a very wide terminal too; a product may break behind its dots."""
    from reports.writers import terminal

    monkeypatch.setattr(terminal, "PIPE_WIDTH", 10_000)
    whole = {piece for word in output(*command.split()).split() for piece in (word, *word.replace("·", "· ").split())}
    monkeypatch.setattr(terminal, "PIPE_WIDTH", width)
    narrow = output(*command.split())
    pieces = {piece.rstrip(":") for word in narrow.split() for piece in word.replace("·", "· ").split() if set(word) != {"─"}}

    assert max(map(len, narrow.splitlines())) <= width
    assert pieces - {piece.rstrip(":") for piece in whole} == set()


def help_in(width: int, name: str) -> str:
    """The help of a command in a terminal of so many columns; ``CliRunner`` has 80, whatever ``COLUMNS`` says."""
    command = napkin.get_command(click.Context(napkin), name)
    assert command is not None
    return command.get_help(click.Context(command, info_name=f"napkin {name}", terminal_width=width))


@pytest.mark.parametrize("width", [60, 90])
def test_no_name_is_split_in_the_help_of_a_narrow_terminal(width: int) -> None:
    """``zero-activations``, ``adagrad-lecture`` and the like: no line ends with a hyphen, none is longer than the terminal."""
    lines = [line for name in COMMANDS for line in help_in(width, name).splitlines()]

    assert [] == [line for line in lines if line.endswith("-") or len(line) > width]
    assert {"rules-of-thumb", "zero-activations."} <= {word for line in lines for word in line.split()}


@pytest.mark.parametrize("width", [60, 90])
@pytest.mark.parametrize("name", ["ask", "shard", "layout"])
def test_the_examples_of_the_help_are_pasted_as_they_are_shown(name: str, width: int) -> None:
    """A line that ends with a backslash goes on in the next, as a shell reads it."""
    text, whole = (help_in(columns, name).replace(" \\\n", " ") for columns in (width, 1000))
    examples = [[line.split() for line in each.splitlines() if line.startswith(f"  napkin {name} ")] for each in (text, whole)]

    assert len(examples[0]) > 2
    assert examples[0] == examples[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["derve", "gpt2"], "unknown command 'derve': did you mean derive?"),
        (["frobnicate"], f"unknown command 'frobnicate': use one of {', '.join(COMMANDS)}"),
        (["derive"], "missing MODEL: see napkin list models, and napkin derive --help"),
        (["ask"], "missing QUESTION: see napkin list questions, and napkin ask --help"),
        (["optimizer"], "missing NAME: see napkin list optimizers, and napkin optimizer --help"),
        (["verify"], "missing FILE: see napkin verify --help"),
        (["roofline", "gpt2"], "missing --gpu: see napkin list hardware, and napkin roofline --help"),
        (["list"], "missing LIST: see napkin list --help"),
        (["list", "model"], f"unknown list 'model': did you mean models? ({', '.join(LISTS)})"),
        (["derive", "gpt2", "--explian", "parameters"], "unknown option --explian: did you mean --explain?"),
        (["derive", "gpt2", "--zzz"], "unknown option --zzz: see napkin derive --help"),
        (["derive", "gpt2", "--fix"], "unknown option --fix: it is one of napkin verify; see napkin derive --help"),
        (["derive", "gpt2", "optimizer=sgd"], "optimizer is an option, not a size: write --optimizer sgd"),
        (["derive", "gpt2", "-d", "zero_grad=zero"], "zero_grad is an option, not a size: write --zero-grad zero"),
        (["compare", "gpt2", "gpt2 optimiser=adam"], "unknown option 'optimiser': did you mean optimizer?"),
        (["shard", "llama3-8b", "tensro=4"], "neither a layout nor llama3-8b has 'tensro': did you mean tensor?"),
        (["shard", "L=2", "tensro=4"], "unknown key 'tensro': did you mean tensor?"),
        (["shard", "llama3-8b", "data=1.5"], "data = '1.5' is not an integer number of ranks"),
        (["shard", "llama3-8b", "--zzz"], "unknown option --zzz: see napkin shard --help"),
        (["layout", "llama3-8b", "--fix"], "unknown option --fix: it is one of napkin verify; see napkin layout --help"),
        (["compare"], "missing MODEL: see napkin list models, and napkin compare --help"),
        (["shard", "llama3-8b", "tensor=4", "sequence=kept"], "sequence = 'kept' is unknown: use one of off, saved, regather"),
    ],
)
def test_what_is_misspelled_or_missing_has_the_way_on(words: list[str], message: str) -> None:
    """In one line: the nearest name, the names there are, or the help of the command."""
    done = CliRunner().invoke(napkin, words)

    assert (2, f"napkin: {message}\n") == (done.exit_code, done.stderr)


def test_the_help_imports_no_command() -> None:
    import subprocess

    code = (
        "import sys; sys.argv = ['napkin', '--help']\nfrom reports.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert not [name for name in sys.modules if name.startswith('reports.cli.') and name != 'reports.cli.common']"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr[-500:]


def test_lists_are_short_by_default_and_searchable() -> None:
    """Questions without their keys, rules by family; with words, what contains them."""
    questions, rules = output("list", "questions"), output("list", "rules")
    days, one = output("list", "questions", "days"), output("list", "questions", "gpus")

    assert (len(questions.splitlines()) < 100, len(rules.splitlines()) < 40) == (True, True)
    assert "Symbol" not in questions
    assert {"training-time", "gpu-hours"} <= {line.split()[0] for line in days.splitlines()}
    assert "largest-batch" not in days
    assert "Symbol" in one
    assert "statement" in output("list", "rules", "aten.mm.default")
