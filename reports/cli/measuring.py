"""``napkin measure``, ``calibrate``, ``measure-matmul``, ``transfers`` and ``train-demo``: real runs on this machine, timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from reports.cli.common import (
    FAILED,
    SEED_OPTION,
    SUCCESS,
    Integer,
    NumberRange,
    command_line,
    device_here,
    hand_over,
    judge_output,
    measuring_arguments,
    model_arguments,
    output_folder,
    print_result,
    rate_of,
    refuse_idle,
    request_of,
    require_gpu,
    run_as_foreach,
    sizes_arguments,
    talk,
    unmeasured,
)

_REPEAT = click.option(
    "--repeat", default=5, show_default=True, type=Integer(1, 1000), metavar="INTEGER", help="Minimum number of repetitions."
)
_GPU = click.option("--gpu", metavar="ID", help="Accelerator whose peak is used, if it is not recognized by name (napkin list hardware).")


def _seconds(default: float) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    help_text = "Minimum total time in seconds."
    return click.option("--seconds", default=default, show_default=True, type=NumberRange(0, 3600), metavar="NUMBER", help=help_text)


@click.command()
@click.option("--device", metavar="NAME", help="Device to calibrate, cpu or cuda; the default is cuda if present.")
@click.option(
    "--processor-time",
    is_flag=True,
    help="Measure this process's CPU time instead of wall time, with one thread: for a CPU that others use.",
)
@click.option("--tf32", is_flag=True, help="Run float32 matmuls in tf32 on a CUDA device, for steps that do so.")
@click.option("-o", "--output", metavar="FILE", help="Write the calibration to FILE, with every repetition.")
@click.option("--json", "as_json", is_flag=True, help="Show it as JSON.")
def calibrate(device: str | None, processor_time: bool, tf32: bool, output: str | None, as_json: bool) -> int:
    """Time primitive operators: matmuls over shapes and number formats, memory-bound operators over sizes, and launch overheads.

    napkin predict reads the file. No model is run.
    """
    from reports.views import measuring

    machine, absent = device_here(device)
    if processor_time and machine != "cpu":
        raise click.UsageError("--processor-time measures a CPU: leave it out on a CUDA device, which has its own clock")
    if tf32 and machine == "cpu":
        raise click.UsageError("--tf32 needs a CUDA device: leave it out on a CPU")
    if absent:
        return unmeasured("calibration", absent, as_json, strict=False)
    from calc.measure.calibration import calibrate as run

    judge_output(output)
    with talk() as say:
        measured = run(machine, processor_time=processor_time, tf32=tf32, progress=say)
    hand_over(measured.to_json(), output, as_json, lambda out: measuring.show_calibration(measured, out))
    return 0


_OF_MEASURING = ("repeat", "seconds", "warm_up", "peak", "gpu", "calibrated", "tf32", "compiled", "fit", "seed")


@click.command()
@model_arguments
@measuring_arguments
@click.option("--repeat", default=5, show_default=True, type=Integer(1, 1000), metavar="INTEGER", help="Minimum number of timed steps.")
@_seconds(1.0)
@click.option(
    "--warm-up", default=3, show_default=True, type=Integer(1, 1000), metavar="INTEGER", help="Warm-up steps, which do not count."
)
@click.option("--peak", metavar="RATE", help="Peak FLOP/s in the number format of the matmuls, for MFU: 100e9, 71.2TFLOP/s.")
@_GPU
@click.option(
    "--calibration",
    "calibrated",
    metavar="FILE",
    help="Calibration (napkin calibrate -o FILE): predicts the step, and gives the peak on a CPU.",
)
@click.option("--tf32", is_flag=True, help="Run fp32 matmuls and convolutions in tf32, on a CUDA device.")
@click.option("--compile", "compiled", is_flag=True, help="Compile the model with torch.compile.")
@click.option("--fit", is_flag=True, help="Also find the largest B that fits, by running out of memory on a CUDA device.")
@SEED_OPTION
def measure(device: str | None, output: str | None, as_json: bool, strict: bool, **options: Any) -> int:
    """Time real steps: forward, backward and optimizer separately, tokens per second, MFU and HFU, and the slowest modules.

    On a CUDA device the allocator's peaks are compared with their prediction, and the optimizer runs as foreach, torch's default there,
    unless --implementation is given. If the device is missing, nothing is measured and nothing is written.
    """
    from calc.performance.measuring import KIND, document
    from reports.jobs import job
    from reports.views import measuring

    device, absent = device_here(device)
    how = _options(device, **{name: options.pop(name) for name in _OF_MEASURING})
    refuse_idle("on what is measured, which runs its own device's kernels", "kernels")
    if how.on_cuda:
        run_as_foreach(options)
    request = request_of(**options)
    if absent:
        return unmeasured(KIND, absent, as_json, strict)
    judge_output(output)
    with talk() as say:
        measured = job.measure(request, replace(how, progress=say), command_line())
    hand_over(document(measured), output, as_json, lambda out: measuring.show(measured, out))
    return SUCCESS


def _options(device: str, repeat: int, seconds: float, warm_up: int, peak: str | None, **options: Any) -> Any:
    """What to measure, refused before anything runs where it cannot be."""
    from calc.hardware.calibration import read
    from calc.hardware.times import How, Repeat
    from calc.performance.measuring import MeasuringOptions

    if device == "cpu" and (options["tf32"] or options["fit"]):
        raise click.UsageError(f"--{'tf32' if options['tf32'] else 'fit'} is of CUDA devices, and not of {device}: leave it out")
    require_gpu(options["gpu"], device)
    calibration = None if options["calibrated"] is None else read(Path(options["calibrated"]))
    how = How(Repeat(warm_up, repeat, seconds, max(repeat, 1000)), tf32=options["tf32"], compiled=options["compiled"])
    return MeasuringOptions(device, repeat, options["fit"], rate_of(peak), options["gpu"], calibration, how, seed=options["seed"])


@click.command("measure-matmul")
@measuring_arguments
@sizes_arguments("Set m, k or n (default 16384, 32768 and 8192; on a CPU 512, 1024 and 256). m=512 without -d is the same.", model=None)
@click.option(
    "--dtype", "dtypes", multiple=True, metavar="NAME", help="Number format: fp32, tf32, bf16, fp16 or fp8 (default: all); may be repeated."
)
@_REPEAT
@_seconds(1.0)
@click.option("--peak", metavar="RATE", help="Peak FLOP/s of the one format given: 100e9, 71.2TFLOP/s.")
@click.option("--gpu", metavar="ID", help="Accelerator whose peaks are used, if it is not recognized by name (napkin list hardware).")
def measure_matmul(
    sizes: Sequence[str],
    dtypes: tuple[str, ...],
    device: str | None,
    repeat: int,
    seconds: float,
    peak: str | None,
    gpu: str | None,
    output: str | None,
    as_json: bool,
    strict: bool,
) -> int:
    """Time A (m, k) times B (k, n) in each number format: FLOPs, seconds, FLOP/s, and the share of that format's peak.

    The default sizes are those of the lecture's experiment on a CUDA device, and a 32nd of each on a CPU, where they would take minutes.
    """
    from calc.hardware.times import Repeat
    from calc.performance.matmul import DTYPES, KIND, document, products, sizes_for
    from reports.jobs.request import sizes_from
    from reports.views import measuring

    machine, absent = device_here(device)
    if peak is not None and len(set(dtypes)) != 1:
        raise click.UsageError("--peak holds for one number format: give that format with --dtype")
    require_gpu(gpu, machine)
    rate, shape = rate_of(peak), sizes_for(machine, sizes_from(sizes))
    if absent:
        return unmeasured(KIND, absent, as_json, strict)
    judge_output(output)
    with talk() as say:
        timed = products(shape, dtypes or DTYPES, machine, Repeat(3, repeat, seconds, max(repeat, 1000)), gpu=gpu, peak=rate, progress=say)
    default = shape == sizes_for(machine, {})
    written = document(replace(timed, command=command_line()))
    hand_over(written, output, as_json, lambda out: measuring.show_matmul(timed, default, out))
    return SUCCESS


@click.command()
@measuring_arguments
@click.option("--bytes", "size", metavar="SIZE", help="Bytes of each copy, e.g. 1GB (default 64MiB, with a CUDA device 256MiB).")
@click.option("--batch", default=32, show_default=True, type=Integer(1, 2**20), metavar="INTEGER", help="Sequences in a batch.")
@click.option("--length", default=1024, show_default=True, type=Integer(1, 2**24), metavar="INTEGER", help="Tokens in a sequence.")
@click.option(
    "--workers", default=2, show_default=True, type=Integer(0, 64), metavar="INTEGER", help="Worker processes of the data loader."
)
@click.option(
    "--prefetch", default=2, show_default=True, type=Integer(1, 64), metavar="INTEGER", help="Batches that each worker loads ahead."
)
@_REPEAT
@_seconds(0.5)
@SEED_OPTION
def transfers(
    size: str | None,
    batch: int,
    length: int,
    workers: int,
    prefetch: int,
    device: str | None,
    repeat: int,
    seconds: float,
    seed: int,
    output: str | None,
    as_json: bool,
    strict: bool,
) -> int:
    """Time data transfers: memory-mapped tokens, copies in memory and to a device, pinned or overlapping compute, and data loaders.

    Each time is shown beside its expression, bytes ÷ bandwidth. A copy before compute adds to the time of compute; a copy that overlaps it,
    or a loader whose workers load ahead, takes the longer of both. Workers pay off where a batch takes longer to load than to hand over.
    """
    from calc.capacity.questions.values import read
    from calc.hardware.times import Repeat, TransferPlan
    from calc.performance.transfers import KIND, document, measured
    from reports.jobs import job
    from reports.views import measuring as shown

    if not workers:
        refuse_idle("without workers, which load ahead", "prefetch")
    machine, absent = device_here(device)
    default = 2**26 if machine == "cpu" else 2**28
    nbytes = default if size is None else int(read("--bytes", size, "bytes", integer=True).value)
    plan = TransferPlan(nbytes, batch, length, workers, prefetch, seed)
    if absent:
        return unmeasured(KIND, absent, as_json, strict)
    judge_output(output)
    because = job.no_cuda() if machine == "cpu" and device is None else "not measured: the CPU was asked for" if machine == "cpu" else ""
    with talk() as say:
        transferred = measured(plan, machine, Repeat(2, repeat, seconds, max(repeat, 1000)), because, say)
    written = document(replace(transferred, command=command_line()))
    hand_over(written, output, as_json, lambda out: shown.show_transfers(transferred, batch, length, out))
    return SUCCESS


_COUNT: dict[str, Any] = {"type": Integer(1, 10**6), "show_default": True, "metavar": "INTEGER"}


@click.command("train-demo")
@click.option(
    "--model",
    default="gpt",
    show_default=True,
    metavar="NAME",
    help="Model to train: gpt, a small GPT-2, or linear, the lecture's linear network.",
)
@sizes_arguments("Set a dimension; B=16 without -d is the same.", model=None)
@click.option("--steps", default=60, **_COUNT, help="Total number of steps, including those before a checkpoint.")
@click.option("--every", default=10, **_COUNT, help="Account for every N-th step, and for the first.")
@click.option("-o", "--output", metavar="DIR", help="Folder for checkpoints.")
@click.option("--save-every", default=25, **_COUNT, help="Steps between checkpoints; the last step is saved too.")
@click.option("--resume", is_flag=True, help="Resume from the checkpoint in DIR, bit for bit as if the run had never stopped.")
@SEED_OPTION
@click.option("--device", metavar="NAME", help="Device: cpu, cuda, cuda:1 and so on; the default is cuda if present.")
@click.option("--peak", metavar="RATE", help="Peak FLOP/s in fp32, for MFU: 100e9, 71.2TFLOP/s.")
@_GPU
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON, every loss included.")
@click.option("--strict", is_flag=True, help="Fail if the device is missing.")
def train_demo(
    model: str,
    sizes: tuple[str, ...],
    steps: int,
    every: int,
    output: str | None,
    save_every: int,
    resume: bool,
    seed: int,
    device: str | None,
    peak: str | None,
    gpu: str | None,
    as_json: bool,
    strict: bool,
) -> int:
    """Train on synthetic data, showing loss, throughput and MFU; fail unless FLOPs and live bytes of accounted steps equal the derivation.

    Accounted steps run under instruments, which slow them down; the others are timed.
    """
    from calc.performance.training_run import KIND, TrainingRequest, demonstrate, prepared
    from reports.jobs.request import sizes_from
    from reports.views import training_run

    if output is None:
        refuse_idle("without -o, where checkpoints are kept", "save_every")
    machine, absent = device_here(device)
    require_gpu(gpu, machine)
    folder = None if output is None else output_folder(output)
    training = TrainingRequest(model, sizes_from(sizes), steps, every, folder, save_every, resume, machine, rate_of(peak), gpu, seed)
    if absent:
        return unmeasured(KIND, absent, as_json, strict)
    with talk() as say:
        ready = prepared(training, say)
    with training_run.progress(steps, ready.throughput.unit) as show_progress:
        run = demonstrate(ready, show_progress)
    print_result(as_json, run.to_json, lambda out: training_run.show(run, out))
    return SUCCESS if run.agrees else FAILED
