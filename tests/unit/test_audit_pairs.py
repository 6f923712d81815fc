"""Neighbouring datasets that are made to change answers, and the points at which answers change."""

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agt_audit.influence import neighbours
from agt_audit.lines import points_between_labels
from agt_audit.selftest import synthetic_records, train_small_model


def test_where_all_answers_are_alike_the_points_are_records() -> None:
    model: Any = SimpleNamespace(predict=lambda points: np.zeros(len(points)))
    anchors = np.arange(20.0).reshape(10, 2)
    points = points_between_labels(model, anchors, 3, np.random.default_rng(0))
    assert points.tolist() == anchors[:3].tolist()


def test_points_lie_where_the_answer_changes() -> None:
    model: Any = SimpleNamespace(predict=lambda points: points[:, 0] > 0.5)
    anchors = np.random.default_rng(0).normal(size=(40, 2))
    points = points_between_labels(model, anchors, 8, np.random.default_rng(0))
    assert len(points) == 8
    assert points[:, 0] == pytest.approx(0.5)


def test_a_relation_that_replaces() -> None:
    model = train_small_model(*synthetic_records(0, 60), relation="substitute")
    points = model.problem.dataset.train.features
    edits = [edit for edit, _ in neighbours(model, points[:2], 2)]
    assert len(edits) == 2
    for number, edit in enumerate(edits, 1):
        assert re.search(rf"\bunit '.*\badded\b.*\bquery {number}\b", edit), edit
