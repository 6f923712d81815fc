"""Randomness that records the draws of a release, and randomness that answers from a record."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

import joblib
import numpy as np

from agt.numeric import Answer, Draw, ObservedRandomness, Randomness

Publish = Callable[[Randomness], Mapping[str, object]]
"""Releases, with draws from a source, and returns all that it publishes, by names."""


class ReplayDiverged(Exception):
    """The replay asked for another draw than the record has."""


class RecordedRandomness(ObservedRandomness):
    """Draws from a source, and keeps what a release draws and publishes.

    Attributes:
        draws, answers: in order.
        published: name of a field -> a hash of its value, to the last bit.
    """

    def __init__(self, source: Randomness) -> None:
        self.source, self.simulated = source, source.simulated
        self.draws, self.answers = list[Draw](), list[Any]()
        self.published: dict[str, str] = {}

    def answer(self, draw: Draw, sample: Callable[[Randomness], Answer]) -> Answer:
        """Return what the source gives."""
        return self.keep(draw, sample(self.source))

    def keep(self, draw: Draw, answer: Answer) -> Answer:
        """Note a draw and its answer, which is returned."""
        self.draws.append(replace(draw, private=deepcopy(draw.private)))
        self.answers.append(deepcopy(answer))
        return answer

    def words(self, n: int) -> np.ndarray:
        """As of ``Randomness``; a draw of its own, where no other draw asked for it."""
        return self.answer(Draw("uniform", ("words", n)), lambda source: source.words(n))

    def below(self, bound: int) -> int:
        """As of ``Randomness``; a draw of its own, where no other draw asked for it."""
        return self.answer(Draw("uniform", ("below", bound)), lambda source: source.below(bound))

    def release(self, publish: Publish) -> None:
        """Release. Raises what the release raises: nothing was published."""
        self.published = {name: joblib.hash(value) for name, value in publish(self).items()}


class ReplayedRandomness(RecordedRandomness):
    """Answers each draw as it was recorded."""

    def __init__(self, recorded: RecordedRandomness) -> None:
        super().__init__(recorded.source)
        self.recorded = recorded

    def answer(self, draw: Draw, sample: Callable[[Randomness], Answer]) -> Answer:
        """Return the recorded answer; of words, those that only the neighbour has are drawn anew.

        Raises:
            ReplayDiverged: the draw has another distribution than the recorded one, or there is
                none.
        """
        number = len(self.draws)
        due = [(each.law, each.public) for each in self.recorded.draws[number : number + 1]]
        if due != [(draw.law, draw.public)]:
            draw_number = number + 1
            made = f"{draw.law} {draw.public}"
            recorded_draw = " ".join(f"{law} {public}" for law, public in due) or "missing"
            raise ReplayDiverged(
                f"random draw number {draw_number} is {made} on the neighbouring dataset, but "
                f"{recorded_draw} in the recorded release"
            )
        answer = deepcopy(self.recorded.answers[number])
        if isinstance(draw.private, Mapping):
            fresh = cast(dict[str, float], sample(self.source))
            answer = {word: answer.get(word, count) for word, count in fresh.items()}
        return self.keep(draw, answer)

    def release(self, publish: Publish) -> None:
        """Release; an error is published, of whatever type it is: the recorded side raised none."""
        try:
            super().release(publish)
        except Exception as error:
            self.published = {**self.recorded.published, type(error).__name__: str(error)}
