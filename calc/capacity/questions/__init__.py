"""Capacity questions: how long, how many, what fits, what it costs; each solves for any of its variables. Torch-free and SymPy-free.

A question is data: variables with units, equations with reasons, conditions. A solver inserts the numbers and evaluates the equations as
written or rearranged. Only a question about a model without stored closed forms imports more.
"""

from __future__ import annotations

from calc.capacity.questions.answer import Answer as Answer
from calc.capacity.questions.equation_solver import answered as answered
from calc.capacity.questions.equation_solver import ask as ask
