"""zoo: well-known networks in the graph language, with random weights; one file a family.

They serve demonstrations, benchmarks and tests: real shapes, no files.

>>> sorted(NETWORKS)[:3]
['dcgan', 'densenet121', 'dqn']
>>> parameters(NETWORKS["mlp"]())
932362
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from plica.frontend.zoo.attention import transformer
from plica.frontend.zoo.count import macs, parameters
from plica.frontend.zoo.mobile import ds_cnn, mobilenet
from plica.frontend.zoo.parallel import inception
from plica.frontend.zoo.plain import dcgan, dqn, mlp, squeezenet, vgg
from plica.frontend.zoo.recurrent import lstm_lm, lstm_weights
from plica.frontend.zoo.residual import densenet, resnet
from plica.ir.graph.module import Module

__all__ = [
    "NETWORKS", "dcgan", "densenet", "dqn", "ds_cnn", "inception", "lstm_lm", "lstm_weights",
    "macs", "mlp", "mobilenet", "parameters", "resnet", "squeezenet", "transformer", "vgg",
]  # fmt: skip

# fmt: off
NETWORKS: Final[dict[str, Callable[[], Module]]] = {
    "mlp":          mlp,
    "dqn":          dqn,
    "resnet18":     partial(resnet, 18),
    "resnet50":     partial(resnet, 50),
    "mobilenet_v1": partial(mobilenet, 1),
    "mobilenet_v2": partial(mobilenet, 2),
    "squeezenet":   squeezenet,
    "densenet121":  densenet,
    "inception_v3": inception,
    "vgg16":        vgg,
    "transformer":  transformer,
    "dcgan":        dcgan,
    "lstm_lm":      lstm_lm,
}
# fmt: on
"""Every network at its usual size, by name."""
