"""Variables and equations that several questions share."""

from __future__ import annotations

from dataclasses import replace

from calc.capacity.questions.question import Equation, Letter

PARAMETERS = Letter("N", "parameters", "parameters", "parameters", whole="down", model="parameters")
TOKENS = Letter("D", "tokens", "tokens", "tokens", whole="down")
DEVICES = Letter("n", "gpus", "devices", "devices", whole="up", also=("devices",))
ONE_DEVICE = replace(DEVICES, default="1", because="one device, as no number was given")
PEAK = Letter("P", "peak", "FLOP/s", "dense peak rate of one device", device="peak")
MFU = Letter("u", "mfu", "share", "model FLOPs utilization")
FLOPS = Letter("C", "flops", "FLOP", "FLOPs of the whole training")
DAYS = Letter("t", "days", "days", "time")
MEMORY = Letter("M", "memory", "bytes", "memory of one device", device="memory")
BANDWIDTH = Letter("W", "bandwidth", "bytes/s", "memory bandwidth of one device", device="bandwidth")
BATCH = Letter("B", "batch", "sequences", "sequences at a time", whole="down")
SEQUENCE = Letter("T", "sequence", "tokens", "tokens of a sequence", whole="down")
LAYERS = Letter("L", "layers", "layers", "layers", whole="down")
WIDTH = Letter("d", "width", "elements", "model width", whole="down")
HEADS = Letter("h", "heads", "heads", "attention heads", whole="down")
KV_HEADS = Letter("g", "kv-heads", "heads", "key/value heads", whole="down")
HEAD_WIDTH = Letter("k", "head-width", "elements", "width of a head", whole="down")
VOCABULARY = Letter("V", "vocabulary", "tokens", "vocabulary size", whole="down")

SIX = "2 FLOP for each weight and token forward, twice that backward: one product for the gradient of the input, one for that of the weight"
KAPLAN = "Kaplan et al. 2020, Scaling Laws for Neural Language Models (arXiv 2001.08361), section 2.1"
SIX_N_D = Equation("C", "6*N*D", SIX)
RATE_OF_ALL = Equation("R", "u*n*P", "utilization is the share of the peak that serves the model")
RATE = Letter("R", "rate", "FLOP/s", "model FLOP/s of all devices")
