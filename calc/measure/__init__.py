"""The oracle: real training steps under torch's own instruments. Imports no rule and no derivation."""

from calc.measure.measurement import Measurement as Measurement
from calc.measure.measurement import Reading as Reading
from calc.measure.run import measure as measure
