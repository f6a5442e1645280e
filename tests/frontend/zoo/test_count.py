"""Networks of the zoo have the parameters and products that were published for them."""

from __future__ import annotations

import pytest

from plica.core.digest import digest
from plica.frontend.zoo import (
    NETWORKS,
    densenet,
    macs,
    mobilenet,
    parameters,
    resnet,
    squeezenet,
    vgg,
)
from tests.frontend.zoo.small import SMALL

# Parameters exactly; products in millions, as papers round them.
# fmt: off
PUBLISHED = {
    "mlp":          (   932_362,    0.93),
    "dqn":          ( 1_693_362,    9.35),
    "resnet18":     (11_689_512, 1814.0),
    "resnet50":     (25_557_032, 4089.0),
    "mobilenet_v1": ( 4_231_976,  569.0),
    "mobilenet_v2": ( 3_504_872,  300.8),
    "squeezenet":   ( 1_235_496,  349.2),
    "densenet121":  ( 7_978_856, 2834.2),
    "inception_v3": (23_834_568, 5711.2),
    "vgg16":       (138_357_544, 15470.3),
    "transformer":  (11_005_952,  436.2),
    "dcgan":        ( 3_576_704,  104.6),
    "lstm_lm":      (19_775_200,  243.1),
}
# fmt: on


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name == "vgg16" else ()) for name in NETWORKS],
)
def test_counts_are_those_published(name: str) -> None:
    network = NETWORKS[name]()
    count, products = PUBLISHED[name]
    assert parameters(network) == count
    assert macs(network) / 1e6 == pytest.approx(products, rel=2e-3)


@pytest.mark.parametrize("name", SMALL)
def test_weights_follow_from_the_seed(name: str) -> None:
    assert digest(SMALL[name]()) == digest(SMALL[name]())
    assert digest(SMALL[name](seed=1)) != digest(SMALL[name]())  # type: ignore[call-arg]  # all of them take a seed


@pytest.mark.parametrize(
    "make",
    [
        lambda: resnet(19),
        lambda: mobilenet(3),
        lambda: vgg(12),
        lambda: squeezenet(2),
        lambda: densenet(120),
    ],
)
def test_a_network_that_there_is_not_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match="known"):
        make()
