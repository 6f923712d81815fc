"""What the recipe settles for a tube, from public constants alone: the largest rate that cannot swing, and when to stop.

The loss's Hessian is at most ``whole`` lambda_max (setting.py), and lambda_max at most n_max / B: with a rate of 2 / (whole
n_max / B) no step grows on its way down, whatever the records. Beyond that nothing is proved of the rate, and nothing needs
to be: the recursion charges what a rate does (radius.py).

A run ends for two reasons, whichever comes first. As a linear head's, whose recipe this is as long as hidden weights stay
near where they began: logits move (s1 alpha)^2 times as fast as its, so the rates add up to that much less than B / Lambda
(training/strength.py). And R, at most ``pull`` lambda_max, lets two networks drift apart by a factor of exp(rates that add
up to 1 / ``pull``), and with it every radius: the rates add up to ``SWAY`` / ``pull`` at most.

``SWAY`` was set with an eye to scikit-learn's breast cancer, digits and moons and two synthetic sets, at widths 256 and
1,024 and all three activations: no choice for your data. Compare values of ``training.caution``, by which both are divided,
on public rows. Batches: one, since a batch is curved more, and less is known of which holds a record (radius.py).
"""

import math

from agt.settings import TrainingConfig, TubeConfig
from agt.training.sensitivity import LinearLoss
from agt.training.strength import rates, strength, with_numbers
from agt.tube.activations import Activation

SWAY = 2.5


def settled(
    training: TrainingConfig, certificate: TubeConfig, activation: Activation, units: int, classes: int, size: float
) -> TrainingConfig:
    """The settings with numbers for what they leave to the recipe; the same settings where they leave nothing.

    Args:
        activation, units: of the hidden layer.
        classes: how many there are.
        size: B: the records declared, or one member's share of them.
    """
    if not training.by_recipe:
        return training
    loss = LinearLoss.of(training, classes)
    alpha = certificate.length * (1 + math.sqrt(2 * (loss.outputs - 1) / units))  # |A|_2 of random signs, about
    pull = loss.reach * certificate.length * math.sqrt(loss.outputs / units) * activation.bend
    whole = loss.smoothness * (activation.slope * alpha) ** 2 + pull
    count = 1 if "batch.count" in training.by_recipe else training.batch.count
    size, speed = max(size, 1.0), (activation.slope * alpha) ** 2
    way = min(SWAY / (pull * training.caution), size / (strength(size, 2, training.caution) * speed))
    return with_numbers(training, rates(training, whole, way, size, count))
