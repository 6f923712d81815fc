"""Votes of members by a learner of the user's own: its rule against brute force, what is kept,
and what is refused.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import own_learners
import pytest
from checks import check_every_subset
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import agt
from agt.data.records import Records
from agt.errors import ConfigError, UnsoundError
from agt.models import own_votes
from agt.models.own_votes import OwnVotesModel
from agt.settings import RelationConfig
from agt.training.ensemble import assign_shards
from agt.training.learners import Learner, Shard, check_retrained, single_threaded
from agt_audit.neighbours import retrained

QUERIES = np.random.default_rng(1).normal(size=(40, 2))


def data(n: int, classes: int) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, 2))
    y = np.arange(n) % classes
    x[:, 0] += 1.5 * y
    ids = np.array([f"{rng.integers(10**9)}-{at}" for at in range(n)])
    declared = agt.Declared(
        classes=list(range(classes)), size=n, features=True, settings=True, ids=True
    )
    return x, y, {"ids": ids, "declared": declared}


def fitted(
    learner: Any,
    n: int = 60,
    classes: int = 2,
    members: int = 5,
    again: bool = False,
    **settings: Any,
) -> agt.Fitted:
    """``again``: compared with a fresh process, which takes seconds."""
    x, y, known = data(n, classes)
    with pytest.MonkeyPatch.context() as patched:
        if not again:
            patched.setattr(own_votes, "check_retrained", lambda *_: None)
        return agt.fit(x, y, learner=learner, members=members, **known, **settings)


def trained(
    learner: Any, n: int = 60, classes: int = 2, members: int = 5, **settings: Any
) -> OwnVotesModel:
    model = fitted(learner, n, classes, members, **settings).model
    assert isinstance(model, OwnVotesModel)
    return model


def records(model: OwnVotesModel) -> Records:
    return model.problem.dataset.train


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("learner", "classes"),
    [
        (DecisionTreeClassifier(max_features=1), 2),
        (LogisticRegression(), 3),
        (own_learners.fussy, 2),
    ],
    ids=["tree", "logistic", "raises"],
)
def test_every_subset_of_a_small_universe(learner: Any, classes: int) -> None:
    """Of 7 records, all subsets trained: no label changes within its distance, and neighbours'
    distances by 1 at most.
    """
    size = 7
    models: dict[str, OwnVotesModel] = {"add_remove": trained(learner, size, classes, 6)}
    models["substitute"] = under("substitute", models["add_remove"])
    everybody = records(models["add_remove"])
    known = []
    raised = 0
    for mask in range(2**size):
        made = models["add_remove"].retrained(
            everybody.take(np.flatnonzero(mask >> np.arange(size) & 1))
        )
        raised += int(made.metrics["raised"])
        certified = [under(name, made).certify(QUERIES) for name in models]
        known.append([(c.prediction, c.stable_distance) for c in certified])
    assert (raised > 0) == (learner is own_learners.fussy)
    answers = np.array(known)  # [2^7, relations, 2, queries]
    for at, name in enumerate(models):
        check_every_subset(*answers[:, at].swapaxes(0, 1), name)
    assert answers[:, :, 1].max(axis=(0, 2)).tolist() == [3, 1]


def under(relation: Any, model: OwnVotesModel) -> OwnVotesModel:
    """The same votes under another relation."""
    settings = replace(model.settings, relation=RelationConfig(relation))
    return replace(model, problem=replace(model.problem, settings=settings))


@pytest.mark.parametrize(
    "learner", [RandomForestClassifier(5), own_learners.drawing], ids=["forest", "function"]
)
def test_a_member_is_the_same_amid_any_other_shards(learner: Any) -> None:
    model = trained(learner, 300, 3, 6)
    everybody = records(model)
    home = assign_shards(records(model).units, model.settings.ensemble)
    phi = model.phi(QUERIES)
    votes = model.labels(phi)
    assert len({tuple(row) for row in votes.tolist()}) > 3
    for member in range(6):
        order = np.random.default_rng(member).permutation(np.flatnonzero(home == member))
        alone = model.retrained(everybody.take(order)).labels(phi)
        assert np.array_equal(alone[member], votes[member])
        assert not alone[np.arange(6) != member].any(), (
            "shards without records vote for the first class"
        )
    mixed = model.retrained(everybody.take(np.random.default_rng(0).permutation(300)))
    assert np.array_equal(mixed.labels(phi[::-1])[:, ::-1], votes)


def test_one_record_changes_its_own_member_and_no_other() -> None:
    model = trained(DecisionTreeClassifier(), 200, 2, 20)
    everybody = records(model)
    phi = model.phi(np.random.default_rng(0).normal(size=(2000, 2)))
    home = assign_shards(everybody.units, model.settings.ensemble)
    votes = model.labels(phi)
    changes = 0
    for row in range(0, 200, 17):
        less = model.retrained(everybody.take(np.delete(np.arange(200), row)))
        changed = np.flatnonzero((less.labels(phi) != votes).any(axis=1)).tolist()
        assert changed in ([home[row]], [])
        changes += len(changed)
    assert changes


def test_shards_of_one_class_answer_it_and_labels_of_no_class_are_the_first() -> None:
    model = trained(own_learners.strange, 12, 3, 4)
    everybody = records(model)
    only = model.retrained(everybody.take(everybody.labels == 2))
    home = set(
        assign_shards(everybody.units[everybody.labels == 2], model.settings.ensemble).tolist()
    )
    votes = only.labels(model.phi(QUERIES))
    assert all(
        set(votes[member].tolist()) == ({2} if member in home else {0}) for member in range(4)
    )
    assert not only.raised.any()
    strange = model.labels(model.phi(np.array([[100.0, 0.0], [-100.0, 0.0]])))
    assert not strange.any()


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("learner", "said"),
    [
        (own_learners.counting, "3 members were trained again"),
        (own_learners.unseeded, "3 members were trained again"),
        (own_learners.together, "3 members were trained again"),
        (partial(own_learners.remembering, []), "3 members were trained again"),
        (own_learners.Remembering(), "3 members were trained again"),
    ],
    ids=[
        "global state",
        "no seed",
        "queries together",
        "state in an argument",
        "state in an attribute",
    ],
)
def test_a_learner_that_is_no_function_is_refused(learner: Any, said: str) -> None:
    with pytest.raises(UnsoundError, match=said):
        trained(learner, again=True)


def test_what_ends_the_process_is_one_more_that_raises() -> None:
    assert trained(own_learners.leaving).raised.all()


def test_too_many_classes_are_refused() -> None:
    x = np.zeros((4, 1))
    y = np.array([0, 1, 2, 32_768])
    with pytest.raises(ConfigError, match=r"32,769 .*32,767"):
        agt.fit(x, y, certificate="votes", members=2, declared=agt.Declared(classes=range(32_769)))


def test_a_learner_that_looks_at_other_queries_is_refused_by_the_comparison_itself() -> None:
    shard = Shard(QUERIES, np.arange(40) % 2, 0)
    rows = QUERIES[:8]
    with single_threaded():
        labels = Learner(own_learners.together).train_member(shard).labels(rows)[None]
    assert 0 < labels.sum() < 8
    with pytest.raises(UnsoundError):
        check_retrained(Learner(own_learners.together), [shard], rows, labels)


def test_what_raises_when_it_is_asked_votes_for_the_first_class() -> None:
    member = Learner(own_learners.fussy).train_member(Shard(QUERIES[:2], np.array([0, 1]), 0))
    assert member.raised
    assert not member.labels(QUERIES).any()


def test_what_cannot_be_a_learner_is_refused() -> None:
    with pytest.raises(ConfigError, match="ValueError: max_iter"):
        trained(own_learners.refusing)
    with pytest.raises(ConfigError, match=r"int64 .*\(3,\)"):
        trained(lambda x, y: lambda q: np.array([0, 1, 2]))
    with pytest.raises(ConfigError, match="object"):
        trained(object())
    with pytest.raises(ConfigError, match="erm"):
        trained(DecisionTreeClassifier(), certificate="erm")


def test_out_of_memory_is_no_vote() -> None:
    with pytest.raises(MemoryError):
        trained(own_learners.hungry)


def test_votes_alone_are_kept_and_answer_what_was_asked(tmp_path: Any) -> None:
    learner = make_pipeline(StandardScaler(), LogisticRegression())
    made = fitted(learner, 200, 3, 7)
    answers = made.certify(QUERIES)
    made.save(tmp_path / "model")
    read = agt.load(tmp_path / "model")
    again = read.certify(QUERIES[7:20][::-1])
    assert np.array_equal(again.labels, answers.labels[7:20][::-1])
    assert np.array_equal(again.stable_distance, answers.stable_distance[7:20][::-1])
    assert read.model.metrics == made.model.metrics
    assert [c.as_json() for c in read.conditions] == [c.as_json() for c in made.conditions]
    read.model.check(QUERIES)
    for ask in (read.predict, read.certify, read.model.check):
        with pytest.raises(ConfigError, match="1 of 2"):
            ask(np.stack([QUERIES[0], QUERIES[1] + 1e-9]))
    with pytest.raises(ConfigError, match=r"sklearn\.pipeline\.Pipeline"):
        retrained(read.model.problem, records(made.model))  # type: ignore[arg-type]
    b = next(c for c in read.conditions if c.letter == "b")
    (function,) = (fact for fact in b.evidence.declarations if fact.code == "learner_is_function")
    assert function.values["learner"] == "sklearn.pipeline.Pipeline"
    assert function.setting == "certificate.learner"
    release = read.release(QUERIES[:5], agt.RandomizedResponse(eps=1.0, classes=3), seed=0)
    assert any("condition b" in words and "Pipeline" in words for words in release.words)


def test_a_query_keeps_its_first_label() -> None:
    model = trained(own_learners.drawing, 200, 2, 9)
    phi = model.phi(QUERIES)
    first = model.labels(phi[3:4])
    assert np.array_equal(model.labels(phi)[:, 3:4], first)
    other = replace(model, members=model.members[::-1])
    assert np.array_equal(other.labels(phi)[:, 3:4], first)


def test_noise_on_votes_rests_on_the_declaration_too() -> None:
    release = fitted(DecisionTreeClassifier(), 60, 2, 5).release(
        QUERIES[:2], agt.NoisyArgmax(eps=1.0), seed=0
    )
    declared = release.claim.declared
    assert declared is not None
    assert any(said.condition == "b" and "DecisionTreeClassifier" in str(said) for said in declared)


def test_features_are_as_they_are_unless_a_map_is_given() -> None:
    plain = trained(own_learners.drawing)
    mapped = trained(own_learners.drawing, features="relu")
    assert np.array_equal(plain.phi(QUERIES), QUERIES)
    assert mapped.phi(QUERIES).shape[1] > 1000
    codes = {fact.code for c in plain.conditions for fact in c.evidence.facts}
    assert "norm_one" not in codes
    with pytest.raises(ConfigError, match="3 features"):
        plain.phi(np.zeros((1, 3)))
