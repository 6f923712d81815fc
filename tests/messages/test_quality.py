"""The verdict on a model that is no better than a constant answer."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from agt_cli.report.quality import Quality

YES_NO = ("no", "yes")


def judged(labels: Sequence[int] | None, prediction: Sequence[int], **more: Any) -> Quality:
    known = None if labels is None else np.array(labels, dtype=np.int64)
    given = {"classes": YES_NO, "records": "test records", **more}
    return Quality(labels=known, prediction=np.array(prediction, dtype=np.int64), **given)


RARE = [1] * 24 + [0] * 76
SIXTY = [0] * 60 + [1] * 40
NOISE = (np.random.default_rng(0).random(1000) < 0.3) * 1
VERDICTS: list[tuple[list[int] | None, list[int], str]] = [
    (RARE, [0] * 100, "This model answers 'no' for each of the 100 test records, so it is "
                      "constant: its accuracy is 0.760 [0.664, 0.840], while always answering "
                      "'no' has accuracy 0.760."),
    (RARE * 10, [0] * 990 + [1] * 10,
     "This model answers 'no' for all but 10 of the 1,000 test records, so it is nearly constant"),
    ([1] * 10 + [0] * 1990, [1] * 9 + [0] * 1991, ""),  # a rare class, nearly all of it found
    (NOISE.tolist(), np.random.default_rng(1).permutation(NOISE).tolist(),
     "On the 1,000 test records, this model is significantly worse than a constant answer: its "
     "accuracy is 0."),
    (SIXTY, [0] * 55 + [1] * 5 + [1] * 6 + [0] * 34,
     "On the 100 test records, this model is not significantly better than a constant answer"),
    (SIXTY, [0] * 55 + [1] * 5 + [1] * 30 + [0] * 10, ""),
    (None, [1] * 49 + [0], ""),
    (None, [1] * 5, ""),  # too few
]  # fmt: skip


@pytest.mark.parametrize(("labels", "answers", "words"), VERDICTS)
def test_the_verdict(labels: list[int] | None, answers: list[int], words: str) -> None:
    verdict = judged(labels, answers).verdict
    assert verdict.startswith(words) if words else not verdict


def test_what_a_verdict_says_besides() -> None:
    scores = (np.array(RARE) - 2.0)[None]
    ranks = "the model's scores do rank the classes (AUC 1.000 [0.858, 1.000])"
    quality = judged(RARE, [0] * 100, scores=scores, constant_remedy="Do this")
    assert quality.explanation == (
        "A constant answer is always certified, however inaccurate it is. "
        f"However, {ranks}. Do this."
    )
    assert ranks not in quality.verdict, "later commands print one line"
    assert not judged(RARE, [0] * 100, scores=scores).explanation, "only training has a remedy"
    assert "there are no labels, so the accuracy is unknown" in judged(None, [1] * 50).verdict
