"""Small models that together execute every operator that has a rule, in real training steps."""

from tests.zoo import (  # noqa: F401  # each puts its models into the zoo
    architectures_builtin,
    architectures_sequence,
    architectures_vision,
    architectures_wiring,
    custom_operators,
    data_dependent,
    images,
    in_place,
    language,
    lists,
    modes,
    networks,
    networks_stacked,
    numerics,
    operators,
    partial_gradients,
    recomputed,
    recurrent,
    training,
    unrolled,
)
from tests.zoo.exhibit import ZOO as ZOO
from tests.zoo.exhibit import Exhibit as Exhibit
