"""Votes of many small models: distances against brute force, members that their shard alone
decides.

And votes of linear heads under substitute, whose members count single edits.
"""

from dataclasses import replace
from hashlib import blake2b
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from checks import check_every_subset
from synthetic import refused
from threadpoolctl import threadpool_limits

import agt
from agt.certificates.box import Certificates
from agt.certificates.envelopes import Envelope
from agt.certificates.margin_votes import margin_vote
from agt.certificates.stability import ClosedFormCertificates
from agt.certificates.votes import Vote, certified_vote, plain_vote
from agt.data.records import Records
from agt.mechanisms.argmax import GaussianArgmax, NoisyArgmax
from agt.mechanisms.labelling import Labelling
from agt.mechanisms.planning import QueryEvidence
from agt.models.ensemble import EnsembleModel, vote_certificates
from agt.models.votes import VotesModel
from agt.numeric import SeededRandomness
from agt.relations import RELATIONS
from agt.training import ridge
from agt.training.ensemble import assign_shards
from agt.training.ridge import (
    SCORE_LIMIT,
    encode_targets,
    fit_logistic,
    fit_ridge,
    predict_labels,
    round_to_lattice,
)
from agt.training.ridge_compiled import scaled_residuals
from agt.training.settings import EnsembleConfig
from agt_audit.neighbours import retrained

QUERIES = np.random.default_rng(1).normal(size=(60, 2))


def trained(
    n: int = 40, classes: int = 2, members: int = 5, width: int = 2, **settings: object
) -> VotesModel:
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, width))
    y = np.arange(n) % classes
    x[:, 0] += 1.5 * y
    ids = np.array([f"{rng.integers(10**9)}-{at}" for at in range(n)])
    declared = agt.Declared(
        classes=list(range(classes)), size=n, features=True, settings=True, ids=True
    )
    fitted = agt.fit(
        x, y, ids=ids, declared=declared, members=members, **{"certificate": "votes"} | settings
    )  # type: ignore[arg-type]
    assert isinstance(fitted.model, VotesModel)
    return fitted.model


def normalised(rows: np.ndarray) -> np.ndarray:
    unit: np.ndarray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def records(model: VotesModel) -> Records:
    return model.problem.dataset.train


@pytest.mark.parametrize("touches", [1, 2])
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_it_is_the_certified_vote_of_members_whose_distances_are_0(
    classes: int, touches: int
) -> None:
    rng = np.random.default_rng(classes)
    for members in (1, 2, 3, 4, 7, 12):
        votes = rng.integers(0, classes, size=(members, 400))
        votes[:, :80] = np.minimum(votes[:, :80], 1)  # ties and few losers
        counts = np.stack([(votes == c).sum(axis=0) for c in range(classes)])
        plain = plain_vote(counts, touches=touches)
        known = certified_vote(votes, 0 * votes, classes, touches=touches)
        assert np.array_equal(plain.prediction, known.prediction)
        assert np.array_equal(plain.distance, known.distance)


@pytest.mark.parametrize("relation", ["add_remove", "substitute"])
@pytest.mark.parametrize("classes", [2, 3, pytest.param(-3, id="3-logistic")])
def test_every_subset_of_a_small_universe(classes: int, relation: str) -> None:
    """Of 7 records, all subsets trained: no label changes within its distance, and neighbours'
    distances by 1 at most.
    """
    model = trained(
        7, abs(classes), 6, relation=relation, learner="ridge" if classes > 0 else "logistic"
    )
    everybody = records(model)
    size = 7
    some = (everybody.take(np.flatnonzero(mask >> np.arange(size) & 1)) for mask in range(2**size))
    known = [retrained(model.problem, each).certify(QUERIES) for each in some]
    check_every_subset(
        np.stack([k.prediction for k in known]),
        np.stack([k.stable_distance for k in known]),
        relation,
    )


@pytest.mark.parametrize("learner", ["ridge", "logistic"])
# fewer and more records than coordinates
@pytest.mark.parametrize(("n", "width"), [(300, 100), (300, 3)])
def test_a_member_is_the_same_bits_amid_any_other_shards(n: int, width: int, learner: str) -> None:
    kind = {"name": "votes", "strength": 1e-6, "learner": learner}  # so that roundings show
    model = trained(n, 3, 6, width, certificate=kind)
    everybody = records(model)
    ensemble = model.settings.ensemble
    home = assign_shards(everybody.units, ensemble)
    for member in range(6):
        rows = np.flatnonzero(home == member)
        order = np.random.default_rng(member).permutation(rows)
        alone = retrained(model.problem, everybody.take(order))
        assert isinstance(alone, VotesModel)
        assert np.array_equal(alone.weight[member], model.weight[member])
        assert not alone.weight[np.arange(6) != member].any(), "shards without records"
    with threadpool_limits(2):
        again = retrained(model.problem, everybody.take(np.random.default_rng(0).permutation(n)))
    assert isinstance(again, VotesModel)
    assert np.array_equal(again.weight, model.weight)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_shard_lies_in_the_order_of_its_ids_whatever_order_records_come_in(seed: int) -> None:
    """Or sums would round otherwise, as the lattice of the weights hides nearly always."""
    model = trained(200, 2, 20)
    mixed = records(model).take(np.random.default_rng(seed).permutation(200))
    for some, again in zip(
        model._member_records(records(model)), model._member_records(mixed), strict=True
    ):
        assert some.ids.tolist() == again.ids.tolist() == sorted(again.ids.tolist())


@pytest.mark.parametrize("key", ["agt", "drawn by the owner"])
def test_each_member_has_the_units_that_the_hash_under_the_key_gives_it(key: str) -> None:
    """By BLAKE2b as its paper's library has it: two ensembles of one key, and no others, deal
    alike.
    """
    units = np.array([f"person {at}" for at in range(200)])
    ensemble = EnsembleConfig(members=7, key=key)

    secret = blake2b(f"shard/{key}".encode(), digest_size=32).digest()
    hashes = (blake2b(name.encode(), digest_size=8, key=secret).digest() for name in units.tolist())
    assert assign_shards(units, ensemble).tolist() == [
        int.from_bytes(digest, "little") % 7 for digest in hashes
    ]


@pytest.mark.parametrize("relation", ["add_remove", "remove"])
def test_all_rows_of_a_unit_are_one_members(relation: str) -> None:
    rng = np.random.default_rng(0)
    n = 120
    x = rng.normal(size=(n, 2))
    y = np.arange(n) % 2
    units = np.array([f"person {at // 3}" for at in range(n)])
    declared = agt.Declared(classes=[0, 1], size=n, features=True, settings=True)
    known = {
        "declared": declared,
        "certificate": "votes",
        "members": 10,
        "relation": relation,
        "unit_rows": 3,
    }
    model = agt.fit(x, y, units=units, ids=np.array([f"r{at}" for at in range(n)]), **known).model  # type: ignore[arg-type]
    assert isinstance(model, VotesModel)
    for unit in range(0, 40, 7):
        less = retrained(
            model.problem, records(model).take(records(model).units != f"person {unit}")
        )
        assert isinstance(less, VotesModel)
        assert int((less.weight != model.weight).flatten(1).any(dim=1).sum()) == 1


@pytest.mark.parametrize("certificate", ["votes", "erm"])
def test_a_cap_on_the_rows_of_units_that_nobody_names_is_refused_where_members_share_them(
    certificate: str,
) -> None:
    """Three rows of one person would be three members', and move three votes, not one."""
    x = np.random.default_rng(0).normal(size=(60, 2))
    y = np.arange(60) % 2
    known: dict[str, Any] = {
        "declared": agt.Declared(classes=[0, 1], size=60),
        "certificate": certificate,
        "members": 5,
    }
    with pytest.raises(agt.errors.ConfigError, match=r"unit_rows=3: .* give units"):
        agt.fit(x, y, unit_rows=3, **known)
    agt.fit(x, y, unit_rows=3, units=np.arange(60) // 3, **known)
    agt.fit(x, y, unit_rows=3, **known | {"certificate": "erm", "members": 1})


def test_a_query_is_answered_alike_alone_and_among_others_by_some_members_and_by_all() -> None:
    model = trained(400, 4, 33, 50)
    phi = model.phi(np.random.default_rng(0).normal(size=(300, 50)))
    whole = model.labels(phi)
    for rows in (slice(0, 1), slice(7, 8), slice(100, 163)):
        assert np.array_equal(model.labels(phi[rows]), whole[:, rows])
    small = replace(model.settings, compute=replace(model.settings.compute, memory_mb=16))
    assert np.array_equal(
        replace(model, problem=replace(model.problem, settings=small)).labels(phi), whole
    )
    some = replace(model, weight=model.weight[10:13].clone())
    assert np.array_equal(some.labels(phi), whole[10:13])


@pytest.mark.parametrize("width", [3, 700])
def test_scores_are_exact_integers_and_ties_go_to_the_smaller_class(width: int) -> None:
    rng = np.random.default_rng(width)
    rows = rng.normal(size=(50, width))
    rows = np.rint(normalised(rows) * 2**22)
    weight = np.stack(
        [round_to_lattice(rng.normal(size=(4, width)) * 10.0**scale) for scale in (-200, -3, 0, 30)]
    )
    weight[:, 3] = weight[:, 1]  # two classes that always tie
    exact = [
        [[sum(int(a) * int(b) for a, b in zip(q, w, strict=True)) for w in m] for m in weight]
        for q in rows
    ]
    expected = np.array([[scores.index(max(scores)) for scores in one] for one in exact]).T
    assert max(abs(score) for one in exact for scores in one for score in scores) < 2**53
    assert np.array_equal(predict_labels(rows, weight), expected)
    assert 3 not in expected


@pytest.mark.parametrize("rows_at_once", [1, 3, 8, 100])
@pytest.mark.parametrize("outputs", [1, 4])
def test_labels_do_not_depend_on_how_many_queries_are_scored_at_once(
    outputs: int, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against scores in Python's integers; several are equal, of which the first wins."""
    rng = np.random.default_rng(outputs)
    queries = rng.integers(-2, 3, (8, 3)).astype(np.float64)
    weight = rng.integers(-2, 3, (5, outputs, 3)).astype(np.int32)
    monkeypatch.setattr(ridge, "SCORES_BLOCK_BYTES", 8 * 5 * outputs * rows_at_once)
    scores = np.einsum("njw,qw->nqj", weight.astype(object), queries.astype(int).astype(object))
    if outputs == 1:
        expected = (scores[:, :, 0] > 0).astype(int)
    else:
        expected = [[max(range(4), key=lambda c: of[c]) for of in member] for member in scores]
    assert predict_labels(queries, weight).tolist() == np.asarray(expected).tolist()


@pytest.mark.parametrize(("n", "width"), [(6, 20), (400, 5), (0, 5), (1, 5)])
@pytest.mark.parametrize("classes", [2, 3])
def test_it_is_ridge_regression(n: int, width: int, classes: int) -> None:
    rng = np.random.default_rng(n)
    rows = rng.normal(size=(n, width))
    rows = np.rint(normalised(rows) * 2**22)
    targets = encode_targets(rng.integers(0, classes, size=n), classes)
    x = rows * 2.0**-22
    expected = np.linalg.solve(x.T @ x + 0.1 * np.eye(width), x.T @ targets).T
    found = fit_ridge(rows, targets, 0.1).astype(np.float64)
    if not n:
        assert not found.any(), "every class scores alike, and the smaller one wins"
        return
    factor = np.abs(found).max() / np.abs(expected).max()
    assert found / factor == pytest.approx(expected, abs=1e-6 * np.abs(expected).max())
    assert np.linalg.norm(found, axis=1).max() < 2**28


@pytest.mark.parametrize(("n", "width"), [(8, 20), (400, 5), (0, 5), (1, 5)])
@pytest.mark.parametrize("strength", [1e-6, 0.5])
def test_it_is_logistic_regression(n: int, width: int, strength: float) -> None:
    """As the minimiser of Newton's method, where 100 steps are enough; without records every
    class scores alike.
    """
    rng = np.random.default_rng(n)
    rows = np.rint(2.0**22 * normalised(rng.normal(size=(n, width))))
    targets = encode_targets(rng.integers(0, 3, size=n), 3)
    found = fit_logistic(rows, targets, strength)
    x = rows * 2.0**-22
    signs = 2 * targets - 1
    assert np.linalg.norm(found.astype(np.float64), axis=1).max() < 2**28
    if not n or strength < 0.1:
        assert found.any() == (n > 0)
        return
    expected = np.zeros((3, width))
    for _ in range(50):
        for c in range(3):
            chance = 1 / (1 + np.exp(signs[:, c] * (x @ expected[c])))
            slope = 2 * strength * expected[c] - x.T @ (signs[:, c] * chance)
            curve = x.T @ (x * (chance * (1 - chance))[:, None]) + 2 * strength * np.eye(width)
            expected[c] -= np.linalg.solve(curve, slope)
    factor = np.abs(found).max() / np.abs(expected).max()
    assert found / factor == pytest.approx(expected, abs=1e-6 * np.abs(expected).max())


def test_the_exponential_of_logistic_regression() -> None:
    scores = np.linspace(-SCORE_LIMIT, SCORE_LIMIT, 2001)[:, None]
    for sign in (1.0, -1.0):
        pulls = scaled_residuals(scores, np.full_like(scores, sign))
        assert pulls == pytest.approx(4 * sign / (1 + np.exp(sign * scores)), rel=1e-9)


def test_what_votes_are_not_proved_for_is_refused() -> None:
    refused(
        (
            agt.errors.ConfigError,
            "members=1 and vote=labels",
            lambda: agt.fit(np.eye(2), np.arange(2), certificate="votes"),
        ),
        (agt.errors.ConfigError, r"logisitc.*logistic", lambda: trained(learner="logisitc")),
        (
            agt.errors.ConfigError,
            "certificate=erm cannot",
            lambda: trained(certificate="erm", members=1, learner="ridge"),
        ),
    )
    assert len(trained(500, members=1).weight) == 5, "the recipe's number, where a size is declared"
    with pytest.raises(agt.errors.ConfigError, match="paper_privacy"):
        trained(relation="paper_privacy")


@pytest.mark.parametrize("relation", ["add_remove", "substitute"])
def test_votes_of_three_classes_are_released_with_noise_on_counts_that_covers_the_relation(
    relation: str,
) -> None:
    model = trained(300, 3, 60, relation=relation)
    queries = QUERIES[:20]
    evidence = QueryEvidence.from_certificates(model.certify(queries), model.predict(queries), 3)
    assert evidence.tally is not None
    assert (evidence.tally.sum(axis=1) == 60).all()
    assert (evidence.tally.argmax(axis=1) == evidence.labels).all()
    for mechanism in (NoisyArgmax(eps=20.0, classes=3), GaussianArgmax(mu=10.0, classes=3)):
        labelling = Labelling.judged(model, mechanism)
        assert labelling.mechanism.moves == RELATIONS[relation].members_changed_per_edit  # type: ignore[attr-defined]
        assert str(mechanism.guarantee) in labelling.claim.text
        assert f"for {relation} neighbours" in labelling.claim.text
        expected = evidence.expected(mechanism)
        wrong = labelling.labels(queries, SeededRandomness(0)) != evidence.labels
        assert abs(1 - wrong.mean() - expected) < 0.25
        assert 0.6 < expected < 1


# -- votes of linear heads, under substitute

EACH = 4  # records of a shard, of 3
HEADS: dict[str, Any] = {
    "stability": {
        "certificate": "stability",
        "lr": 0.01,
        "epochs": 1,
        "batch": {"count": 2, "n_max": 20},
    },
    "erm": {"certificate": "erm", "weight_decay": 5.0, "lr": 0.1},
    "two rows a unit": {
        "certificate": "stability",
        "lr": 0.01,
        "epochs": 1,
        "unit_rows": 2,
        "batch": {"count": 1},
    },
    "margins": {
        "certificate": "erm",
        "weight_decay": 5.0,
        "lr": 0.1,
        "vote": "margins",
        "margin_clip": 0.05,
    },
    "three classes": {
        "certificate": "stability",
        "lr": 0.01,
        "epochs": 1,
        "batch": {"count": 1},
        "classes": 3,
    },
}


def heads(
    relation: str = "substitute", unit_rows: int = 1, classes: int = 2, **settings: Any
) -> EnsembleModel:
    """Three members, ``EACH`` units in each shard."""
    rng = np.random.default_rng(3)
    names = np.array([f"r{at}" for at in range(60)])
    home = assign_shards(names, EnsembleConfig(members=3))
    units = np.repeat(
        np.concatenate([names[home == member][:EACH] for member in range(3)]), unit_rows
    )
    n = len(units)
    y = (rng.random(n) < 0.7) * 1 if classes == 2 else rng.choice(3, n, p=[0.1, 0.7, 0.2])
    x = np.stack(
        [np.array([-3.0, 3.0, 0.0])[y] + rng.normal(size=n), 3 * (y == 2) + rng.normal(size=n)],
        axis=1,
    )
    declared = agt.Declared(
        classes=[*range(classes)], size=n, features=True, settings=True, ids=True
    )
    ids = np.array([f"{unit}/{at}" for at, unit in enumerate(units)]) if unit_rows > 1 else units
    known = {
        "ids": ids,
        "declared": declared,
        "units": units,
        "clip": 0.5,
        "compute": {"threads": 1},
    } | settings
    model = agt.fit(x, y, members=3, relation=relation, unit_rows=unit_rows, **known).model  # type: ignore[arg-type]
    assert isinstance(model, EnsembleModel)
    return model


def of_every_set(model: EnsembleModel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """([2^12, n] labels, [2^12, n] distances, [2^12, n] what they would be without single edits):
    of every set of units.

    A member is a function of its shard alone: each is trained on the 16 subsets of its own.
    """
    everybody = model.problem.dataset.train
    queries = QUERIES[:6] * 2
    home = assign_shards(everybody.units, model.settings.ensemble)
    ranks = {
        unit: at for h in range(3) for at, unit in enumerate(np.unique(everybody.units[home == h]))
    }
    place = np.array([ranks[unit] for unit in everybody.units])
    made = [
        retrained(model.problem, everybody.take((mask >> place & 1) == 1))
        for mask in range(2**EACH)
    ]
    dealt = list(np.unravel_index(np.arange(2 ** (3 * EACH)), (2**EACH,) * 3))
    if model.settings.ensemble.vote == "margins":
        known = [margins_of(model, made, dealt, queries, count) for count in (True, False)]
    else:
        each, edits = (
            [stacked(made, h, dealt[h], queries, one) for h in range(3)] for one in (False, True)
        )
        known = [
            vote_certificates(each, edits, model.problem.classes),
            vote_certificates(each, each, model.problem.classes),
        ]
    for code in np.random.default_rng(0).integers(0, 2 ** (3 * EACH), 4):
        some = retrained(
            model.problem, everybody.take((code >> (EACH * (2 - home) + place) & 1) == 1)
        ).certify(queries)
        rows = slice(code * len(queries), (code + 1) * len(queries))
        assert some.stable_distance.tolist() == known[0].distance[rows].tolist()
        assert some.prediction.tolist() == known[0].prediction[rows].tolist()
    shape = (-1, len(queries))
    return (
        known[0].prediction.reshape(shape),
        known[0].distance.reshape(shape),
        known[1].distance.reshape(shape),
    )


def stacked(
    made: list[Any], member: int, at: np.ndarray, queries: np.ndarray, single: bool
) -> Certificates:
    """One member's certificates in every set of units, whose part ``at`` is its shard's."""
    models = [
        some.members[member].counting_single_edits if single else some.members[member]
        for some in made
    ]
    known = [model.certify(queries) for model in models]
    label, distance = (
        np.stack([getattr(c, what) for c in known])[at].ravel()
        for what in ("prediction", "distance")
    )
    prices = None
    if known[0].edits_to_win is not None:
        prices = np.stack([c.edits_to_win for c in known], axis=1)[:, at].reshape(
            len(known[0].edits_to_win), -1
        )
    return ClosedFormCertificates.from_distances(
        known[0].ks, "substitute", label, np.ones(len(label), dtype=bool), distance, prices
    )


def margins_of(
    model: EnsembleModel,
    made: list[Any],
    dealt: list[np.ndarray],
    queries: np.ndarray,
    single: bool,
) -> Vote:
    """The same of margins, whose envelopes end within 16 edits."""
    known = []
    for member, at in enumerate(dealt):
        models = [
            some.members[member].counting_single_edits if single else some.members[member]
            for some in made
        ]
        each = [m.envelope(queries, tuple(range(1, 17))) for m in models]
        margin = np.stack([e.margin for e in each])[at].ravel()
        lower, upper = (
            np.stack([getattr(e, end) for e in each], 1)[:, at].reshape(16, -1)
            for end in ("lower", "upper")
        )
        known.append(Envelope(each[0].ks, margin, lower, upper))
    return margin_vote(known, model.settings.ensemble.margin_clip or 0.0, touches=2)


@pytest.mark.parametrize("name", HEADS)
def test_every_replacement_in_a_small_universe_of_linear_heads(name: str) -> None:
    """Of 12 units, all 4,096 sets: no label changes within its distance, and neighbours'
    distances by 1 at most.
    """
    label, distance, without = of_every_set(heads(**HEADS[name]))
    assert (distance >= without).all()
    assert distance.mean() > 1.3 * without.mean()
    states = np.arange(len(label))
    units = range(3 * EACH)
    swaps = []
    for out, come in permutations(units, 2):
        start = states[(states >> out & 1 == 1) & (states >> come & 1 == 0)]
        swaps.append((start, start ^ (1 << out) ^ (1 << come)))
    for start, end in swaps:
        assert abs(distance[start] - distance[end]).max() <= 1
        assert not distance[start][label[start] != label[end]].any()
    for winner in range(label.max() + 1):
        turned = label != winner
        for k in range(1, int(distance.max()) + 1):
            turned = np.logical_or.reduce([turned, *(moved(turned, *swap) for swap in swaps)])
            assert not (turned & (label == winner) & (distance >= k)).any()


@pytest.mark.parametrize("certificate", ["stability", "erm"])
def test_prices_of_a_heads_classes_move_by_one(certificate: str) -> None:
    """Of all subsets of a shard: 0 for the label alone, the least of the others its distance and
    one more.
    """
    settings = (
        {"lr": 0.01, "epochs": 1, "batch": {"count": 1}}
        if certificate == "stability"
        else {"weight_decay": 5.0, "lr": 0.1}
    )
    model = heads("add_remove", classes=3, certificate=certificate, **settings)
    shard = model.problem.dataset.train
    names = np.unique(shard.units)
    home = assign_shards(np.unique(shard.units), model.settings.ensemble)
    own = names[home == 0]
    found = []
    for mask in range(2**EACH):
        left = np.isin(shard.units, own[[mask >> at & 1 == 0 for at in range(EACH)]], invert=True)
        head = retrained(model.problem, shard.take(left)).members[0]
        known = head.certify(QUERIES)
        prices = known.edits_to_win
        assert np.array_equal(prices == 0, np.arange(3)[:, None] == known.prediction)
        assert np.array_equal(np.sort(prices, axis=0)[1], known.stable_distance + 1)
        found.append(prices)
    near = [
        abs(found[mask] - found[mask ^ 1 << at]).max()
        for mask in range(2**EACH)
        for at in range(EACH)
    ]
    assert max(near) == 1
    assert np.max(found) > 2


def moved(turned: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Where a replacement leads to what has turned."""
    found = np.zeros_like(turned)
    found[start] = turned[end]
    return found


@pytest.mark.parametrize("name", HEADS)
def test_single_edits_are_those_of_add_remove_to_the_bit(name: str) -> None:
    settings = dict(HEADS[name])
    for one, other in zip(
        heads(**settings).members, heads(relation="add_remove", **settings).members, strict=True
    ):
        assert one.counting_single_edits.trained.sensitivity == other.trained.sensitivity
        assert one.trained.sensitivity.per_k == 2 * other.trained.sensitivity.per_k
        assert one.trained.weight.tolist() == other.trained.weight.tolist()
        assert other.counting_single_edits is other
        found = one.counting_single_edits.certify(QUERIES)
        expected = other.certify(QUERIES)
        assert found.stable_distance.tolist() == expected.stable_distance.tolist()


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("members", [1, 5, 6])
@pytest.mark.parametrize("relation", ["add_remove", "flip"])
def test_margins_of_certified_queries_have_the_bits_of_margins(
    relation: str, members: int, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And members are not asked again, unless they have scores that certificates do not have."""
    if relation == "add_remove" and members == 1:
        pytest.skip("one member has no votes")
    model = trained(60, classes, members, relation=relation)
    certificates = model.certify(QUERIES)
    margins = model.margins(QUERIES)
    if members > 1:
        monkeypatch.setattr(type(model), "labels", None)
    found = model.certified_margins(QUERIES, certificates)
    assert found.tobytes() == margins.tobytes()
    assert found.shape == margins.shape


def test_margins_are_asked_for_where_certificates_have_no_votes() -> None:
    model = trained(60, 3, 5)
    of_some_k = model.certify(QUERIES, (1, 2))
    assert np.array_equal(model.certified_margins(QUERIES, of_some_k), model.margins(QUERIES))
