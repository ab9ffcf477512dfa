"""Capacity questions: how long, how many, what fits, what it costs, asked for any of their variables. Torch-free and SymPy-free.

A question is data: letters with units, equations in them with reasons, conditions. Asking puts numbers in and goes through the equations,
forwards as they stand or rearranged. Only a question about a model that no closed form is stored for needs more, and imports it then.
"""

from __future__ import annotations

from calc.capacity.questions.answer import Answer as Answer
from calc.capacity.questions.equation_solver import answered as answered
from calc.capacity.questions.equation_solver import ask as ask
