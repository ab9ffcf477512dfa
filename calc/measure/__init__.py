"""The oracle: a spec at given sizes → every quantity of a real training step, measured by torch's own instruments.

Imports torch, the vocabulary, ``platform``, ``experiment``, ``hardware`` and the exchanges of ``graph``; no rule and nothing that derives.
Start with ``run`` (``measure``), then ``training`` (the step that is run) and one instrument, such as ``saved``.
"""

from calc.measure.measurement import Measurement as Measurement
from calc.measure.measurement import Reading as Reading
from calc.measure.run import measure as measure
