"""Variables and equations that several questions share."""

from __future__ import annotations

from dataclasses import replace

from calc.capacity.questions.question import Equation, Variable

PARAMETERS = Variable("N", "parameters", "parameters", "parameters", rounding="down", model="parameters")
ACTIVE = replace(PARAMETERS, meaning="active parameters, those that one token uses", model="active")
TOKENS = Variable("D", "tokens", "tokens", "tokens", rounding="down")
DEVICES = Variable("n", "gpus", "devices", "devices", rounding="up", also=("devices",))
ONE_DEVICE = replace(DEVICES, default="1", because="default")
PEAK = Variable("P", "peak", "FLOP/s", "dense peak rate of one device", device="peak")
MFU = Variable("u", "mfu", "share", "model FLOPs utilization")
FLOPS = Variable("C", "flops", "FLOP", "FLOPs of the whole training")
DAYS = Variable("t", "days", "days", "time")
DEVICE_HOURS = Variable("H", "gpu-hours", "h", "device hours")
MEMORY = Variable("M", "memory", "bytes", "memory of one device", device="memory")
BANDWIDTH = Variable("W", "bandwidth", "bytes/s", "memory bandwidth of one device", device="bandwidth")
BATCH = Variable("B", "batch", "sequences", "sequences at a time", rounding="down")
SEQUENCE = Variable("T", "sequence", "tokens", "tokens of a sequence", rounding="down")
STEPS = Variable("S", "steps", "steps", "steps", rounding="up")
LAYERS = Variable("L", "layers", "layers", "layers", rounding="down")
WIDTH = Variable("d", "width", "elements", "model width", rounding="down")
HEADS = Variable("h", "heads", "heads", "attention heads", rounding="down")
KV_HEADS = Variable("g", "kv-heads", "heads", "key/value heads", rounding="down")
HEAD_WIDTH = Variable("k", "head-width", "elements", "width of a head", rounding="down")
VOCABULARY = Variable("V", "vocabulary", "tokens", "vocabulary size", rounding="down")

SIX = "2 FLOP for each weight and token forward, twice that backward: one product for the gradient of the input, one for that of the weight"
KAPLAN = "Kaplan et al. 2020, Scaling Laws for Neural Language Models (arXiv 2001.08361), section 2.1"
SIX_N_D = Equation("C", "6*N*D", SIX)
RATE_OF_ALL = Equation("R", "u*n*P", "utilization is the share of the peak that serves the model")
ACHIEVED = Variable("X", "achieved", "FLOP/s", "rate achieved, each device")
_ALSO = ("tokens-per-second-per-device",)
SPEED_OF_ONE = Variable("v", "tokens-per-second-per-gpu", "tokens/s", "tokens per second, each device", also=_ALSO)
RATE = Variable("R", "rate", "FLOP/s", "model FLOP/s of all devices")
