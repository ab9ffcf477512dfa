"""Errors of the notes' code outside the claims: each as a few lines that fail, and a repair that runs.

The lines are ours and as short as the error allows. Both run when the audit is made, so message and result are those of torch and Python
here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reports.lecture.runs import experiment


@dataclass(frozen=True, slots=True)
class CodeError:
    """``before``: lines that both share. ``written`` fails; ``repaired`` leaves its result in ``shown``."""

    name: str
    problem: str
    before: str
    written: str
    repaired: str
    why: str


@dataclass(frozen=True, slots=True)
class RunError:
    """An error with the message of its code, and the result of its repair."""

    error: CodeError
    message: str
    result: str


_LOADER = """\
import numpy as np
import torch

def get_batch(data, batch_size, sequence_length, device):
    starts = torch.randint(len(data) - sequence_length, (batch_size,))
    return torch.tensor(np.stack([data[i : i + sequence_length] for i in starts.tolist()]), device=device)

data = np.arange(100)
"""
_ITERATOR = """\
import torch
from torch.utils.data import DataLoader

data_iter = iter(DataLoader(torch.arange(8.0), batch_size=4))
"""
ERRORS = (
    CodeError(
        name="get-batch-arguments",
        problem="The training loop calls get_batch(B=2), but the function of the data section takes four arguments.",
        before=_LOADER,
        written="x = get_batch(B=2)",
        repaired='x = get_batch(data, batch_size=2, sequence_length=4, device="cpu")\nshown = f"a batch of {tuple(x.shape)}"',
        why="data, sequence length and device have no defaults, so the call needs all four arguments",
    ),
    CodeError(
        name="iterator-next",
        problem="The next batch is data_iter.next().",
        before=_ITERATOR,
        written="x = data_iter.next()",
        repaired='x = next(data_iter)\nshown = f"a batch of {tuple(x.shape)}"',
        why="an iterator of Python 3 has no method next; the built-in function calls its __next__",
    ),
    CodeError(
        name="top-level-return",
        problem="A function's last line stands without indentation, outside the function.",
        before="def flops(B, D, K):\n    total = 2 * B * D * K\n",
        written="return total",
        repaired='    return total\n\nshown = f"{flops(3, 5, 7)} FLOP"',
        why="return belongs to the function, so it is indented like the line before it",
    ),
)


def run_errors() -> tuple[RunError, ...]:
    """Every error with what its code raises, and what its repair gives."""
    return tuple(RunError(error, *experiment("broken_and_repaired", error.before, error.written, error.repaired)) for error in ERRORS)


def error_json(run: RunError) -> dict[str, Any]:
    """An error as a JSON-ready dictionary; both codes are whole and can be run."""
    error = run.error
    return {
        "name": error.name,
        "what": error.problem,
        "written": f"{error.before}{error.written}\n",
        "message": run.message,
        "repaired": f"{error.before}{error.repaired}\n",
        "result": run.result,
        "because": error.why,
    }
