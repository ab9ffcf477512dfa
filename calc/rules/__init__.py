"""What every operator of a training step costs: one family per file, registered with ``calc.rules.registry``.

Imports the vocabulary alone; rules know shapes, never models, and need no torch. Importing ``families`` fills the registry. Start with
``registry`` (what a cost is), then ``matmul``.
"""

from calc.rules.registry import free as free
from calc.rules.registry import rule as rule
