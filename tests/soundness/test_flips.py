"""Labels that flip (relation=flip): distances against every way to change labels, and what keeps a
flip in its place.

Every labelling of a small universe is trained, and each query's distance is compared with the
fewest labels that differ where its answer does: equal, and not merely less.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import agt
from agt.certificates.flips import count_flips_to_beat, count_flips_to_win, fewest_edits_to_change
from agt.data.dataset import Dataset
from agt.data.embeddings import Embeddings
from agt.data.in_memory import Declared, dataset_from_arrays
from agt.data.records import Records
from agt.data.table import Table
from agt.errors import ConfigError, UnsoundError
from agt.models import votes
from agt.models.fitting import load
from agt.models.linear import LinearModel
from agt.models.votes import FLIPS, FlipModel, MemberInfluence, VotesModel
from agt.relations.flip import Flip
from agt.training.ridge import (
    INFLUENCE_BITS,
    encode_targets,
    fit_ridge,
    label_influence,
    sum_of_row_lengths,
)
from agt_audit.certificate import Certificate
from agt_audit.certificate_attacks import Auditor
from agt_audit.neighbours import retrained
from agt_cli.report.findings import Outcome

HARD = {"labels flip among equal rows": 2, "ties": 1, "a third class pulls": 0}


def universe(n: int, classes: int, kind: str = "") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Records, their labels, and queries that lie among them."""
    rng = np.random.default_rng(n * classes)
    x = rng.normal(size=(n, 2))
    y = np.arange(n) % classes
    queries = rng.normal(size=(60, 2))
    if HARD.get(kind):  # rows that are the same, or the same but for a sign, and queries among them
        x = np.repeat(np.eye(2)[:1], n, axis=0) * (-1.0) ** (np.arange(n) // HARD[kind])[:, None]
        queries = np.vstack([x, np.eye(2)[1:], queries[:5]])
    if kind == "one class is missing":
        y = np.minimum(y, 1)
    # one label of it, away from the query, does more than two of the answer's own
    if kind == "a third class pulls":
        turned = np.radians([73.4, -73.4, 73.4, -73.4, 64.5, 180.0])
        x = np.column_stack([np.cos(turned), np.sin(turned)])
        y = np.array([0, 0, 0, 0, 1, 2])
        queries = np.column_stack([np.cos(turns := np.linspace(-0.2, 0.2, 9)), np.sin(turns)])
    return x, y, queries


def fitted(n: int, classes: int, members: int, kind: str = "") -> tuple[FlipModel, np.ndarray]:
    x, y, queries = universe(n, classes, kind)
    declared = agt.Declared(classes=list(range(classes)), size=n, features=True, settings=True)
    certificate: Any = {"name": "votes"}
    if kind in HARD:  # opposite rows weigh the same
        certificate |= {"features": {"bias": 0.0}, "strength": 100.0}
    model = agt.fit(
        x, y, declared=declared, relation="flip", certificate=certificate, members=members
    ).model
    assert isinstance(model, FlipModel)
    return model, queries


def labellings(model: FlipModel) -> Iterator[tuple[np.ndarray, FlipModel]]:
    """Every labelling of the records, and what is trained on it."""
    records = model.problem.dataset.train
    for given in product(range(model.problem.classes), repeat=len(records)):
        labels = np.array(given)
        again = retrained(model.problem, replace(records, labels=labels))
        assert isinstance(again, FlipModel)
        yield labels, again


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("n", "classes", "members", "kind"),
    [
        (8, 2, 1, ""),
        (8, 2, 1, "ties"),
        (6, 2, 1, "labels flip among equal rows"),
        (8, 2, 3, ""),
        (7, 2, 9, "ties"),  # empty shards
        (6, 3, 1, ""),
        (6, 3, 1, "one class is missing"),
        (6, 3, 1, "ties"),
        (6, 3, 1, "a third class pulls"),
        (4, 4, 1, ""),
    ],
)
def test_a_distance_is_exactly_how_many_labels_hold(
    n: int, classes: int, members: int, kind: str
) -> None:
    model, queries = fitted(n, classes, members, kind)
    known = model.certify(queries)
    given = model.problem.dataset.train.labels
    fewest = np.full(len(queries), np.iinfo(np.int64).max)
    for labels, again in labellings(model):
        turned = again.predict(queries) != known.prediction
        fewest[turned] = np.minimum(fewest[turned], (labels != given).sum())
    turns = fewest <= n
    assert turns.any()
    assert np.array_equal(known.stable_distance[turns], fewest[turns] - 1)
    assert (known.stable_distance[~turns] >= n).all()  # no labels turn it
    assert (known.stable_distance <= model.max_distance).all()


@pytest.mark.parametrize(("n", "classes", "members"), [(7, 2, 1), (7, 2, 3), (5, 3, 1), (5, 3, 4)])
def test_neighbours_differ_by_one_and_their_answers_at_0_alone(
    n: int, classes: int, members: int
) -> None:
    model, queries = fitted(n, classes, members)
    seen = [(labels, again.certify(queries)) for labels, again in labellings(model)]
    pairs = 0
    for (one, mine), (other, theirs) in combinations(seen, 2):
        apart = int((one != other).sum())
        differ = mine.prediction != theirs.prediction
        assert (mine.stable_distance[differ] < apart).all()
        assert (theirs.stable_distance[differ] < apart).all()
        if apart == 1:
            pairs += 1
            assert (abs(mine.stable_distance - theirs.stable_distance) <= 1).all()
            assert not mine.stable_distance[differ].any()
            assert not theirs.stable_distance[differ].any()
    assert pairs


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_the_price_is_what_every_set_of_flips_says(classes: int) -> None:
    """Small integers, where gains tie, gaps are met exactly and some records move nothing."""
    rng = np.random.default_rng(classes)
    every = np.array([*product(range(classes), repeat=4)])
    for _ in range(200):
        pull = rng.integers(-2, 3, size=4).astype(np.float64)
        given = rng.integers(0, classes, size=4)
        scores = (np.where(every[..., None] == np.arange(classes), pull[:, None], 0)).sum(axis=1)
        answers = scores.argmax(axis=1)
        here = (every == given).all(axis=1)
        apart = (every != given).sum(axis=1)[answers != answers[here]]
        price = fewest_edits_to_change(
            count_flips_to_beat(pull[None], given, answers[here], classes, 9), answers[here]
        )
        assert price[0] == apart.min(initial=9)


def test_flips_to_an_answer_move_by_one() -> None:
    """0 for the answer alone, the least of the others is what turns it, and no labelling is
    nearer than its price.
    """
    rng = np.random.default_rng(1)
    classes = 3
    every = np.array([*product(range(classes), repeat=5)])
    apart = (every[:, None] != every).sum(axis=2)
    for _ in range(12):
        pull = rng.integers(-3, 4, size=5).astype(np.float64)
        scores = (np.where(every[..., None] == np.arange(classes), pull[:, None], 0)).sum(axis=1)
        answers = scores.argmax(axis=1)
        prices = np.stack(
            [count_flips_to_win(pull[None], given, classes, 9)[:, 0] for given in every], axis=1
        )
        assert np.array_equal(prices == 0, np.arange(classes)[:, None] == answers)
        assert (abs(prices[:, :, None] - prices[:, None])[:, apart == 1] <= 1).all()
        turns = [
            fewest_edits_to_change(
                count_flips_to_beat(pull[None], given, answer[None], classes, 9), answer[None]
            )[0]
            for given, answer in zip(every, answers, strict=True)
        ]
        assert np.array_equal(np.sort(prices, axis=0)[1], turns)
        for u in range(classes):
            nearest = np.where(answers == u, apart, 9).min(axis=1)
            assert (prices[u] <= nearest).all()


@pytest.mark.parametrize("sure_of", [9, 12])
def test_a_vote_asks_what_a_class_costs_whatever_the_answer_is(sure_of: int) -> None:
    """One flip turns a member from 0 to 2, and what it takes to beat its answer falls from 3 to
    1: the vote's may not.
    """
    model, queries = fitted(20, 3, 5)
    phi = model.phi(queries[:1])[0]
    along = np.zeros((1, len(phi)), dtype=np.int32)
    along[0, abs(phi).argmax()] = np.sign(phi[abs(phi).argmax()])
    sure = [
        MemberInfluence(np.repeat(along, sure_of, axis=0), np.full(sure_of, label))
        for label in (0, 0, 1, 1)
    ]
    pull = np.array([-3, 3, 3, 3, 6], dtype=np.int32)[:, None] * along
    before, after = (
        model._with_members([MemberInfluence(pull, np.array([1, 0, 0, last, 2])), *sure]).certify(
            queries[:1]
        )
        for last in (0, 2)
    )
    assert [known.members[0, 0] for known in (before, after)] == [0, 2]
    assert [known.prediction[0] for known in (before, after)] == [0, 0]
    assert before.stable_distance[0] > 0
    assert abs(before.stable_distance - after.stable_distance)[0] <= 1


@pytest.mark.parametrize(("n", "width"), [(0, 3), (4, 6), (300, 3), (700, 40)])
def test_weights_are_those_of_ridge_and_no_label_is_part_of_what_moves_them(
    n: int, width: int
) -> None:
    rng = np.random.default_rng(n)
    rows = np.rint(rng.normal(size=(n, width)) * 2**19)
    moves = label_influence(rows, 0.1)
    assert moves.dtype == np.int32
    assert sum_of_row_lengths(moves.astype(np.float64)) < 2**INFLUENCE_BITS
    targets = encode_targets(rng.integers(0, 2, n), 2)
    usual, mine = (
        weight[0].astype(np.float64)
        for weight in (fit_ridge(rows, targets, 0.1), targets.T @ moves)
    )
    if n:
        assert usual @ mine >= (1 - 1e-6) * np.linalg.norm(usual) * np.linalg.norm(mine)


def test_a_flip_renames_nobody_and_leaves_all_other_members_as_they_were() -> None:
    """Through arrays, rows that are the same among them."""
    x, y, _ = universe(40, 3)
    x[7], x[9] = x[3], x[3]
    declared = agt.Declared(classes=[0, 1, 2], size=40, features=True, settings=True)

    def model(labels: np.ndarray) -> FlipModel:
        found = agt.fit(
            x, labels, declared=declared, relation="flip", certificate="votes", members=7
        ).model
        assert isinstance(found, FlipModel)
        return found

    mine = model(y)
    for row in (0, 3, 7, 9):
        theirs = model(np.where(np.arange(40) == row, (y + 1) % 3, y))
        assert np.array_equal(mine.problem.dataset.train.ids, theirs.problem.dataset.train.ids)
        changed = (mine.weight != theirs.weight).flatten(1).any(dim=1)
        assert int(changed.sum()) == 1
    with_labels, _ = dataset_from_arrays(x, y, declared)
    assert not np.array_equal(with_labels.train.ids, mine.problem.dataset.train.ids)


def test_arrays_are_named_without_labels() -> None:
    x, y, _ = universe(9, 3)
    x[4] = x[2]
    declared = agt.Declared(classes=[0, 1, 2], size=9)
    read = [
        dataset_from_arrays(x, labels, declared, label_free=True)[0]
        for labels in (y, y[::-1], y * 0)
    ]
    assert all(read[0].same_records(other) for other in read)
    assert len(set(read[0].train.ids.tolist())) == 9


def test_a_flip_in_a_table_moves_no_row_to_another_name_shard_or_split(tmp_path: Path) -> None:
    """Copies, too: rows of the same features, under one label or several."""
    rng = np.random.default_rng(0)
    path = tmp_path / "rows.csv"
    rows = rng.integers(0, 4, size=(80, 2))
    labels = rng.integers(0, 2, size=80)

    def read(given: np.ndarray, label_free: bool) -> Dataset:
        lines = [
            f"{a},{b},{'no' if c else 'yes'}"
            for (a, b), c in zip(rows.tolist(), given.tolist(), strict=True)
        ]
        path.write_text("\n".join(["a,b,y", *lines]) + "\n")
        numeric = {"a": (0, 3), "b": (0, 3)}
        return Table(
            path=path, label="y", classes=("no", "yes"), numeric=numeric, label_free=label_free
        ).load()

    for label_free, same in ((True, True), (False, False)):
        mine = read(labels, label_free)
        assert mine.label_free == label_free
        others = [
            read(np.where(np.arange(80) == row, 1 - labels, labels), label_free)
            for row in range(0, 80, 7)
        ]
        assert all(mine.same_records(other) for other in others) == same
        assert len({part.digest for part in (mine, *others)}) == 13  # the labels are others


def test_ids_that_may_hold_labels_are_refused() -> None:
    model, _ = fitted(8, 2, 1)
    bare = replace(model.problem.dataset, label_free=False)
    with pytest.raises(ConfigError, match=r"dataset\.label_free=true"):
        model.problem.with_dataset(bare)


def test_ids_without_labels_are_refused_where_no_label_flips() -> None:
    """One copy that goes passes its id on to the next, which has another label: every later
    label would change shards.
    """
    x = np.zeros((6, 1))
    y = np.array([0, 1, 0, 1, 0, 1])
    (many, _), (few, _) = (
        dataset_from_arrays(x[at:], y[at:], Declared(classes=(0, 1)), label_free=True)
        for at in (0, 1)
    )
    ids = dict(zip(many.train.ids, many.train.labels, strict=True))
    assert all(
        ids[name] != label for name, label in zip(few.train.ids, few.train.labels, strict=True)
    )
    for relation in ("add_remove", "substitute", "remove"):
        model = agt.fit(x, y, declared=Declared(classes=(0, 1), size=6), relation=relation).model
        with pytest.raises(ConfigError, match=r"dataset\.label_free=true .*relation=flip"):
            model.problem.with_dataset(replace(model.problem.dataset, label_free=True))


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({"certificate": "removal"}, "certificate=votes learner=ridge"),
        ({"certificate": "box"}, "certificate=votes learner=ridge"),
        ({"learner": "logistic", "members": 3}, "certificate=votes learner=ridge"),
        ({"certificate": "votes", "unit_rows": 2}, "unit_rows=2"),
        ({"certificate": "votes", "units": ["a", "a", "b", "c", "d", "e"]}, "'a' has 2 rows"),
    ],
)
def test_what_cannot_count_flips_is_refused_and_says_what_can(settings: dict, missing: str) -> None:
    x, y, _ = universe(6, 2)
    with pytest.raises(ConfigError, match=missing):
        agt.fit(
            x,
            y,
            declared=agt.Declared(classes=[0, 1], size=6, ids=True),
            relation="flip",
            **settings,
        )


def test_ids_that_were_given_are_declared_to_tell_nothing_of_labels() -> None:
    x, y, _ = universe(6, 2)
    declared = agt.Declared(classes=[0, 1], size=6, features=True, settings=True, ids=True)
    model = agt.fit(
        x, y, ids=[*"abcdef"], declared=declared, relation="flip", certificate="votes"
    ).model
    codes = {fact.code for c in model.conditions for fact in c.evidence.facts}
    assert "given_names_free_of_labels" in codes
    unnamed = fitted(6, 2, 1)[0].conditions
    assert all(c.held for c in unnamed)
    codes = {fact.code for c in unnamed for fact in c.evidence.facts}
    assert "given_names_free_of_labels" not in codes


def test_a_claim_says_first_that_features_are_not_protected() -> None:
    x, y, queries = universe(6, 2)
    declared = agt.Declared(classes=[0, 1], size=6, features=True, settings=True)
    model = agt.fit(x, y, declared=declared, relation="flip", certificate="votes")
    release = model.release(queries, agt.RandomizedResponse(eps=1.0))
    assert "label" in release.words[0]
    assert "features" in release.words[0]


class Shelf(dict[str, bytes]):
    """A folder in memory."""

    folder = Path("shelf")
    read = dict.__getitem__
    write = dict.__setitem__

    def json(self, name: str) -> dict:
        return json.loads(self[name])


def shelved(model: FlipModel) -> Any:
    shelf: Any = Shelf()
    model.save(shelf)
    return shelf


def test_it_is_read_back_whole() -> None:
    model, queries = fitted(8, 3, 3)
    again = load(model.problem, shelved(model))
    assert np.array_equal(
        again.certify(queries).stable_distance, model.certify(queries).stable_distance
    )


CHANGES: dict[str, tuple[Callable[[MemberInfluence], MemberInfluence], str]] = {
    "other labels": (
        lambda one: one._replace(labels=(one.labels + 1) % 3),
        "do not result from",
    ),
    "other pulls": (
        lambda one: one._replace(influence=one.influence // 2),
        "do not result from",
    ),
    "no class": (lambda one: one._replace(labels=one.labels + 3), "outside its range"),
    "too long": (
        lambda one: one._replace(influence=np.full_like(one.influence, 2**29)),
        "outside its range",
    ),
    "too long below": (
        lambda one: one._replace(influence=np.full_like(one.influence, -(2**31))),
        "outside its range",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_was_changed_is_refused(change: str) -> None:
    model, _ = fitted(8, 3, 1)
    changed, why = CHANGES[change]
    shelf = shelved(model)
    shelf[FLIPS] = shelved(replace(model, members=tuple(map(changed, model.members))))[FLIPS]
    with pytest.raises(UnsoundError, match=why):
        load(model.problem, shelf)


@pytest.mark.parametrize(("classes", "members"), [(2, 1), (3, 5)])
def test_a_distance_holds_against_labels_changed_in_the_arrays(classes: int, members: int) -> None:
    """Through the front door, and by the labels that hurt most: those of the records nearest to
    a query.
    """
    rng = np.random.default_rng(members)
    n = 60
    x = rng.normal(size=(n, 3))
    y = np.arange(n) % classes
    x[:, 0] += 2 * y
    declared = agt.Declared(classes=list(range(classes)), size=n, features=True, settings=True)

    def answers(labels: np.ndarray) -> agt.Fitted:
        return agt.fit(
            x, labels, declared=declared, relation="flip", certificate="votes", members=members
        )

    queries = rng.normal(size=(30, 3)) + np.eye(1, 3)
    known = answers(y).certify(queries)
    for query in range(10):
        nearest = np.argsort(-x @ queries[query])
        for flips in (int(known.stable_distance[query]), int(known.stable_distance[query]) + 1):
            labels = y.copy()
            labels[nearest[:flips]] = (labels[nearest[:flips]] + 1) % classes
            holds = known.stable_distance >= (labels != y).sum()
            assert (answers(labels).predict(queries)[holds] == known.labels[holds]).all()


@pytest.mark.parametrize(
    ("certificate", "classes", "settings"),
    [
        ("erm", 2, {"clip": 1.0}),
        ("erm", 2, {"clip": 0.3}),
        ("erm", 3, {"clip": 1.0, "loss": "binary_cross_entropy"}),
        ("erm", 3, {"clip": 1.0, "loss": "cross_entropy"}),
        ("stability", 2, {"clip": 1.0, "batch": {"count": 3}}),
        ("stability", 2, {"clip": 0.3}),
        ("stability", 3, {"clip": 1.0, "loss": "cross_entropy"}),
    ],
)
def test_a_flip_moves_a_head_no_farther_than_it_says(
    certificate: str, classes: int, settings: dict
) -> None:
    """Every label of a few records changed to every other, of heads that hardly leave 0, where a
    flip moves most.
    """
    rng = np.random.default_rng(3)
    n = 30
    x = rng.normal(size=(n, 2))
    y = np.arange(n) % classes
    settings |= (
        {"weight_decay": 1.0}
        if certificate == "erm"
        else {"weight_decay": 0.0, "epochs": 1, "lr": 0.1}
    )
    declared = agt.Declared(classes=list(range(classes)), size=n, features=True, settings=True)

    def head(labels: np.ndarray) -> LinearModel:
        model = agt.fit(
            x, labels, declared=declared, relation="flip", certificate=certificate, **settings
        ).model
        assert isinstance(model, LinearModel)
        return model

    mine = head(y)
    shares = []
    for row, other in product(range(6), range(1, classes)):
        theirs = head(np.where(np.arange(n) == row, (y + other) % classes, y))
        apart = theirs.trained.weight - mine.trained.weight
        each = apart.norm(dim=1).max() if mine.trained.loss.kind == "one_vs_all" else apart.norm()
        shares.append(float(each) / mine.trained.sensitivity.per_k)
    assert max(shares) <= 1
    assert max(shares) > 0.7, "a check of nothing would not show"
    assert mine.counting_single_edits is mine


def test_a_flip_in_a_file_of_vectors_moves_no_row(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    path = tmp_path / "vectors.npz"
    x = rng.integers(0, 3, size=(70, 2)).astype(np.float32)
    y = rng.integers(0, 2, 70)
    read = []
    for row in (None, 5, 30, 55):
        np.savez(path, x=x, y=np.where(np.arange(70) == row, 1 - y, y))
        source = Embeddings(path=path, label="y", classes=(0, 1), label_free=True)
        read.append(source.load())
    assert all(read[0].same_records(other) for other in read)
    assert len({dataset.digest for dataset in read}) == 4


# -- the audit

AUDITED = [
    ("votes", {}),
    ("votes", {"members": 3}),
    ("stability", {"lr": 0.1, "epochs": 2}),
    ("erm", {"members": 2, "weight_decay": 1.0}),
]


def head_to_audit(certificate: str, settings: dict) -> Any:
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    x = rng.normal(size=(40, 2)) * 0.6 + np.where(y == 1, 1, -1)[:, None]
    declared = agt.Declared(classes=[0, 1], size=40, features=True, settings=True)
    return agt.fit(
        x, y, declared=declared, relation="flip", certificate=certificate, **settings
    ).model


def audited(model: Any) -> dict[str, Outcome]:
    extent = Certificate(neighbours=24, farthest=3, bounded=2, queries=20, lines=4, again=False)
    return {about: finding.outcome for about, finding in Auditor(model, extent, 0).run().items()}


@pytest.mark.parametrize(("certificate", "settings"), AUDITED)
def test_an_audit_changes_labels_and_finds_no_fault(certificate: str, settings: dict) -> None:
    found = audited(head_to_audit(certificate, settings))
    claimed = {"parameters", "certified labels", "stable distances", "batches and constants"}
    claimed |= (
        set()
        if settings.get("members", 1) > 1 and certificate != "votes"
        else {"labels within bounds"}
    )
    assert {
        about for about, outcome in found.items() if outcome is Outcome.NOT_CONTRADICTED
    } >= claimed
    assert Outcome.VIOLATED not in found.values()


def test_an_audit_finds_distances_that_count_flips_of_one_record_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = votes.count_flips_to_beat
    monkeypatch.setattr(votes, "count_flips_to_beat", lambda *given: 2 * honest(*given))
    found = audited(head_to_audit("votes", {}))
    assert found["labels within bounds"] is Outcome.VIOLATED
    assert found["stable distances"] is Outcome.VIOLATED


def test_an_audit_finds_a_head_whose_labels_count_for_less_than_a_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        Flip, "gradients_changed_per_edit", lambda self, unit_rows, derivative_bound=None: 0.2
    )
    assert (
        audited(head_to_audit("stability", {"lr": 0.1, "epochs": 1}))["parameters"]
        is Outcome.VIOLATED
    )


def test_an_audit_finds_shards_that_follow_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """One flip then changes two members, and a vote counts one."""
    honest = VotesModel._member_records

    def dealt(self: VotesModel, records: Records) -> Iterator[Records]:
        named = [
            f"{unit} {label}" for unit, label in zip(records.units, records.labels, strict=True)
        ]
        return honest(self, replace(records, units=np.array(named)))

    monkeypatch.setattr(VotesModel, "_member_records", dealt)
    assert audited(head_to_audit("votes", {"members": 3}))["parameters"] is Outcome.VIOLATED
