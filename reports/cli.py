"""The command ``napkin``: data on standard output, talk on standard error, one line for every refusal.

Exit status: 0 all held, 1 a check failed, 2 bad usage or input. Whatever is heavy is imported inside the commands.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from calc.errors import NapkinError
from reports.cli_common import HELD, INTERRUPTED, PIPE_CLOSED, REFUSED

# Each command, with its file and function: read when it is asked for, so that a short question stays short.
COMMANDS = {
    "ask": "cli_ask:ask",
    "bytes-per-parameter": "cli_recipes:bytes_per_parameter",
    "calibrate": "cli_calibrate:calibrate",
    "check": "cli_check:check",
    "checkpoint": "cli_memory:checkpoint",
    "checkpointing": "cli_memory:checkpointing",
    "compare": "cli_compare:compare",
    "derive": "cli_derive:derive",
    "dtype": "cli_dtype:dtype",
    "einsum": "cli_einsum:einsum",
    "gradients": "cli_gradients:gradients",
    "inference": "cli_memory:inference",
    "initialisation": "cli_initialisation:initialisation",
    "layout": "cli_sharding:layout",
    "lecture": "cli_lecture:lecture",
    "list": "cli_list:list_",
    "measure": "cli_measure:measure",
    "measure-matmul": "cli_measure_matmul:measure_matmul",
    "optimizer": "cli_optimizer:optimizer",
    "predict": "cli_predict:predict",
    "report": "cli_check:report",
    "roofline": "cli_roofline:roofline",
    "shard": "cli_sharding:shard",
    "storage": "cli_storage:storage",
    "sweep": "cli_sweep:sweep",
    "train-demo": "cli_train_demo:train_demo",
    "transfers": "cli_transfers:transfers",
    "verify": "cli_verify:verify",
}


class Napkin(click.Group):
    """Imports a command when it is asked for, and turns every refusal, click's own included, into one line on standard error."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        file, _, name = COMMANDS[cmd_name].partition(":")
        found: click.Command = getattr(importlib.import_module(f"reports.{file}"), name)
        return found

    def main(  # type: ignore[override]  # click tells its results apart by standalone_mode, which is always off here
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        extra.pop("standalone_mode", None)
        try:
            status = super().main(args, prog_name or "napkin", standalone_mode=False, **extra)
            sys.stdout.flush()
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            status = REFUSED
        except click.ClickException as error:
            status = _refuse(error.format_message())
        except NapkinError as error:
            status = _refuse(str(error))
        except (click.Abort, KeyboardInterrupt):
            status = INTERRUPTED
        except BrokenPipeError:
            # Whoever read us has seen enough; Python would complain again while closing the stream.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = PIPE_CLOSED
        sys.exit(status if isinstance(status, int) else HELD)


def _refuse(message: str) -> int:
    from reports.escape import brief

    click.echo(f"napkin: {brief(message)}", err=True)
    return REFUSED


# Objects between two searches for cycles. What a command makes it mostly keeps to its end, and a search goes through all of it;
# at the default of 700 a derivation spends a fifth of its time on them.
_BETWEEN_COLLECTIONS = 200_000


def main() -> None:
    """Entry point of the console command."""
    gc.set_threshold(_BETWEEN_COLLECTIONS)
    atexit.register(gc.freeze)  # nor a last one: what is alive then goes with the process
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without × still gets the numbers
    napkin.main()


def _version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from reports.request import version

        click.echo(f"napkin {version()}")
        context.exit()


@click.group(cls=Napkin, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version and exit.")
def napkin() -> None:
    """The resource accounting of a PyTorch training step: closed forms by visible steps, each checked against a real run.

    MODEL is a built-in name (napkin list models), hf:PATH of a Hugging Face config.json, or FILE.py:NAME of your own spec.
    """


if __name__ == "__main__":
    main()
