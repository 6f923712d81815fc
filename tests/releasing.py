"""Releases as tests make them: judged, and drawn at once."""

from typing import Any, TypeVar

import numpy as np

from agt.data.arrays import gathered
from agt.mechanisms.weights_mechanism import ReleasedWeights
from agt.numeric import Randomness
from agt.release import LabelRelease, NumberRelease, Release, ReleaseTerms, WeightsRelease

Drawn = TypeVar("Drawn")


def judged_labels(model: Any, features: np.ndarray, mechanism: Any, **terms: Any) -> LabelRelease:
    return LabelRelease.judged(model, features, mechanism, ReleaseTerms(**terms))


def drawn_labels(release: LabelRelease) -> np.ndarray:
    return gathered(reserve_and_draw(release), len(release.features))


def judged_number(model: Any, features: np.ndarray, mechanism: Any, **terms: Any) -> NumberRelease:
    return NumberRelease.judged(model, features, mechanism, ReleaseTerms(**terms))


def judged_weights(model: Any, mechanism: Any, **terms: Any) -> WeightsRelease:
    return WeightsRelease.judged(model, mechanism, ReleaseTerms(**terms))


def drawn_weights(model: Any, mechanism: Any, randomness: Randomness) -> ReleasedWeights:
    return reserve_and_draw(judged_weights(model, mechanism, randomness=randomness))


def reserve_and_draw(release: Release[Drawn]) -> Drawn:
    release.reserve()
    return release.draw()
