"""Randomness that records the draws of a release, and randomness that answers from a record."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

import joblib
import numpy as np

from agt.numeric import Answer, Draw, ObservedRandomness, Randomness

Publish = Callable[[Randomness], Mapping[str, object]]
"""Source of draws -> all that a release with these draws publishes, by names."""


class ReplayDiverged(Exception):
    """The replay asked for another draw than the one that was recorded."""


class RecordedRandomness(ObservedRandomness):
    """Draws from a source, and keeps what a release draws and publishes.

    Args:
        source: of the draws.

    Attributes:
        draws: what was asked for, in order.
        answers: what the source gave, in the same order.
        published: name of a field -> a hash of its value, to the last bit.
    """

    def __init__(self, source: Randomness) -> None:
        self.source = source
        self.simulated = source.simulated
        self.draws: list[Draw] = []
        self.answers: list[Any] = []
        self.published: dict[str, str] = {}

    def answer(self, draw: Draw, sample: Callable[[Randomness], Answer]) -> Answer:
        """Return what the source gives, and keep it."""
        return self.keep(draw, sample(self.source))

    def keep(self, draw: Draw, answer: Answer) -> Answer:
        """Keep a draw and its answer, and return the answer."""
        # copies, because a release may change its arrays afterwards
        self.draws.append(replace(draw, private=deepcopy(draw.private)))
        self.answers.append(deepcopy(answer))
        return answer

    def words(self, n: int) -> np.ndarray:
        """Return words as ``Randomness`` does; a draw of its own if no other draw asked for it."""
        return self.answer(Draw("uniform", ("words", n)), lambda source: source.words(n))

    def below(self, bound: int) -> int:
        """Return a number as ``Randomness`` does; a draw of its own, as ``words``."""
        return self.answer(Draw("uniform", ("below", bound)), lambda source: source.below(bound))

    def release(self, publish: Publish) -> None:
        """Release, and keep hashes of what is published.

        Raises:
            Exception: whatever the release raises; nothing was published then.
        """
        self.published = {name: joblib.hash(value) for name, value in publish(self).items()}


class ReplayedRandomness(RecordedRandomness):
    """Answers each draw as it was recorded."""

    def __init__(self, recorded: RecordedRandomness) -> None:
        super().__init__(recorded.source)
        self.recorded = recorded

    def answer(self, draw: Draw, sample: Callable[[Randomness], Answer]) -> Answer:
        """Return the recorded answer to a draw.

        Of words that have counts, those that only the neighbour has are drawn anew.

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
        return self.keep(draw, answer)

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
        """Release on the neighbour; an error counts as published, of whatever type it is.

        The recorded side raised none, so an error tells the two apart.
        """
        try:
            super().release(publish)
        except Exception as error:
            self.published = {**self.recorded.published, type(error).__name__: str(error)}
