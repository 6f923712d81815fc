"""Randomness that records the draws of a release, and randomness that answers from a record."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

import joblib
import numpy as np

from agt.numeric import Answer, Draw, ObservedRandomness, Randomness

Publish = Callable[[Randomness], Mapping[str, object]]
"""Source of draws -> name -> value of everything that a release with these draws publishes."""


class ReplayDiverged(Exception):
    """A replayed release asked for another random draw than the recorded one did."""


class RecordedRandomness(ObservedRandomness):
    """Randomness that records each draw of a release with its result, and what is published.

    Args:
        source: the randomness that draws.

    Attributes:
        draws: the draws that were asked for, in order.
        answers: their results, in the same order.
        published: name of a field -> a hash of its value, which depends on every bit of it.
    """

    def __init__(self, source: Randomness) -> None:
        self.source = source
        self.simulated = source.simulated
        self.draws: list[Draw] = []
        self.answers: list[Any] = []
        self.published: dict[str, str] = {}

    def answer(self, draw: Draw, sample: Callable[[Randomness], Answer]) -> Answer:
        """Draw from the source, record the draw and its result, and return the result."""
        return self.record_draw(draw, sample(self.source))

    def record_draw(self, draw: Draw, result: Answer) -> Answer:
        """Record copies of a draw and its result, and return the result."""
        # copies, because a release may change its arrays afterwards
        self.draws.append(replace(draw, private=deepcopy(draw.private)))
        self.answers.append(deepcopy(result))
        return result

    def words(self, n: int) -> np.ndarray:
        """Return random words as ``Randomness`` does, recorded as a separate draw.

        Words that another draw uses come from the source directly, and are not recorded.
        """
        return self.answer(Draw("uniform", ("words", n)), lambda source: source.words(n))

    def below(self, bound: int) -> int:
        """Return a number as ``Randomness`` does, recorded like a draw of ``words``."""
        return self.answer(Draw("uniform", ("below", bound)), lambda source: source.below(bound))

    def release(self, publish: Publish) -> None:
        """Release with this randomness, and record hashes of what is published.

        Args:
            publish: the release.

        Raises:
            Exception: whatever the release raises; ``published`` then stays as it was.
        """
        self.published = {name: joblib.hash(value) for name, value in publish(self).items()}


class ReplayedRandomness(RecordedRandomness):
    """Randomness that gives each draw the result that another release recorded for it.

    Args:
        recorded: the randomness of the recorded release.
    """

    def __init__(self, recorded: RecordedRandomness) -> None:
        super().__init__(recorded.source)
        self.recorded = recorded

    def answer(self, draw: Draw, sample: Callable[[Randomness], Answer]) -> Answer:
        """Return the recorded result of the draw with the same number.

        If the draw is noise for counts of words, words that only the neighbour has get new noise.

        Args:
            draw: what is asked for.
            sample: draws it from a source; it is called for counts of words only.

        Raises:
            ReplayDiverged: the draw has another distribution than the recorded one, or there is
                none.
        """
        index = len(self.draws)
        self._check_law(draw, index)
        answer = deepcopy(self.recorded.answers[index])
        if isinstance(draw.private, Mapping):
            fresh = cast(dict[str, float], sample(self.source))
            answer = {word: answer.get(word, count) for word, count in fresh.items()}
        return self.record_draw(draw, answer)

    def _check_law(self, draw: Draw, index: int) -> None:
        """Raise ReplayDiverged unless the recorded draw of this index has the same distribution."""
        recorded_draw = "missing"
        if index < len(self.recorded.draws):
            recorded = self.recorded.draws[index]
            if (recorded.law, recorded.public) == (draw.law, draw.public):
                return
            recorded_draw = f"{recorded.law} {recorded.public}"
        draw_number = index + 1
        raise ReplayDiverged(
            f"random draw number {draw_number} is {draw.law} {draw.public} on the neighbouring "
            f"dataset, but {recorded_draw} in the recorded release"
        )

    def release(self, publish: Publish) -> None:
        """Release on the neighbouring dataset with this randomness, and record what is published.

        An error of any type is recorded as one more published field: the recorded release raised
        none, so whoever sees the error can distinguish the datasets.
        """
        try:
            super().release(publish)
        except Exception as error:
            self.published = {**self.recorded.published, type(error).__name__: str(error)}
