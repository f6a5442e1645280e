"""Rules for code that handles probabilities.

Measure: each rule removes an operator or replaces two by one.
"""

from __future__ import annotations

from plica import op
from plica.rewrite import approx, holes, pack, rule

__all__ = ["PROBABILITY"]

x, a = holes("x a")
sigmoid, softmax, log_softmax = op.nn.sigmoid, op.nn.softmax, op.nn.log_softmax
relu, absolute = op.nn.relu, op.absolute

# Not here: `log(softmax(x)) -> log_softmax(x)`.  It is better code, but the left side is -inf where
# the right side is a number, and `plica rules check` says so.
# fmt: off
PROBABILITY = pack(
    "probability",
    rule("relu-of-sigmoid",      relu(sigmoid(x)),           sigmoid(x)),
    rule("relu-of-softmax",      relu(softmax(x, a)),        softmax(x, a)),
    rule("absolute-of-softmax",  absolute(softmax(x, a)),    softmax(x, a)),
    rule("exp-of-log-softmax",   op.exp(log_softmax(x, a)),  softmax(x, a),  float=approx(1e-2)),
    rule("one-minus-sigmoid",    1 - sigmoid(x),             sigmoid(-x),    float=approx(1e-2)),
    version="1.0",
    doc="Signs and complements of probabilities.",
)
# fmt: on
