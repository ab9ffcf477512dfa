"""The cost of a training run: device hours, money, energy, CO₂."""

from __future__ import annotations

from dataclasses import replace

from calc.capacity.questions.question import (
    ACHIEVED,
    ACTIVE,
    DAYS,
    DEVICE_HOURS,
    DEVICES,
    FLOPS,
    KAPLAN,
    MFU,
    PEAK,
    SPEED_OF_ONE,
    TOKENS,
    Equation,
    Question,
    Requirement,
    Variable,
)
from calc.capacity.questions.training import CONVENTION, DAYS_OF_HOURS, EXACT, PER_TOKEN

_PRICE = Variable("p", "price", "USD/h", "price of one device-hour", device="price")
_COST = Variable("X", "cost", "USD", "cost")
_POWER = Variable("y", "power", "W", "power of one device", device="power")
_OVERHEAD = Variable(
    "q", "pue", "1", "power of the building over that of the devices", default="1", because="the devices alone; buildings take 1.1 to 1.5"
)
_ENERGY = Variable("E", "energy", "kWh", "energy")
_INTENSITY = Variable("i", "intensity", "g/kWh", "CO₂ equivalent that the grid emits for an energy")
_EMISSIONS = Variable("G", "emissions", "kg", "CO₂ equivalent")
_AT_FULL_POWER = "power times time, as if every device took its full power all the time; 1,000 Wh to the kWh"
_EACH = replace(ACHIEVED, symbol="A")  # X is the cost here
_VARIABLES = (ACTIVE, TOKENS, DEVICES, PEAK, MFU, FLOPS, DEVICE_HOURS, DAYS, PER_TOKEN, _EACH, SPEED_OF_ONE)
_TIME = (
    Equation("H", "C/(3600*u*P)", "amount over the rate of one device; an hour has 3,600 s"),
    DAYS_OF_HOURS,
)

GPU_HOURS = Question(
    "gpu-hours",
    "device hours of a training run",
    _VARIABLES,
    _TIME,
    "H",
    also=("t",),
    choices=(CONVENTION,),
    with_model=(EXACT,),
    with_given={
        "A": (Equation("H", "C/(3600*A)", _TIME[0].because),),
        "v": (Equation("H", "D/(3600*v)", "tokens over tokens a second of one device; an hour has 3,600 s"),),
    },
    source=KAPLAN,
)
COST = replace(
    GPU_HOURS,
    name="cost",
    summary="cost of a training run at a price per device-hour",
    variables=(*_VARIABLES, _PRICE, _COST),
    equations=(*GPU_HOURS.equations, Equation("X", "p*H", "price times device-hours")),
    answer="X",
    also=("H", "t"),
    notes=("devices that run, and nothing else: no storage, no network, no people, no failed runs",),
)
ENERGY = replace(
    GPU_HOURS,
    name="energy",
    summary="energy of a training run",
    variables=(*_VARIABLES, _POWER, _OVERHEAD, _ENERGY),
    equations=(*GPU_HOURS.equations, Equation("E", "H*y*q/1000", _AT_FULL_POWER)),
    answer="E",
    also=("H", "t"),
    conditions=(Requirement("q >= 1", "pue = {q} is below 1: the building cannot take less than its devices", refuse=True),),
    notes=("hosts and network are in the overhead only",),
)
CARBON = replace(
    ENERGY,
    name="carbon",
    summary="CO₂ equivalent of the electricity of a training run",
    variables=(*_VARIABLES, _POWER, replace(_OVERHEAD, default="", because=""), _ENERGY, _INTENSITY, _EMISSIONS),
    equations=(*ENERGY.equations, Equation("G", "E*i/1000", "energy times what the grid emits for it; 1,000 g to the kg")),
    answer="G",
    also=("E", "H", "t"),
    notes=(
        "pue and intensity are those of a place and time: neither has a default, so name their source beside the answer",
        "electricity of the training run alone: neither making the devices nor failed runs, experiments and use",
    ),
    source="Patterson et al. 2021, Carbon Emissions and Large Neural Network Training (arXiv 2104.10350), table 4",
)
SAVING = Question(
    "saving",
    "the share saved by one amount compared with another",
    (
        Variable("a", "amount", "1", "amount"),
        Variable("o", "other", "1", "amount to compare with"),
        Variable("v", "saving", "share", "share saved"),
    ),
    (Equation("v", "1 - a/o", "saved amount over the whole"),),
    "v",
    conditions=(Requirement("a <= o", "nothing is saved: {a} is more than {o}", refuse=True),),
)

QUESTIONS = (GPU_HOURS, COST, ENERGY, CARBON, SAVING)
