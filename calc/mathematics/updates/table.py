"""The update rules as data, and the optimizers that no per-element equation describes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calc.errors import BadInputError, suggestion
from calc.options import NAMED_OPTIMIZERS, REFUSED, refusal


@dataclass(frozen=True, slots=True)
class UpdateEquation:
    """``target = text``, in Python's notation, with its meaning."""

    target: str
    text: str
    about: str


@dataclass(frozen=True, slots=True)
class UpdateRule:
    """One optimizer.

    ``letters``  keyword of torch's class → the letters it sets: ``betas`` sets ``beta1`` and ``beta2``.
    ``state``    letter → what it is before the first step, an expression of letters, for each element of the parameter.
    ``single``   the same of numbers that a whole tensor shares.
    ``of_matrix``  the parameter is a matrix, and means over its rows and columns come up: there are no counts of one element.
    ``keys``     letter → what torch calls it in the optimizer's state.
    ``values``   letters that no class of torch sets (the lecture's AdaGrad), with their defaults.
    """

    name: str
    equations: tuple[UpdateEquation, ...]
    letters: Mapping[str, tuple[str, ...]]
    source: str
    state: Mapping[str, str]
    single: Mapping[str, str]
    values: Mapping[str, float]
    keys: Mapping[str, str]
    of_matrix: bool = False

    @property
    def kind(self) -> str:
        """The class of torch.optim; empty if torch has none."""
        return NAMED_OPTIMIZERS[self.name].kind if self.name in NAMED_OPTIMIZERS else ""

    def defaults(self) -> dict[str, float]:
        """Every letter with its default."""
        if self.name not in NAMED_OPTIMIZERS:
            return dict(self.values)
        keyword_values = NAMED_OPTIMIZERS[self.name].arguments
        defaults: dict[str, float] = {}
        for keyword, letters in self.letters.items():
            values = keyword_values[keyword] if len(letters) > 1 else (keyword_values[keyword],)
            # None stands for the epsilon of the parameter's format: rules are carried out in fp64.
            defaults |= dict(zip(letters, (2.0**-52 if value is None else float(value) for value in values), strict=True))
        return defaults

    def given(self, values: Mapping[str, float]) -> dict[str, float | tuple[float, ...]]:
        """The keywords of torch's class for values of the letters."""
        picked = {keyword: tuple(values[letter] for letter in letters) for keyword, letters in self.letters.items()}
        return {keyword: numbers if len(numbers) > 1 else numbers[0] for keyword, numbers in picked.items()}


_DECAY = UpdateEquation("g", "g + wd*theta", "weight decay as an L2 penalty: wd/2 times the squared parameter, added to the loss")
_FIRST = UpdateEquation("m", "beta1*m + (1 - beta1)*g", "first moment: running mean of the gradient")
_SECOND = UpdateEquation("v", "beta2*v + (1 - beta2)*g**2", "second moment: running mean of its square")
_FIRST_HAT = UpdateEquation("mhat", "m/(1 - beta1**t)", "bias-corrected first moment")
_SECOND_HAT = UpdateEquation("vhat", "v/(1 - beta2**t)", "bias-corrected second moment")
_DECOUPLED = UpdateEquation("theta", "theta - lr*wd*theta", "decoupled weight decay")
_ADAM_STEP = UpdateEquation("theta", "theta - lr*mhat/(sqrt(vhat) + eps)", "a step of about lr, whatever the gradient's scale")
_MOMENTS = {"m": "0", "v": "0"}
_ADAM = {"lr": ("lr",), "betas": ("beta1", "beta2"), "eps": ("eps",), "weight_decay": ("wd",)}
_SGD = {"lr": ("lr",), "weight_decay": ("wd",)}
_MOMENTUM = {**_SGD, "momentum": ("mu",), "dampening": ("tau",)}
_RMSPROP = {"lr": ("lr",), "alpha": ("alpha",), "eps": ("eps",), "weight_decay": ("wd",)}
_BUFFER = UpdateEquation("b", "Piecewise((g, Eq(t, 1)), (mu*b + (1 - tau)*g, True))", "velocity: the first gradient, then a decaying sum")
_SQUARES = UpdateEquation("v", "alpha*v + (1 - alpha)*g**2", "running mean of the square")

_KINGMA = "Kingma and Ba 2014, Adam, arXiv:1412.6980, algorithm 1"
_LOSHCHILOV = "Loshchilov and Hutter 2017, Decoupled Weight Decay Regularization, arXiv:1711.05101, algorithm 2"
_HINTON = "Tieleman and Hinton 2012, Lecture 6.5 of Neural Networks for Machine Learning"
_DUCHI = "Duchi, Hazan, Singer 2011, Adaptive Subgradient Methods, JMLR 12, with a diagonal matrix"


# What torch's classes call the letters that are kept; one that differs by class stands behind its rule's name.
_KEYS = {
    "b": "momentum_buffer", "m": "exp_avg", "v": "exp_avg_sq", "w": "max_exp_avg_sq", "u": "exp_inf", "G": "sum", "a": "grad_avg",
    "P": "mu_product", "A": "ax", "eta": "eta", "mu": "mu", "p": "prev", "s": "step_size", "adagrad-lecture.G": "squares",
    "rmsprop.v": "square_avg", "rmsprop-momentum.v": "square_avg", "rmsprop-centered.v": "square_avg",
    "adadelta.v": "square_avg", "adadelta.u": "acc_delta", "R": "row_var", "C": "col_var",
}  # fmt: skip


def _rule(
    name: str,
    *equations: UpdateEquation,
    letters: Mapping[str, tuple[str, ...]],
    source: str,
    state: Mapping[str, str] | None = None,
    single: Mapping[str, str] | None = None,
    values: Mapping[str, float] | None = None,
) -> UpdateRule:
    state_equations = {**(state or {}), **(single or {})}
    of_matrix = any("rows(" in equation.text for equation in equations)
    keys = {letter: _KEYS.get(f"{name}.{letter}") or _KEYS[letter] for letter in state_equations}
    return UpdateRule(name, equations, letters, source, state or {}, single or {}, values or {}, keys, of_matrix)


_RULES = (
    _rule(
        "sgd",
        _DECAY,
        UpdateEquation("theta", "theta - lr*g", "against the gradient"),
        letters=_SGD,
        source="Robbins and Monro 1951, A Stochastic Approximation Method",
    ),
    _rule(
        "momentum",
        _DECAY,
        _BUFFER,
        UpdateEquation("theta", "theta - lr*b", "against the velocity"),
        letters=_MOMENTUM,
        state={"b": "0"},
        source="Polyak 1964, Some methods of speeding up the convergence; velocity as torch has it",
    ),
    _rule(
        "nesterov",
        _DECAY,
        UpdateEquation("b", "mu*b + g", "velocity: a decaying sum of gradients"),
        UpdateEquation("theta", "theta - lr*(g + mu*b)", "against the velocity of one step ahead"),
        letters={**_SGD, "momentum": ("mu",)},
        state={"b": "0"},
        source="Sutskever et al. 2013, On the importance of initialization and momentum, section 2; as torch has it",
    ),
    _rule(
        "adagrad",
        _DECAY,
        UpdateEquation("G", "G + g**2", "sum of all squares"),
        UpdateEquation(
            "theta", "theta - lr/(1 + (t - 1)*eta)*g/(sqrt(G) + eps)", "a smaller step where gradients were large; eps outside the root"
        ),
        letters={"lr": ("lr",), "lr_decay": ("eta",), "weight_decay": ("wd",), "eps": ("eps",)},
        state={"G": "0"},
        source=_DUCHI,
    ),
    _rule(
        "adagrad-lecture",
        UpdateEquation("G", "G + g**2", "sum of all squares"),
        UpdateEquation("theta", "theta - lr*g/sqrt(G + eps)", "a smaller step where gradients were large; eps inside the root"),
        letters={},
        state={"G": "0"},
        values={"lr": 0.01, "eps": 1e-5},
        source=f"{_DUCHI}; the lecture's own class, eps inside the root",
    ),
    _rule(
        "rmsprop",
        _DECAY,
        _SQUARES,
        UpdateEquation("theta", "theta - lr*g/(sqrt(v) + eps)", "a step of about lr"),
        letters=_RMSPROP,
        state={"v": "0"},
        source=_HINTON,
    ),
    _rule(
        "rmsprop-momentum",
        _DECAY,
        _SQUARES,
        UpdateEquation("b", "mu*b + g/(sqrt(v) + eps)", "velocity: a decaying sum of scaled gradients"),
        UpdateEquation("theta", "theta - lr*b", "against the velocity"),
        letters={**_RMSPROP, "momentum": ("mu",)},
        state={"v": "0", "b": "0"},
        source=_HINTON,
    ),
    _rule(
        "rmsprop-centered",
        _DECAY,
        _SQUARES,
        UpdateEquation("a", "alpha*a + (1 - alpha)*g", "running mean of the gradient"),
        UpdateEquation("theta", "theta - lr*g/(sqrt(v - a**2) + eps)", "scaled by the deviation in place of the mean square"),
        letters=_RMSPROP,
        state={"v": "0", "a": "0"},
        source="Graves 2013, Generating Sequences With RNNs, arXiv:1308.0850, eq. 38-45",
    ),
    _rule("adam", _DECAY, _FIRST, _SECOND, _FIRST_HAT, _SECOND_HAT, _ADAM_STEP, letters=_ADAM, state=_MOMENTS, source=_KINGMA),
    _rule("adamw", _DECOUPLED, _FIRST, _SECOND, _FIRST_HAT, _SECOND_HAT, _ADAM_STEP, letters=_ADAM, state=_MOMENTS, source=_LOSHCHILOV),
    _rule(
        "amsgrad",
        _DECOUPLED,
        _FIRST,
        _SECOND,
        UpdateEquation("w", "Max(w, v)", "the largest second moment so far"),
        _FIRST_HAT,
        UpdateEquation("vhat", "w/(1 - beta2**t)", "bias-corrected"),
        _ADAM_STEP,
        letters=_ADAM,
        state={**_MOMENTS, "w": "0"},
        source="Reddi, Kale, Kumar 2018, On the Convergence of Adam and Beyond; with AdamW's decay",
    ),
    _rule(
        "adamax",
        _DECAY,
        _FIRST,
        UpdateEquation("u", "Max(beta2*u, Abs(g) + eps)", "decaying maximum of the gradient"),
        UpdateEquation("theta", "theta - lr/(1 - beta1**t)*m/u", "a step of at most about lr"),
        letters=_ADAM,
        state={"m": "0", "u": "0"},
        source="Kingma and Ba 2014, Adam, arXiv:1412.6980, algorithm 2; eps as torch has it",
    ),
    _rule(
        "nadam",
        _DECAY,
        UpdateEquation("mu", "beta1*(1 - 0.96**(t*psi)/2)", "momentum of this step"),
        UpdateEquation("next", "beta1*(1 - 0.96**((t + 1)*psi)/2)", "momentum of the next"),
        UpdateEquation("P", "P*mu", "product of all momenta so far"),
        _FIRST,
        _SECOND,
        _SECOND_HAT,
        UpdateEquation(
            "theta",
            "theta - (lr*(1 - mu)/(1 - P)*g + lr*next/(1 - P*next)*m)/(sqrt(vhat) + eps)",
            "the moment of one step ahead, corrected",
        ),
        letters={**_ADAM, "momentum_decay": ("psi",)},
        state=_MOMENTS,
        single={"P": "1"},
        source="Dozat 2016, Incorporating Nesterov Momentum into Adam, algorithm 2",
    ),
    _rule(
        "radam",
        _DECAY,
        _FIRST,
        _SECOND,
        _FIRST_HAT,
        UpdateEquation("rhomax", "2/(1 - beta2) - 1", "longest window of the second moment"),
        UpdateEquation("rho", "rhomax - 2*t*beta2**t/(1 - beta2**t)", "its window so far"),
        UpdateEquation(
            "r",
            "Piecewise(((rho - 4)*(rho - 2)*rhomax/((rhomax - 4)*(rhomax - 2)*rho), rho > 5), (0, True))",
            "squared rectification, once the variance is known",
        ),
        UpdateEquation(
            "theta",
            "theta - lr*mhat*Piecewise((sqrt(r*(1 - beta2**t))/(sqrt(v) + eps), rho > 5), (1, True))",
            "Adam's step where the variance is known, else momentum's",
        ),
        letters=_ADAM,
        state=_MOMENTS,
        source="Liu et al. 2019, On the Variance of the Adaptive Learning Rate, arXiv:1908.03265, algorithm 2",
    ),
    _rule(
        "adadelta",
        _DECAY,
        UpdateEquation("v", "rho*v + (1 - rho)*g**2", "running mean of the square"),
        UpdateEquation("D", "sqrt(u + eps)/sqrt(v + eps)*g", "a step with the unit of the parameter"),
        UpdateEquation("u", "rho*u + (1 - rho)*D**2", "running mean of the squared steps"),
        UpdateEquation("theta", "theta - lr*D", "against it"),
        letters={"lr": ("lr",), "rho": ("rho",), "eps": ("eps",), "weight_decay": ("wd",)},
        state={"v": "0", "u": "0"},
        source="Zeiler 2012, ADADELTA, arXiv:1212.5701, algorithm 1",
    ),
    _rule(
        "asgd",
        _DECAY,
        UpdateEquation("theta", "theta*(1 - lambd*eta) - eta*g", "a step with weight decay"),
        UpdateEquation("A", "Piecewise((theta, Eq(mu, 1)), (A + (theta - A)*mu, True))", "average of the parameter from step t0 on"),
        UpdateEquation("eta", "lr/(1 + lambd*lr*t)**alpha", "the next step's rate"),
        UpdateEquation("mu", "1/Max(1, t - t0)", "the next average's share"),
        letters={"lr": ("lr",), "lambd": ("lambd",), "alpha": ("alpha",), "t0": ("t0",), "weight_decay": ("wd",)},
        state={"A": "0"},
        single={"eta": "lr", "mu": "1"},
        source="Polyak and Juditsky 1992, Acceleration of Stochastic Approximation by Averaging; as torch has it",
    ),
    _rule(
        "rprop",
        UpdateEquation(
            "c", "Piecewise((up, g*p > 0), (down, g*p < 0), (1, True))", "longer where the sign stayed, shorter where it turned"
        ),
        UpdateEquation("s", "Min(Max(s*c, least), most)", "length of the step, within its bounds"),
        UpdateEquation("g", "Piecewise((0, g*p < 0), (g, True))", "no step where the sign turned"),
        UpdateEquation("theta", "theta - sign(g)*s", "against the sign"),
        UpdateEquation("p", "g", "gradient for the next step"),
        letters={"lr": ("lr",), "etas": ("down", "up"), "step_sizes": ("least", "most")},
        state={"p": "0", "s": "lr"},
        source="Riedmiller and Braun 1993, A direct adaptive method for faster backpropagation learning; without backtracking",
    ),
    _rule(
        "adafactor",
        UpdateEquation("q", "Max(eps2, rms(theta))*Min(lr, 1/sqrt(t))", "relative step size: rate times the parameter's root mean square"),
        _DECOUPLED,
        UpdateEquation("w", "t**decay", "share of the new square, less with every step"),
        UpdateEquation("R", "R + w*(rows(g**2) - R)", "running mean of the squares of each row"),
        UpdateEquation("C", "C + w*(cols(g**2) - C)", "running mean of the squares of each column"),
        UpdateEquation("V", "R*C/Max(mean(R), eps1)", "second moment: the matrix of rank 1 that has these means"),
        UpdateEquation("U", "g/sqrt(Max(V, eps1**2))", "gradient in units of its deviation"),
        UpdateEquation("theta", "theta - q*U/Max(1, rms(U)/d)", "a step whose mean square is at most about q·d"),
        letters={"lr": ("lr",), "beta2_decay": ("decay",), "eps": ("eps1", "eps2"), "d": ("d",), "weight_decay": ("wd",)},
        state={"R": "0*rows(theta)", "C": "0*cols(theta)"},
        source="Shazeer and Stern 2018, Adafactor, arXiv:1804.04235, algorithm 4, for a matrix; as torch has it",
    ),
)
RULES: Mapping[str, UpdateRule] = {rule.name: rule for rule in _RULES}

# What is no equation of one element at a time; its state and counts are shown all the same.
WITHOUT: Mapping[str, str] = {
    "muon": "muon orthogonalizes whole matrices by five rounds of matmuls: no equation of one element (Jordan 2024, Muon)",
}


def rule(name: str) -> UpdateRule:
    """The rule of a name."""
    if name in RULES:
        return RULES[name]
    if name in WITHOUT or name in REFUSED:
        raise BadInputError(WITHOUT.get(name) or refusal(name))
    names = [*RULES, *WITHOUT]
    raise BadInputError(f"unknown optimizer {name[:40]!r}: {suggestion(name, names)}")
