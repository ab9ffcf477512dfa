"""Training steps on several devices: memory and traffic of each, a lower bound of the step time, and the best layout. Torch-free.

Everything is an expression in the variables of the model and the layout. A model comes from published formulas (``decoder``) or from a
derivation (``model_of``); ``account`` evaluates one layout in exact fractions, ``search`` evaluates all of them as arrays.
"""

from __future__ import annotations

from calc.capacity.sharding.account import Account as Account
from calc.capacity.sharding.account import account as account
from calc.capacity.sharding.layout import Layout as Layout
from calc.capacity.sharding.layout import layout_of as layout_of
from calc.capacity.sharding.model import ShardedModel as ShardedModel
from calc.capacity.sharding.model import decoder as decoder
from calc.capacity.sharding.state import State as State
from calc.capacity.sharding.state import state_of as state_of
from calc.capacity.sharding.timing import GivenRates as GivenRates
from calc.capacity.sharding.timing import Machine as Machine
from calc.capacity.sharding.timing import machine_of as machine_of
