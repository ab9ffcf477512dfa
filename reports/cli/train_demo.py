"""``napkin train-demo``: train a small model for real, with every accounted step beside what was derived of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from reports.cli.common import (
    FAILED,
    SEED_OPTION,
    SUCCESS,
    Integer,
    device_here,
    print_result,
    rate_of,
    refuse_idle,
    require_gpu,
    sizes_arguments,
    talk,
    unmeasured,
)

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
@click.option("--gpu", metavar="ID", help="Accelerator whose peak is used, if it is not recognized by name (napkin list hardware).")
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
    folder = None if output is None else Path(output)
    training = TrainingRequest(model, sizes_from(sizes), steps, every, folder, save_every, resume, machine, rate_of(peak), gpu, seed)
    if absent:
        return unmeasured(KIND, absent, as_json, strict)
    with talk() as say:
        ready = prepared(training, say)
    with training_run.progress(steps, ready.throughput.unit) as show_progress:
        run = demonstrate(ready, show_progress)
    print_result(as_json, run.to_json, lambda out: training_run.show(run, out))
    return SUCCESS if run.agrees else FAILED
