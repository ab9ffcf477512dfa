"""Example values of missing inputs, so that an error message ends with something that works when it is typed."""

from __future__ import annotations

from collections.abc import Iterable

from calc.capacity.questions.question import Question, Variable

# By key, or by question and key where the usual value of the key would be absurd.
_VALUES = {
    "parameters": "8e9", "tokens": "1e12", "gpus": "64", "mfu": "0.4", "hfu": "0.5", "days": "30", "layers": "24",
    "width": "1024", "heads": "16", "kv-heads": "8", "head-width": "64", "feed-forward": "4096", "vocabulary": "50257",
    "sequence": "1024", "batch": "4", "flops": "2e16", "compute-optimal.flops": "1e23", "error": "10%", "seconds": "60",
    "other-seconds": "90", "tokens-per-second": "5000", "cost": "1e5", "amount": "1000", "other": "2000", "least-steps": "1e4",
    "least-examples": "1e7", "critical-batch": "1000", "variance": "1e4", "gradient-squared": "10", "loss": "3", "save": "60s",
    "device-mtbf": "50000", "weights-bytes": "16GB", "cache-bytes": "1GB", "bytes": "1e14", "rows": "4096", "inner": "4096",
    "columns": "4096", "tensor": "8", "pipeline": "4", "micro-batches": "16", "context": "4", "expert": "8",
    "experts-per-token": "2", "data": "64", "steps": "1e5", "pue": "1.1", "intensity": "400g/kWh",
}  # fmt: skip
_DEVICE = "gpu=h100-sxm"


def example(question: Question, missing: Iterable[Variable]) -> str:
    """Values for ``missing`` as they are typed, e.g. ``tokens=1e12 gpu=h100-sxm``; empty if one of them has no example."""
    values = {x.key: _VALUES.get(f"{question.name}.{x.key}", _VALUES.get(x.key)) for x in missing}
    pairs = [_DEVICE if x.device else f"{x.key}={values[x.key]}" for x in missing]
    return " ".join(dict.fromkeys(pairs)) if all(x.device or values[x.key] for x in missing) else ""
