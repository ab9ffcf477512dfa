"""``napkin inference``, ``checkpointing`` and ``checkpoint``: memory beyond the plain training step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import click

from reports.cli.common import FAILED, SEED_OPTION, SUCCESS, model_arguments, option_of, print_result, request_of, sizes_arguments, talk


@click.command()
@sizes_arguments("Set a dimension: T is the number of cached tokens, B of sequences. T=8192 after the model is the same.")
@click.option(
    "--weights",
    "weights_in",
    default="bf16",
    show_default=True,
    metavar="FORMAT",
    help="Number format of the weights: fp32, bf16, fp8, int8, int4, …",
)
@click.option("--group", type=int, metavar="INTEGER", help="Weights that share a scale in int4 (default 128).")
@click.option("--cache-format", "cache_in", default="bf16", show_default=True, metavar="FORMAT", help="Number format of keys and values.")
@click.option("--no-cache", is_flag=True, help="Trace the forward again, and neither read nor write the cache.")
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
def inference(model: str, sizes: Sequence[str], no_cache: bool, as_json: bool, **formats: Any) -> None:
    """Derive the memory of inference: weights in a number format, keys and values of T tokens, in closed form."""
    from calc.memory.inference import document
    from reports.jobs import job

    with talk() as say:
        bytes_in_use = job.inference(model, job.sizes_from(sizes), say, remember=not no_cache, **formats)
    from reports.views import memory as view

    print_result(as_json, lambda: document(bytes_in_use), lambda out: view.show_inference(bytes_in_use, out))


@click.command()
@model_arguments
@click.option("--memory", metavar="BYTES", help="Memory of the device (80GB, 80GiB): also show which choice fits and recomputes the least.")
@click.option("--json", "as_json", is_flag=True, help="Write the comparison as JSON.")
def checkpointing(memory: str | None, as_json: bool, **options: Any) -> None:
    """Compare the choices of activation checkpointing: peak memory and recomputed FLOPs of each."""
    if options["checkpointing"] != "none":
        raise click.UsageError("this compares every choice of --checkpointing: leave the option out")
    from calc.capacity.questions.values import device_memory
    from calc.memory.checkpointing import document
    from reports.views import memory as view

    limit = None if memory is None else math.floor(device_memory("--memory", memory))
    with talk() as say:
        comparison = view.compare_choices(request_of(**options), limit, say)
    print_result(as_json, lambda: document(comparison), lambda out: view.show_choices(comparison, out))


option_of(checkpointing, "checkpointing").hidden = True  # refused, in words that name it


@click.command()
@model_arguments
@click.option("--save-seconds", type=float, metavar="SECONDS", help="Time to write a checkpoint, in seconds: to derive how often to save.")
@click.option("--failure-hours", type=float, metavar="HOURS", help="Mean time between failures, in hours: to derive how often to save.")
@click.option(
    "--scheduler", "schedule", metavar="NAME", help="Learning-rate scheduler of the run: cosine, linear, step, exponential, lambda."
)
@SEED_OPTION
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
def checkpoint(
    save_seconds: float | None, failure_hours: float | None, schedule: str | None, seed: int, as_json: bool, **options: Any
) -> int:
    """Derive the size of a checkpoint on disk, and check in a real run that training resumes from one bit for bit.

    The file includes the progress of training: iteration, random generators' states and the scheduler's.
    """
    if (save_seconds is None) != (failure_hours is None):
        raise click.UsageError("how often to save depends on both --save-seconds and --failure-hours: give both")
    for name, value in (("--save-seconds", save_seconds), ("--failure-hours", failure_hours)):
        if value is not None and not 0 < value < math.inf:
            raise click.UsageError(f"{name} is {value:g}: give a number above 0")
    from calc.memory.checkpoint import document
    from reports.jobs import job

    with talk() as say:
        checkpointed = job.saving(request_of(**options), say, save_seconds, failure_hours, schedule or "", seed)
    from reports.views import memory as view

    print_result(as_json, lambda: document(checkpointed), lambda out: view.show_checkpoint(checkpointed, out))
    return SUCCESS if checkpointed.ok else FAILED
