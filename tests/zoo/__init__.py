"""Small models that together execute every operator that has a rule, in real training steps."""

from tests.zoo import (  # noqa: F401  # each puts its models into the zoo
    again,
    architectures_builtin,
    architectures_sequence,
    architectures_vision,
    architectures_wiring,
    asked,
    decided,
    images,
    in_place,
    language,
    lists,
    modes,
    networks,
    networks_stacked,
    numerics,
    operators,
    recurrent,
    training,
    walked,
)
from tests.zoo.exhibit import ZOO as ZOO
from tests.zoo.exhibit import Exhibit as Exhibit
