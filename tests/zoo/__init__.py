"""Small models that together execute every operator that has a rule, in real training steps."""

from tests.zoo import again, images, language, lists, modes, networks, numerics, operators, training  # noqa: F401  # each puts its models into the zoo
from tests.zoo.exhibit import ZOO as ZOO
from tests.zoo.exhibit import Exhibit as Exhibit
