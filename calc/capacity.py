"""How long, how large, how fast: short calculations on published rates, with their steps. Torch-free.

Rates are dense and of the number format that is multiplied in. N is parameters, D tokens. What these take for granted is in their
notes; what a model really executes and keeps is derived elsewhere, and may be put in instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from calc.errors import BadInputError
from calc.hardware import Accelerator
from calc.reckoning import Line, Number, Reckoning, given, reckon

_DAY = 86400
_SIX = (
    "2 FLOP for each weight and token forward, twice that backward: one product for the gradient of the input, one for that of the weight"
)


def training_flops(parameters: Number, tokens: Number) -> Reckoning:
    """6·N·D FLOP. Source: Kaplan et al. 2020 (arXiv 2001.08361), section 2.1."""
    return reckon(
        "training FLOPs",
        (given("N", parameters, "parameters", "parameters"), given("D", tokens, "tokens", "tokens")),
        (Line("C", "6*N*D", "FLOP", "FLOPs of the whole training", _SIX),),
        ("products with weights only: attention, elementwise work and the optimizer are left out",),
    )


def training_time(parameters: Number, tokens: Number, device: Accelerator, count: Number, mfu: Number, dtype: str = "bf16") -> Reckoning:
    """Days to train N parameters on D tokens with n devices, at a share of their dense peak."""
    _require_share("MFU", mfu)
    return reckon(
        "training time",
        (
            given("N", parameters, "parameters", "parameters"),
            given("D", tokens, "tokens", "tokens"),
            given("n", count, "devices", "devices"),
            given("P", device.peak(dtype), "FLOP/s", f"dense peak of {device.name} in {dtype}", device.source),
            given("u", mfu, "1", "model FLOPs utilization"),
        ),
        (
            Line("C", "6*N*D", "FLOP", "FLOPs of the whole training", _SIX),
            Line("R", "u*n*P", "FLOP/s", "model FLOP/s of all devices", "utilization is the share of the peak that serves the model"),
            Line("t", f"C/({_DAY}*R)", "days", "time", "amount over rate; a day has 86,400 s"),
        ),
        ("nothing stands still: no failure, no checkpoint, no evaluation",),
    )


def device_flops(device: Accelerator, count: Number, days: Number, mfu: Number, dtype: str = "bf16", *, sparse: bool = False) -> Reckoning:
    """FLOPs that n devices do in so many days, at a share of their peak (with 2:4 sparsity only where it is asked for)."""
    _require_share("MFU", mfu)
    kind = "peak with 2:4 sparsity" if sparse else "dense peak"
    return reckon(
        "FLOPs of devices",
        (
            given("n", count, "devices", "devices"),
            given("P", device.peak(dtype, sparse=sparse), "FLOP/s", f"{kind} of {device.name} in {dtype}", device.source),
            given("u", mfu, "1", "utilization"),
            given("t", days, "days", "time"),
        ),
        (Line("C", f"u*n*P*{_DAY}*t", "FLOP", "FLOPs done", "rate times time; a day has 86,400 s"),),
    )


def largest_model(device: Accelerator, count: Number, bytes_per_parameter: Number) -> Reckoning:
    """Parameters whose training state fills n devices; activations and workspace have no room left then."""
    return reckon(
        "largest model",
        (
            given("n", count, "devices", "devices"),
            given("M", device.memory, "bytes", f"memory of {device.name}, a GB as 10^9 bytes", device.source),
            given("b", bytes_per_parameter, "bytes", "bytes of state for each parameter"),
        ),
        (Line("N", "n*M/b", "parameters", "parameters", "the state is divided among the devices and fills them"),),
        ("an upper bound: no activations, no workspace, no fragmentation; each device holds an even part of the state",),
    )


def utilization(flops: Number, seconds: Number, peak: Number, dtype: str, device: Accelerator | None = None) -> Reckoning:
    """FLOP/s achieved over the dense peak of that format, of ``device`` where it is known. More than 1 is refused, with what it means."""
    found = reckon(
        "utilization",
        (
            given("F", flops, "FLOP", "FLOPs done"),
            given("s", seconds, "s", "time", "measured"),
            given("P", peak, "FLOP/s", f"dense peak in {dtype}", "published" if device is None else device.source),
        ),
        (
            Line("R", "F/s", "FLOP/s", "rate achieved", "amount over time"),
            Line("u", "F/(s*P)", "1", "utilization", "achieved over promised"),
        ),
    )
    if found.value > 1:
        raise BadInputError(f"utilization {float(found.value):.3g} is above 1: {_above_peak(found['R'], dtype, device)}")
    return found


def _above_peak(rate: Fraction, dtype: str, device: Accelerator | None) -> str:
    """What a rate above the peak of ``dtype`` means: the formats whose own peak allows it, where the device is known."""
    early = "the time was taken before the device had finished, or fewer FLOPs ran"
    if device is None:
        return (
            f"no device outruns its peak, so the peak is not that of {dtype}, {early};"
            " give the dense peak of the format and synchronise before timing"
        )
    done = f"{device.name} cannot do {float(rate):.4g} FLOP/s in {dtype}"
    floating = {name: peak.dense for name, peak in device.peaks.items() if not name.startswith("int")}
    allowing = [f"{name} ({float(dense):.4g})" for name, dense in floating.items() if dense >= rate]
    if not allowing:
        return f"{done}, nor in any other format: {early}; synchronise before timing"
    published = float(device.peak(dtype))
    return f"{done}, whose dense peak is {published:.4g}; the products ran in {_or(allowing)}, with a peak of their own, or {early}"


def _or(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def decode_bound(weights: Number, cache: Number, device: Accelerator, sequences: Number = 1) -> Reckoning:
    """Tokens/s of generation at most, where each token reads all weights and all keys and values once from memory."""
    return reckon(
        "tokens per second",
        (
            given("W", weights, "bytes", "weights"),
            given("K", cache, "bytes", "keys and values of one sequence"),
            given("B", sequences, "sequences", "sequences at a time"),
            given("w", device.bandwidth, "bytes/s", f"memory bandwidth of {device.name}", device.source),
        ),
        (
            Line("Q", "W + B*K", "bytes", "bytes read for one token of each sequence", "weights are read once for all sequences"),
            Line(
                "r",
                "B*w/Q",
                "tokens/s",
                "tokens per second, at most",
                "no byte moves faster than the memory gives it, and each turn makes B tokens",
            ),
        ),
        ("a bound from memory alone: arithmetic, launches and communication come on top",),
    )


def _require_share(name: str, value: Number) -> None:
    if not 0 < value <= 1:
        raise BadInputError(f"{name} = {value} is no share of a peak: give a number above 0, at most 1")
