"""Scaling laws: the optimal parameters and tokens for a budget of FLOPs, and the resulting loss."""

from __future__ import annotations

from dataclasses import replace

from calc.capacity.questions.question import FLOPS, PARAMETERS, SIX_N_D, TOKENS, Equation, Question, QuestionChoice, Variable

HOFFMANN = "Hoffmann et al. 2022, Training Compute-Optimal Large Language Models (arXiv 2203.15556)"
_FIT = "loss = 1.69 + 406.4/N^0.34 + 410.7/D^0.28, fitted in approach 3"
BESIROGLU = "Besiroglu et al. 2024, Chinchilla Scaling: A replication attempt (arXiv 2404.10102)"
_REFIT = "loss = 1.8172 + 482.01/N^0.3478 + 2085.43/D^0.3658, refitted to points read from the paper's figure 4"
_LOSS = Variable("l", "loss", "nats", "loss by the fit, on the paper's own data")
_LOSS_OF = Equation("l", "1.69 + 406.4/N**(17/50) + 410.7/D**(7/25)", f"Hoffmann et al., section 3.3 and equation 10: {_FIT}")
_REFITTED = Equation("l", "1.8172 + 482.01/N**(1739/5000) + 2085.43/D**(1829/5000)", f"{BESIROGLU}: {_REFIT}")
_BUDGET = replace(FLOPS, meaning="budget of FLOPs")

LAW = QuestionChoice(
    "law",
    "law that the optimum follows",
    {
        "hoffmann-3": (
            Equation("G", "(0.34*406.4/(0.28*410.7))**(50/31)", "(α·A/(β·B))^(1/(α + β)), with 0.34 + 0.28 = 31/50"),
            Equation("N", "G*(C/6)**(14/31)", f"equation 4: the least loss on C = 6·N·D, where {_FIT}; 0.28/0.62 = 14/31"),
            _LOSS_OF,
        ),
        "besiroglu": (
            Equation("G", "(0.3478*482.01/(0.3658*2085.43))**(625/446)", "(α·A/(β·B))^(1/(α + β)), with 0.3478 + 0.3658 = 446/625"),
            Equation("N", "G*(C/6)**(1829/3568)", f"the least loss on C = 6·N·D, where {_REFIT}; 0.3658/0.7136 = 1829/3568"),
            _REFITTED,
        ),
        "hoffmann-1": (
            Equation(
                "N", "67*10**9*(C/(576*10**21))**(1/2)", "approach 1: N grows as C^0.50 (table 2), from 67e9 at 5.76e23 FLOP (table 3)"
            ),
            _LOSS_OF,
        ),
        "hoffmann-2": (
            Equation(
                "N", "10**10*(C/(132*10**20))**(49/100)", "approach 2: N grows as C^0.49 (table 2), from 10e9 at 1.32e22 FLOP (table A3)"
            ),
            _LOSS_OF,
        ),
        "20-tokens": (
            Equation("G", "20", "20 tokens per parameter, the result of approaches 1 and 2 of the paper at its budgets"),
            Equation("N", "(C/(6*G))**(1/2)", "C = 6·N·D with D = 20·N"),
            _LOSS_OF,
        ),
    },
    "the law with published constants, approach 3",
    {
        "hoffmann-3": (
            "approach 3 asks for smaller models and more tokens than approaches 1 and 2 of the same paper do; and its exponents are printed"
            " with two digits: at 5.76e23 FLOP these lead to 32e9 parameters, where the paper itself has 40e9 (0.3392 and 0.2849 do)"
        ),
        "hoffmann-1": "the exponent is printed with two digits; the paper's table 3 is within 4 % of this from 0.4e9 to 10e12 parameters",
        "hoffmann-2": "the exponent is printed with two digits; but for one row the paper's table A3 is within 1 % of this",
        "besiroglu": "the refit agrees with approaches 1 and 2, as approach 3 as printed does not; standard errors are 0.02 an exponent",
        "20-tokens": "20 tokens for each parameter is a rule of thumb read off the paper's tables, not a law that it states",
    },
)
COMPUTE_OPTIMAL = Question(
    "compute-optimal",
    "parameters and tokens with the least loss for a budget of FLOPs",
    (
        PARAMETERS,
        TOKENS,
        _BUDGET,
        Variable("G", "constant", "1", "constant of the law"),
        _LOSS,
        Variable("a", "ratio", "1", "tokens for each parameter"),
    ),
    (
        Equation("D", "C/(6*N)", "6·N·D solved for D"),
        Equation("a", "D/N", "tokens for each parameter"),
    ),
    "N",
    choices=(LAW,),
    also=("D", "a", "l"),
    notes=("a fit to models of up to 16e9 parameters on one set of data: beyond them it is an extrapolation",),
    source=HOFFMANN,
)
LOSS = Question(
    "loss",
    "the loss that the given number of parameters and tokens lead to, by a published fit",
    (PARAMETERS, TOKENS, FLOPS, _LOSS),
    (SIX_N_D,),
    "l",
    choices=(
        QuestionChoice(
            "fit", "whose fit of the loss", {"hoffmann": (_LOSS_OF,), "besiroglu": (_REFITTED,)}, "the law's own paper, approach 3"
        ),
    ),
    notes=COMPUTE_OPTIMAL.notes,
    source=HOFFMANN,
)

QUESTIONS = (COMPUTE_OPTIMAL, LOSS)
