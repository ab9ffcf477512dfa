"""The oracle: a spec at given sizes → every quantity of a real training step, measured by torch's own instruments.

Imports torch, the top-level files of ``calc``, ``platform``, ``experiment``, ``hardware`` and ``graph.exchanges``; no rules and nothing
that derives. Start with ``run`` (``measure``), then ``training`` (the step that is run) and one instrument, such as ``saved``.
"""

from calc.measure.measurement import Measurement as Measurement
from calc.measure.measurement import Reading as Reading
from calc.measure.run import measure as measure
