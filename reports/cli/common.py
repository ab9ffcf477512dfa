"""What commands share: the arguments that say which step is meant, where a real run takes place, progress on standard error."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from reports.process import FAILED as FAILED
from reports.process import REFUSED as REFUSED
from reports.process import SUCCESS as SUCCESS

if TYPE_CHECKING:
    from reports.jobs.request import Request
    from reports.writers.terminal import Terminal


class Integer(click.IntRange):
    """An integer of a range, by a name that people use: click's own is "integer range"."""

    name = "integer"


SEED_OPTION = click.option(
    "--seed", type=Integer(0, 2**32 - 1), default=0, show_default=True, metavar="INTEGER", help="Seed of all random numbers of the run."
)


class NumberRange(click.FloatRange):
    """A number of a range, likewise."""

    name = "number"


def option_of(command: click.Command, name: str) -> click.Option:
    """An option of a command, which shares it with others, to say what it is there."""
    return next(p for p in command.params if isinstance(p, click.Option) and p.name == name)


def given_once(command: click.Command, args: Sequence[str]) -> None:
    """Refuse an option that is given twice, of which click takes the last, and one that is given nothing."""
    params = [copy.copy(param) for param in command.params]
    options = {p.name: p for p in params if isinstance(p, click.Option) and not p.is_flag}
    once = {name for name, option in options.items() if not option.multiple}
    for option in options.values():
        option.multiple = True  # so that every value is seen
    gathering = click.Command(command.name, params=params, context_settings=command.context_settings)
    try:
        values, _, _ = gathering.make_parser(click.Context(gathering, **command.context_settings)).parse_args(list(args))
    except click.UsageError:
        return  # which click says in its own words
    for name, option in options.items():
        several, shown = values.get(str(name), ()), max(option.opts, key=len)
        if name in once and len(several) > 1:
            raise click.UsageError(f"{shown} is given twice, {several[0][:40]!r} and {several[1][:40]!r}: give it once")
        if any(isinstance(value, str) and not value.strip() for value in several):
            raise click.UsageError(f"{shown} is given an empty value: leave it out, or give one")


def refuse_idle(because: str, *names: str) -> None:
    """Refuse options of this call, by their parameters' names, that it would not look at."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = option_of(context.command, name)
            raise click.UsageError(f"{max(option.opts, key=len)} has no effect {because}: leave it out")


def say_idle(file: Path, kind: str, *names: str) -> None:
    """Say of options of this call that they have no effect on one of its files."""
    from reports.typeset.escape import brief

    context = click.get_current_context()
    unused = [name for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    for name in unused:
        option = max(option_of(context.command, name).opts, key=len)
        click.echo(brief(f"{file}: {option} has no effect: the file is {kind}"), err=True)


def output_folder(text: str) -> Path:
    """The folder that ``-o`` names, refused before any work where none can be written to there; nothing is made yet."""
    return _writable_folder(Path(text), "; -o names a folder")


def judge_output(text: str | None) -> None:
    """Refuse the file that ``-o`` names, before any work, where it cannot be written; its folder must exist. Nothing is made yet."""
    from calc.platform import files

    if text is None:
        return
    if os.path.exists(Path(text).parent):
        _writable_folder(Path(text).parent)
    files.judge(text, label="a report to")


def _writable_folder(folder: Path, hint: str = "") -> Path:
    from calc.errors import BadInputError

    try:
        above = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    except OSError as error:
        raise BadInputError(f"cannot write a report to {folder}: {error.strerror}") from None
    if not above.is_dir():
        raise BadInputError(f"cannot write a report to {folder}: {above} is a file{hint}")
    if not os.access(above, os.W_OK | os.X_OK):
        raise BadInputError(f"cannot write a report to {folder}: no permission to write to {above}")
    if not _takes_files(above):
        raise BadInputError(f"cannot write a report to {folder}: no file can be made in {above}")
    return folder


def _takes_files(folder: Path) -> bool:
    """Whether a file can be made in ``folder``, by a trial: permissions alone do not say it of ``/proc``."""
    import tempfile  # importing it takes milliseconds, and most runs write no file

    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _refuse_option(size: str) -> None:
    """Refuse ``optimizer=sgd`` where ``--optimizer sgd`` is an option of the command; an integer may be a dimension of that name."""
    name, equals, value = size.partition("=")
    command = click.get_current_context().command
    options = {option for param in command.params if isinstance(param, click.Option) for option in param.opts}
    option = f"--{name.replace('_', '-')}"
    if equals and option in options and not value.isdecimal():
        raise click.UsageError(f"{name[:40]} is an option, not a size: write {option} {shlex.quote(value[:40])}")


def sizes_arguments(
    text: str = "Set a dimension; B=8 T=1024 after the model is the same.", *, model: bool | None = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The arguments ``model`` (None: there is none) and ``sizes``: ``T=4096`` after the model, or ``-d T=4096``."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_sizes(*args: Any, sizes: Sequence[str], further: Sequence[str], **keywords: Any) -> Any:
            first = keywords.get("model")
            if first is not None and re.fullmatch(r"\w+=\d+", first):
                raise click.UsageError(f"the model comes before its sizes: napkin {click.get_current_context().info_name} gpt2 {first}")
            for size in (*sizes, *further):
                _refuse_option(size)
            return command(*args, sizes=(*sizes, *further), **keywords)

        option = click.option("-d", "--dim", "sizes", multiple=True, metavar="NAME=INTEGER", help=text)
        keywords = click.argument("further", nargs=-1, metavar="[NAME=INTEGER]...")
        sized: Callable[..., Any] = keywords(option(with_sizes))
        return sized if model is None else click.argument("model", required=model)(sized)

    return decorate


def model_arguments(command: Callable[..., Any]) -> Callable[..., Any]:
    """The arguments that say which step is meant."""
    return sizes_arguments()(step_options(command))


def pairs_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option ``-d T=4096``, where ``T=4096`` alone is the usual way: both end up in ``words``."""

    @functools.wraps(command)
    def with_pairs(*args: Any, pairs: Sequence[str], words: Sequence[str], **keywords: Any) -> Any:
        return command(*args, words=(*words, *pairs), **keywords)

    text = "Set a key or a size; KEY=VALUE without -d is the same."
    return click.option("-d", "--dim", "pairs", multiple=True, metavar="KEY=VALUE", help=text)(with_pairs)


_PRECISION = "Number format of weights and arithmetic: fp32, bf16-autocast, fp16-autocast, bf16, bf16-master."


def step_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say how a step runs."""
    for decorate in (
        click.option("--no-cache", is_flag=True, help="Trace the step again, and neither read nor write the cache."),
        click.option(
            "--zero-grad", default="none", show_default=True, metavar="HOW", help="What zero_grad sets gradients to: none or zero."
        ),
        click.option("--accumulation", default="1", show_default=True, metavar="INTEGER", help="Micro-batches per step, 1 to 64."),
        click.option(
            "--checkpointing",
            default="none",
            show_default=True,
            metavar="WHAT",
            help="What is recomputed in the backward pass: none, block, block/2, attention.",
        ),
        click.option(
            "--implementation", default="loop", show_default=True, metavar="WAY", help="Optimizer implementation: loop, foreach or fused."
        ),
        click.option("--mode", default="train", show_default=True, metavar="MODE", help="What the step runs: train, eval or infer."),
        click.option(
            "--kernels",
            default="cpu",
            show_default=True,
            metavar="DEVICE",
            help="Whose kernels and autocast lists torch uses: cpu, or cuda, where the optimizer runs as foreach unless --implementation is"
            " given.",
        ),
        click.option("--attention", default="fused", show_default=True, metavar="KIND", help="Attention kernel: fused or math."),
        click.option("--precision", default="fp32", show_default=True, metavar="NAME", help=_PRECISION),
        click.option("--optimizer", default="adamw", show_default=True, metavar="NAME", help="Optimizer: see napkin list optimizers."),
    ):
        command = decorate(command)
    return command


def measuring_arguments(command: Callable[..., Any]) -> Callable[..., Any]:
    """The arguments of whatever is measured: where, and what becomes of it."""
    for decorate in (
        click.option("--strict", is_flag=True, help="Fail if the device is missing."),
        click.option("--json", "as_json", is_flag=True, help="Show it as JSON."),
        click.option(
            "-o", "--output", metavar="FILE", help="Write the measurement to FILE as JSON, with machine, versions and every repetition."
        ),
        click.option("--device", metavar="NAME", help="Device: cpu, cuda, cuda:1 and so on; the default is cuda if present."),
    ):
        command = decorate(command)
    return command


def unmeasured(kind: str, because: str, as_json: bool, strict: bool) -> int:
    """Say that nothing was measured, and why; that is not a failure unless it is to be one."""
    from reports.jobs import job

    text = job.json_text({"schema": 1, "kind": kind, "verdict": "not measured", "because": because})
    click.echo(text if as_json else because, nl=not as_json)
    return FAILED if strict else SUCCESS


def say_written(*files: str | Path) -> None:
    """What was written, on standard error. A file's name is text of somebody's own."""
    from reports.typeset.escape import brief

    for file in files:
        click.echo(f"wrote {brief(str(file))}", err=True)


def print_result(as_json: bool, document: Callable[[], Mapping[str, Any]], show: Callable[[Terminal], None]) -> None:
    """The result on standard output: its document as JSON, or as ``show`` writes it for people."""
    if as_json:
        from reports.jobs.request import json_text

        click.echo(json_text(document()), nl=False)
    else:
        from reports.writers.terminal import Terminal

        show(Terminal())


def hand_over(document: Mapping[str, Any], output: str | None, as_json: bool, show: Callable[[Terminal], None]) -> None:
    """A measurement into its file, whole or not at all, and onto standard output."""
    from reports.jobs import job

    if output is not None:
        say_written(*job.write_all(Path(output).parent, {Path(output).name: job.json_text(document)}))
    print_result(as_json, lambda: document, show)


_OF_TRAINING = ("optimizer", "implementation", "accumulation", "zero_grad", "checkpointing")


def refuse_untrained(mode: str) -> None:
    """Refuse what only a step that trains has, of one that does not."""
    if mode in ("eval", "infer"):
        refuse_idle(f"in mode {mode}, which trains nothing", *_OF_TRAINING)


def run_as_foreach(options: dict[str, Any]) -> None:
    """Let the optimizer run as torch runs it on CUDA by default, unless the implementation is given."""
    from calc.options import NAMED_OPTIMIZERS

    optimizer = NAMED_OPTIMIZERS.get(options["optimizer"])
    source = click.get_current_context().get_parameter_source("implementation")
    if source is ParameterSource.DEFAULT and optimizer is not None and "foreach" in optimizer.ways:
        options["implementation"] = "foreach"


def request_of(model: str, sizes: Sequence[str], no_cache: bool, **options: str) -> Request:
    """The request of a command: model, sizes and options. Raises ``BadInputError`` for options that do not go together."""
    from calc.options import made
    from reports.jobs.request import Request, sizes_from

    refuse_untrained(options["mode"])
    if options["kernels"] == "cuda":
        run_as_foreach(options)
    return Request(model, sizes_from(sizes), made(**options), cache=not no_cache)


def device_here(device: str | None) -> tuple[str, str]:
    """The device to measure on, by default CUDA where there is one; and why it is not here, empty where it is."""
    from reports.jobs import job

    if device is not None and not re.fullmatch(r"cpu|cuda(:\d{1,3})?", device):
        raise click.UsageError(f"unknown device {device[:40]!r}: use cpu, cuda, or cuda:1 and so on")
    if device == "cpu":
        return device, ""
    absent = job.no_cuda()
    return ("cpu", "") if device is None and absent else (device or "cuda", absent)


def require_gpu(gpu: str | None, device: str) -> None:
    """Refuse an accelerator that is not known, or that is not a peak of what is measured."""
    from calc.hardware.accelerators import accelerator

    if gpu is None:
        return
    if click.get_current_context().params.get("peak") is not None:
        refuse_idle("beside --peak, which is the peak that counts", "gpu")
    accelerator(gpu)
    if device == "cpu":
        raise click.UsageError("--gpu names a CUDA device whose peak counts: on cpu give the peak itself, --peak 100e9")


def rate_of(text: str | None) -> Fraction | None:
    """A peak as it is typed, in FLOP/s."""
    from calc.capacity.questions.values import read

    return None if text is None else read("--peak", text, "FLOP/s").value


def command_line() -> str:
    """The command as it was typed, for the record of a measurement."""
    return shlex.join(["napkin", *sys.argv[1:]])


def require_device(device: str) -> None:
    """Raises ``UsageError`` unless the device is one that can run."""
    if device not in ("cpu", "cuda"):
        raise click.UsageError(f"unknown device {device!r}: use cpu or cuda")


@contextlib.contextmanager
def talk() -> Iterator[Callable[[str], None]]:
    """Progress on standard error: one moving line on a terminal, plain lines elsewhere.

    What a model prints while it is built or run goes there too, so that standard output holds data only.
    """
    from reports.typeset.escape import brief
    from reports.writers.terminal import width_of

    with contextlib.redirect_stdout(sys.stderr):
        if not sys.stderr.isatty():
            yield lambda text: click.echo(f"{brief(text)} …", err=True)
            return
        width = width_of(sys.stderr)
        try:
            yield lambda text: click.echo(f"\r\x1b[K{f'{brief(text)} …'[: width - 1]}", nl=False, err=True)
        finally:
            click.echo("\r\x1b[K", nl=False, err=True)
