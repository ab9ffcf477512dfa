"""How often to save a training run that fails at random times."""

from __future__ import annotations

from calc.capacity.questions.question import ONE_DEVICE, Equation, Question, QuestionChoice, Requirement, Variable

_SAVE = Variable("s", "save", "s", "time to write a checkpoint")
_OF_ONE = Variable("f", "device-mtbf", "h", "mean time between failures of one device")
_OF_ALL = Variable("F", "mtbf", "h", "mean time between failures of the run")
_EVERY = Variable("v", "interval", "s", "time between checkpoints")
_LOST = Variable("x", "lost", "1", "share of the time that is lost")

CHECKPOINT_INTERVAL = Question(
    "checkpoint-interval",
    "checkpoint interval that loses the least time to saving and failures",
    (_SAVE, _OF_ONE, ONE_DEVICE, _OF_ALL, _EVERY, _LOST),
    (
        Equation("F", "f/n", "devices fail independently, and one that fails stops the run"),
        Equation(
            "x", "s/v + v/(2*3600*F)", "each interval has one save, and a failure loses half an interval on average; restarting is left out"
        ),
    ),
    "v",
    choices=(
        QuestionChoice(
            "law",
            "order of the estimate",
            {
                "young": (Equation("v", "sqrt(2*s*3600*F)", "the least of s/v + v/(2 F), to first order in s/F"),),
                "daly": (
                    Equation(
                        "v",
                        "sqrt(2*s*3600*F)*(1 + sqrt(s/(2*3600*F))/3 + s/(18*3600*F)) - s",
                        "three terms of a series, equation 37; the interval is between the end of a save and the next one's beginning",
                    ),
                ),
            },
            "the usual one",
        ),
    ),
    conditions=(
        Requirement("s < 2*3600*F", "saving takes {s} and the run fails every {F}: it would make no progress", refuse=True),
        Requirement("2*s <= 3600*F", "saving takes {s} and the run fails every {F}: above half of that, the estimate does not apply"),
    ),
    also=("x",),
    source="Young 1974, CACM 17(9), 530-531; Daly 2006, FGCS 22(3), 303-312, equation 37 (the number of the equation not re-checked)",
)

QUESTIONS = (CHECKPOINT_INTERVAL,)
