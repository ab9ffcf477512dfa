"""The command ``napkin``: data on standard output, talk on standard error, one line for every refusal.

Exit status: 0 all held, 1 a check failed, 2 bad usage or input, or that of the shell's own for an interrupt (130) and a closed pipe (141).
Whatever is heavy is imported inside the commands.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

import click

from calc.errors import NapkinError
from calc.platform.garbage import BETWEEN_SEARCHES
from reports import process
from reports.cli.common import given_once
from reports.process import INTERRUPTED, PIPE_CLOSED, REFUSED, SUCCESS, interrupted

# Commands by purpose: each with its file and function, imported when it is called, and the line that ``napkin --help`` shows.
GROUPS = {
    "Derive and check a training step": {
        "derive": ("derive:derive", "every quantity in closed form, each with its steps"),
        "check": ("derive:check", "run the step for real, compare every number"),
        "report": ("derive:report", "write all of it as HTML, Markdown and JSON"),
        "compare": ("compare:compare", "two steps and their difference, or a table of several"),
        "sweep": ("sweep:sweep", "quantities over many sizes, as a table or a figure"),
        "published": ("compare:published", "tables of Kaplan, Chinchilla, … beside exact counts"),
        "list": ("listing:list_", "models, quantities, rules, questions, hardware, …"),
    },
    "Plan a run": {
        "ask": ("ask:ask", "how long, how many devices, what fits, what it costs"),
        "shard": ("ask:shard", "memory, traffic and time on several devices"),
        "layout": ("ask:layout", "the fastest layout on N devices that fits"),
        "checkpointing": ("memory:checkpointing", "activation checkpointing: bytes saved, FLOPs added"),
        "bytes-per-parameter": ("recipes:bytes_per_parameter", "bytes per parameter of each precision recipe"),
        "inference": ("memory:inference", "memory of weights and of the KV cache"),
        "checkpoint": ("memory:checkpoint", "size of a checkpoint file, and an exact resume"),
    },
    "Predict and measure time": {
        "roofline": ("predicted:roofline", "what bounds each operator, and the minimum time"),
        "predict": ("predicted:predict", "time of a step from a calibration"),
        "calibrate": ("measuring:calibrate", "time primitive operators on this machine"),
        "measure": ("measuring:measure", "time real steps, MFU and CUDA memory"),
        "measure-matmul": ("measuring:measure_matmul", "time one matrix multiplication"),
        "transfers": ("measuring:transfers", "time copies between host and device"),
        "train-demo": ("measuring:train_demo", "train a small model, every step accounted for"),
    },
    "Look at the mathematics": {
        "gradients": ("mathematics:gradients", "the gradient equations of a model"),
        "optimizer": ("mathematics:optimizer", "update rule, state and FLOPs of an optimizer"),
        "einsum": ("mathematics:einsum", "shapes, FLOPs and bytes of an einops pattern"),
        "initialization": ("mathematics:initialization", "second moments before the first step"),
        "storage": ("mathematics:storage", "which operations return views, which allocate"),
        "dtype": ("mathematics:dtype", "range, precision and rounding of a number format"),
    },
    "Keep documents right": {
        "verify": ("verify:verify", "recompute the numbers of documents and reports"),
        "homework": ("pages:homework", "a model's accounting as exercises, solutions apart"),
        "lecture": ("pages:lecture", "audit the notes of a lecture, claim by claim"),
        "site": ("pages:site", "static pages of stored models and questions"),
    },
}
COMMANDS = {name: place for group in GROUPS.values() for name, (place, _) in group.items()}


_NAME = max(map(len, COMMANDS))  # columns of a name in the help


class _Formatter(click.HelpFormatter):
    """Help whose lines break between words only: ``rules-of-thumb`` and ``zero-activations`` stay whole in a narrow terminal."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, _unbroken(args), prefix)

    def write_text(self, text: str) -> None:
        width = self.width - self.current_indent
        paragraphs = [_continued(paragraph, width) if paragraph.startswith("\b\n") else paragraph for paragraph in text.split("\n\n")]
        super().write_text(_unbroken("\n\n".join(paragraphs)))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(name, _unbroken(text)) for name, text in rows], col_max, col_spacing)

    def getvalue(self) -> str:
        return super().getvalue().replace(_HYPHEN, "-")


_HYPHEN = "\u2011"  # a hyphen at which no line breaks


def _continued(examples: str, width: int) -> str:
    """Examples whose commands go on in the next line, as a shell reads them, where the terminal would split them."""
    return "\n".join(
        " \\\n".join(textwrap.wrap(line, width - 2, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))
        if line.startswith("napkin ") and len(line) > width
        else line
        for line in examples.split("\n")
    )


def _unbroken(text: str) -> str:
    return text.replace("-", _HYPHEN)


click.Context.formatter_class = _Formatter  # of every command


class Napkin(click.Group):
    """Imports a command when it is asked for, and prints every refusal, click's own included, as one line on standard error."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by purpose, a line each; none is imported for it."""
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(_NAME), text) for name, (_, text) in group.items()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        file, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(f"reports.cli.{file}"), name)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if not args[0].startswith("-") and args[0] not in COMMANDS:
            from calc.errors import suggestion

            raise click.UsageError(f"unknown command {args[0][:40]!r}: {suggestion(args[0], COMMANDS)}")
        name, command, arguments = super().resolve_command(ctx, args)
        if command is not None and not ctx.resilient_parsing:
            given_once(command, arguments)
        return name, command, arguments

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _past_click():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _past_click():
            return super().invoke(ctx)

    def main(  # type: ignore[override]  # click tells its results apart by standalone_mode, which is always off here
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        extra.pop("standalone_mode", None)
        try:
            value = super().main(args, prog_name or "napkin", standalone_mode=False, **extra)
            status = value if isinstance(value, int) else SUCCESS
        except BaseException as error:
            status = _status_of(error)
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except BaseException as error:
            status = _status_of(error)
        sys.exit(status)


class _Raised(Exception):
    """Carries an error through click, which has other exit statuses in mind for some."""


@contextlib.contextmanager
def _past_click() -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, EOFError, OSError) as error:
        raise _Raised from error


def _status_of(error: BaseException) -> int:
    """The exit status of an error, once its one line is on standard error. 1 is never among them: it means that a check failed."""
    if isinstance(error, _Raised) and error.__cause__ is not None:
        error = error.__cause__
    match error:
        case click.exceptions.NoArgsIsHelpError():
            click.echo(error.format_message(), err=True)
            return REFUSED
        case click.ClickException():
            return _refuse(_usage(error))
        case NapkinError():
            return _refuse(str(error))
        case click.Abort() | KeyboardInterrupt():
            return INTERRUPTED
        case BrokenPipeError() if not _of_user(error):
            _drop_output()
            return PIPE_CLOSED
    # What an import that was interrupted raises may be of any type.
    return INTERRUPTED if interrupted() else _refuse(_unexpected(error))


# The list from which a missing argument is chosen, by command and argument, or by argument alone.
_LISTING = {
    ("", "QUESTION"): "questions", ("", "MODEL"): "models", ("", "--gpu"): "hardware", ("optimizer", "NAME"): "optimizers",
    ("dtype", "FORMAT"): "dtypes",
}  # fmt: skip


def _usage(error: click.ClickException) -> str:
    """What is wrong with a command line, and what to type; click's own words where they say it."""
    match error:
        case click.MissingParameter(param=click.Parameter() as parameter, ctx=click.Context() as context):
            name = parameter.opts[0] if parameter.param_type_name == "option" else parameter.make_metavar(context).split()[0]
            name = name.removesuffix("...")
            listing = _LISTING.get((context.info_name or "", name), _LISTING.get(("", name), ""))
            return f"missing {name}: see {f'napkin list {listing}, and ' if listing else ''}{context.command_path} --help"
        case click.NoSuchOption(option_name=name, ctx=click.Context() as context):
            near = f"did you mean {error.possibilities[0]}?" if error.possibilities else f"see {context.command_path} --help"
            others = " and ".join(f"napkin {command}" for command in _with_option(name)[:2])
            return f"unknown option {name}: {f'it is one of {others}; see {context.command_path} --help' if others else near}"
        case click.UsageError(ctx=click.Context() as context, message=str() as message) if message.startswith(_EXTRA):
            return f"unexpected {message.removeprefix(_EXTRA).partition('(')[2][:-1][:60]}: see {context.command_path} --help"
    return error.format_message()


_EXTRA = "Got unexpected extra argument"  # of click


def _with_option(name: str) -> list[str]:
    """The commands that have an option."""
    commands = ((command, napkin.get_command(click.Context(napkin), command)) for command in COMMANDS)
    return [command for command, made in commands if made is not None and any(name in param.opts for param in made.params)]


def _of_user(error: BaseException) -> str:
    from calc.models.load import line_of_user

    return line_of_user(error)


def _drop_output() -> None:
    """Whoever read us has seen enough; Python would complain again while closing the stream."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse(message: str) -> int:
    from reports.typeset.escape import brief

    shown = brief(message)
    if len(shown) > _LONGEST:
        shown = f"{shown[: _LONGEST // 2]}…{shown[-_LONGEST // 2 :]}"
    with contextlib.suppress(OSError, ValueError):  # a user's code may have closed it
        click.echo(f"napkin: {shown}", err=True)
    return REFUSED


def _unexpected(error: BaseException) -> str:
    """What to say of an error that nothing turned into a refusal: of a user's code, of the machine, or of ours."""
    import traceback

    from calc.errors import text_of, words_of

    if os.environ.get(_DEBUG):
        traceback.print_exception(error)
    message, line = words_of(error), _of_user(error)
    if line:
        return f"{line}: {message}"
    if isinstance(error, MemoryError) or "can't allocate memory" in text_of(error):  # the latter of torch
        return _NO_MEMORY
    match error:
        case RecursionError():
            return f"something is nested too deeply: make it flatter ({message})"
        case OSError() if error.strerror:
            return f"{error.strerror}{f': {error.filename}' if error.filename is not None else ''}"
        case UnicodeEncodeError():
            return f"{error.object[max(error.start - 30, 0) : error.end + 30]!r} cannot be written as UTF-8: choose another name"
    place = traceback.extract_tb(error.__traceback__)[-1:]
    at = "".join(f" at {os.path.basename(frame.filename)} line {frame.lineno}" for frame in place)
    return f"a bug of Napkin: {message}{at}; please report it, with the traceback that {_DEBUG}=1 shows"


_DEBUG = "NAPKIN_DEBUG"
_NO_MEMORY = "there is not enough memory for this: choose smaller sizes, or a machine with more"
_LONGEST = 1_500  # characters of a refusal, whatever names are in it

def main() -> NoReturn:
    """``napkin`` where this package is imported already; the console script starts with ``reports.main``."""
    process.main(run)


def run() -> int:
    """The exit status of the command of this process."""
    gc.set_threshold(BETWEEN_SEARCHES)
    try:
        napkin.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else REFUSED


def _version(context: click.Context, _: click.Parameter, show: bool) -> None:
    if show:
        from reports.jobs.request import version

        click.echo(f"napkin {version()}")
        context.exit()


@click.group(cls=Napkin, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version and exit.")
def napkin() -> None:
    """Account for a PyTorch training step: parameters, memory, FLOPs and time in closed form, each checked against a real run.

    MODEL is a built-in name (napkin list models), hf:PATH of a Hugging Face config.json, or FILE.py:NAME of your own spec.
    """
