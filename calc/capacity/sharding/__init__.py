"""Training steps on several devices: what each holds and sends, how long a step takes at least, and the best layout. Torch-free.

Everything is an expression in the model's letters and the layout's. A description of the model is published formulas (``decoder``) or read
off a derivation (``model_of``); ``account`` works one layout out in exact fractions, ``search`` all of them as arrays.
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
from calc.capacity.sharding.timing import Machine as Machine
from calc.capacity.sharding.timing import machine_of as machine_of
