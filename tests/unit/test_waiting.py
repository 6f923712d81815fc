"""Who is answered while requests wait; what is counted, and what a crash leaves."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agt.certificates.box import Certificates
from agt.certificates.votes import Vote
from agt.errors import ConfigError
from agt.models.ensemble import vote_certificates
from agt_cli.runs.pending import ABSTAINED_FILE, PendingErasures, abstentions

STATES = ("sha256:0",)


def member(labels: list[int], distances: list[int]) -> Certificates:
    ks = tuple(range(5))
    stable = np.array(distances)
    return Certificates(ks, "add_remove", np.array(labels), np.array([stable >= k for k in ks]))


def of(folder: Path, units: int, members: tuple[int, ...] | None = None) -> PendingErasures:
    run: Any = SimpleNamespace(folder=folder, digest="sha256:0")
    return PendingErasures(run, units, members)


MEMBERS = [member([1, 1, 1], [0, 4, 0]), member([1, 1, 0], [3, 3, 0]), member([1, 0, 0], [3, 0, 0])]
VOTES = vote_certificates(MEMBERS, MEMBERS, 2)


def test_each_member_counts_what_waits_for_it(tmp_path: Path) -> None:
    assert VOTES.distance.tolist() == [4, 3, 0]
    assert of(tmp_path, 5).answerable_queries(VOTES, 2).tolist() == [False, False, False]
    assert of(tmp_path, 5, (5, 0, 0)).answerable_queries(VOTES, 2).tolist() == [True, False, True]
    assert of(tmp_path, 5, (0, 0, 5)).answerable_queries(VOTES, 2).tolist() == [True, True, False]
    assert of(tmp_path, 3).answerable_queries(VOTES, 2).tolist() == [True, True, False]


def test_a_vote_of_margins_is_not_counted_by_labels(tmp_path: Path) -> None:
    margins = Vote(np.array([0, 1, 0]), np.array([5, 4, 6]))
    known = VOTES.with_margins(margins, margins)
    assert known.plurality.tolist() == VOTES.prediction.tolist() != known.prediction.tolist()
    assert known.tally.tolist() == VOTES.tally.tolist()
    assert known.stable_distance.tolist() == [5, 4, 6]
    assert of(tmp_path, 5, (5, 0, 0)).answerable_queries(known, 2).tolist() == [True, False, True]
    assert of(tmp_path, 6, (0, 0, 6)).answerable_queries(known, 2).tolist() == [False, False, True]


def test_nobody_waits(tmp_path: Path) -> None:
    record: Any = None
    assert of(tmp_path, 0).answerable_queries(VOTES, 2).all()
    assert of(tmp_path, 0).record_deferred(np.array([True]), record) == []
    assert not (tmp_path / ABSTAINED_FILE).exists()


def test_what_is_owed_is_on_the_disk_first(tmp_path: Path) -> None:
    def refuse(**numbers: Any) -> None:
        raise OSError("no space left")

    broken: Any = SimpleNamespace(add_metrics=refuse)
    whole: Any = SimpleNamespace(add_metrics=lambda **numbers: None)
    assert "1 of 3" in of(tmp_path, 2).record_deferred(np.array([True, False, False]), whole)[0]
    with pytest.raises(OSError, match="no space"):
        of(tmp_path, 2).record_deferred(np.array([False]), broken)
    assert abstentions(tmp_path, STATES) == 3
    lines = (tmp_path / ABSTAINED_FILE).read_text().splitlines()
    assert [json.loads(line)["queries"] for line in lines] == [3, 1]
    assert "id" not in lines[0]
    with (tmp_path / ABSTAINED_FILE).open("a") as file:
        file.write('{"abst')
    assert abstentions(tmp_path, STATES) == 3
    of(tmp_path, 2).record_deferred(np.array([False]), whole)
    assert abstentions(tmp_path, STATES) == 4, "a line that breaks off takes no other with it"
    assert abstentions(tmp_path, ()) == 0, "of another state"
    for line in ("garbage", '["a"]', '{"state": "d", "abstained": -1}'):
        (tmp_path / ABSTAINED_FILE).write_text(f"{line}\n")
        with pytest.raises(ConfigError, match=r"unlearning/abstained\.jsonl.*1:"):
            abstentions(tmp_path, STATES)
