"""Stable distances are 1-Lipschitz between neighbours, and labels differ only where both are 0: boxes and ensembles.

This is all that a release mechanism assumes of the evidence (method.md section 3). It is looked for where it would break:
at queries bisected onto the last bit before the distance or the label changes. Single linear heads: test_linear_heads.py.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from checks import CASES, WIDTH, Case, Evidence, Model, Read, Seen, compare, neighbour, run, thresholds
from synthetic import SYMMETRIC

from agt.certificates.box import REACH, Certificates, certify, envelope, grid_index
from agt.certificates.stability import ClosedForm, certify_linear, envelope_linear, logits_of, upper_lengths
from agt.certificates.votes import Vote, certified_vote, margin_vote, published_vote
from agt.data.dataset import Records
from agt.kernels.reference import ReferenceExtremes
from agt.models import model as ensemble_tasks
from agt.models.features import FeatureMap
from agt.models.model import VoteCertificates, vote
from agt.numeric import margins_of
from agt.relations import RELATIONS
from agt.settings import FeaturesConfig
from agt.training import ensemble as ensemble_training
from agt.training.batches import BatchPlan, Recipe
from agt.training.checkpoint import Checkpoints
from agt.training.ensemble import EnsembleConfig, shards
from agt.training.linear import LinearTrained, train_linear
from agt.training.loop import TrainingRun

Fit = Callable[[Records, np.random.Generator], Model]
Break = Callable[[pytest.MonkeyPatch], None]

DENSE = tuple(range(9))


@dataclass(frozen=True)
class Setup:
    """How a model is made of data, and how a label and a distance are read off its certificates."""

    case: Case
    fit: Fit
    relation: str = "add_remove"


def distance(certificates: Certificates) -> Evidence:
    """The evidence of ``counting=distance``."""
    return certificates.prediction, certificates.stable_distance


def walk(setup: Setup, pairs: int, lines: int = 16, seed: int = 0, read: Read = distance) -> Seen:
    """Walk from neighbour to neighbour, up to the first violation; ask both models queries at random and at the thresholds
    of either."""
    rng, seen = np.random.default_rng(seed), Seen()
    data = setup.case.data(rng)
    here = setup.fit(data, rng)
    for pair in range(pairs):
        data = neighbour(rng, setup.case, data, setup.relation, 1, f"n{pair}-")
        there = setup.fit(data, rng)
        queries = np.concatenate([
            rng.normal(size=(2 * lines, WIDTH)), *(thresholds(rng, model, read, lines) for model in (here, there))
        ])  # fmt: skip
        compare(seen, read(here(queries)), read(there(queries)))
        if seen.violations:
            break
        here = there
    return seen


# -- how models are made ---------------------------------------------------------------------------------------------------


def boxes(case: Case, relation: str = "add_remove", ks: tuple[int, ...] = DENSE, dtype: str = "float64") -> Setup:
    """One head with a box for every k."""
    head, recipe = case.head(dtype), case.recipe(relation, ks, dtype)

    def fit(data: Records, rng: np.random.Generator) -> Model:
        trained = run(case, data, relation, ks, dtype, rng)
        return lambda x: certify(head, recipe, trained, x)

    return Setup(case, fit, relation)


def linear(
    case: Case, relation: str = "add_remove", certify: Callable[[LinearTrained, np.ndarray], Certificates] | None = None
) -> Setup:
    """One linear head in closed form."""
    known = certify or closed_form

    def fit(data: Records, rng: np.random.Generator) -> Model:
        examples = replace(data, features=PHI(data.features, "float64"))
        trained = train_linear(case.recipe(relation), examples, PHI.slack)
        return lambda x: replace(known(trained, PHI(x, "float64")), relation=relation)

    return Setup(case, fit, relation)


PHI = FeatureMap(FeaturesConfig(), WIDTH)


def closed_form(trained: LinearTrained, phi: np.ndarray) -> ClosedForm:
    """The distances of certificates/stability.py; the relation is the caller's to say."""
    return certify_linear(trained, phi, "add_remove", DENSE)


def one_by_one(trained: LinearTrained, phi: np.ndarray) -> ClosedForm:
    """The same, counting single edits where one k replaces a record."""
    return closed_form(by_edit(trained), phi)


def by_edit(trained: LinearTrained) -> LinearTrained:
    """The head whose certificates count single edits, as ``LinearModel.by_edit``."""
    return replace(trained, sensitivity=replace(trained.sensitivity, rows=1))


def ensemble(member: Setup, members: int, each: int = 12, edits: Setup | None = None) -> Setup:
    """``members`` of the same kind on hash shards of about ``each`` units; models/model.py certifies their vote.

    Args:
        edits: the same member, its certificates counting single edits; None: it has none.
    """

    def fit(data: Records, rng: np.random.Generator) -> Model:
        parts = ensemble_training.parts(data, EnsembleConfig(members=members))
        models = [member.fit(part, rng) for part in parts]
        single = models if edits is None else [edits.fit(part, rng) for part in parts]
        return lambda x: vote([model(x) for model in models], [model(x) for model in single], member.case.classes)

    return Setup(replace(member.case, n=each * members), fit, member.relation)


def boxes_by_margin(case: Case, relation: str = "add_remove", ks: tuple[int, ...] = DENSE) -> Setup:
    """As ``boxes``, of whose margins the bounds are asked, for a vote of margins."""
    head, recipe = case.head("float64"), case.recipe(relation, ks, "float64")

    def fit(data: Records, rng: np.random.Generator) -> Any:
        trained = run(case, data, relation, ks, "float64", rng)
        return lambda x: envelope(head, recipe, trained, x)

    return Setup(case, fit, relation)


def linear_by_margin(case: Case, relation: str = "add_remove") -> Setup:
    """As ``linear``."""

    def fit(data: Records, rng: np.random.Generator) -> Any:
        trained = train_linear(case.recipe(relation), replace(data, features=PHI(data.features, "float64")), PHI.slack)
        return lambda x: envelope_linear(by_edit(trained), PHI(x, "float64"), tuple(range(1, 65)))

    return Setup(case, fit, relation)


def margins(member: Setup, members: int, each: int = 12) -> Setup:
    """As ``ensemble``, voting by margins."""
    touches = RELATIONS[member.relation].touches

    def fit(data: Records, rng: np.random.Generator) -> Model:
        parts = ensemble_training.parts(data, EnsembleConfig(members=members))
        models: list[Any] = [member.fit(part, rng) for part in parts]

        def known(x: np.ndarray) -> Certificates:
            vote = margin_vote([model(x).by_record(REACH) for model in models], 0.2, touches=touches)
            same = np.ones(len(x), dtype=bool)
            return ClosedForm.of(DENSE, member.relation, vote.prediction, same, vote.distance)

        return known

    return Setup(replace(member.case, n=each * members), fit, member.relation)


# -- the rules as they are -------------------------------------------------------------------------------------------------

BINARY = Case("binary", training={"loss": "binary_cross_entropy", "lr": 0.3})
MLP = Case("mlp", (4,), training={"momentum": 0.3, "lr": 0.1})
MULTI = Case("four classes", (4,), classes=4, training={"lr": 0.5, "clip": 0.03})
UNITS = next(case for case in CASES if case.unit_rows > 1)
SMALL = {"loss": "binary_cross_entropy", "lr": 1.3, "clip": 0.5, "batch": {"count": 2, "normalizer": 5.0, "n_max": 30}}
HEAD = Case("head", n=30, training=SMALL)
HEADS = replace(HEAD, name="heads", classes=3)
LARGE = replace(HEAD, training={**SMALL, "batch": {"count": 2, "normalizer": 20.0, "n_max": 60}})

SETUPS = [
    pytest.param(boxes(MULTI), 3, id="four classes"),
    pytest.param(boxes(UNITS, "substitute"), 3, id="units of three rows, substitute"),
    pytest.param(boxes(MLP, dtype="float32"), 4, id="mlp, float32"),
    pytest.param(ensemble(boxes(MLP), 4), 2, id="ensemble of mlps, an even number"),
    pytest.param(ensemble(boxes(MULTI), 3), 2, id="ensemble of boxes, four classes"),
    pytest.param(ensemble(boxes(UNITS, "paper_privacy"), 3), 2, id="ensemble of boxes, units of three rows, paper_privacy"),
    pytest.param(ensemble(boxes(BINARY, "substitute"), 3), 3, id="ensemble of boxes, substitute"),
    pytest.param(ensemble(linear(HEAD), 5), 5, id="ensemble of linear heads"),
    pytest.param(
        ensemble(
            linear(replace(LARGE, classes=3), "substitute"),
            4,
            60,
            edits=linear(replace(LARGE, classes=3), "substitute", one_by_one),
        ),
        4,
        id="ensemble, three classes, substitute",
    ),
    pytest.param(margins(linear_by_margin(HEAD), 5), 2, id="margins of linear heads"),
    pytest.param(margins(linear_by_margin(LARGE, "substitute"), 4, 60), 2, id="margins of linear heads, substitute"),
    pytest.param(margins(boxes_by_margin(MLP), 3), 1, id="margins of mlps"),
]
MANY = [
    *(
        pytest.param(boxes(case, relation), 6, id=f"{case.name}, {relation}")
        for case in (BINARY, MLP, MULTI, UNITS)
        for relation in SYMMETRIC
    ),
    *(
        pytest.param(ensemble(boxes(case, relation), 3), 6, id=f"ensemble of boxes, {case.name}, {relation}")
        for case in (BINARY, UNITS)
        for relation in SYMMETRIC
    ),
    pytest.param(ensemble(linear(HEADS), 6), 14, id="ensemble of linear heads, three classes"),
]


def check_distances(setup: Setup, pairs: int, lines: int) -> None:
    seen = walk(setup, pairs, lines)
    assert seen.violations == 0, seen
    assert seen.looked > 3 * lines * pairs
    assert seen.stepped > 0, seen
    assert seen.turned > 0, seen
    assert seen.longest > 2, seen


@pytest.mark.parametrize(("setup", "pairs"), SETUPS)
def test_distances_are_1_lipschitz(setup: Setup, pairs: int) -> None:
    """Queries of neighbours, two thirds of them at thresholds."""
    check_distances(setup, pairs, lines=10)


@pytest.mark.sweep
@pytest.mark.parametrize(("setup", "pairs"), MANY)
def test_distances_are_1_lipschitz_in_longer_walks(setup: Setup, pairs: int) -> None:
    check_distances(setup, pairs, lines=16)


@dataclass
class Flips:
    """Queries of three members that neighbours answer otherwise, by whether k = 1 was certified.

    Attributes:
        old: ... by the rule that counts one member for each k.
        new: ... by the rule as it is.
        held: queries certified at k = 1, and looked at.
    """

    old: int = 0
    new: int = 0
    held: int = 0


def flips(setup: Setup, seeds: int, queries: int) -> Flips:
    """Three members; of each of several datasets one record is replaced, and queries are answered before and after."""
    found, three = Flips(), ensemble(setup, 3)
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        data = three.case.data(rng)
        before = three.fit(data, rng)
        after = three.fit(neighbour(rng, three.case, data, setup.relation, 1, "new-"), rng)
        edge = thresholds(rng, before, distance, 64)
        x = edge[rng.integers(0, len(edge), queries)] + 0.05 * rng.normal(size=(queries, WIDTH))
        known, other = before(x), after(x)
        assert isinstance(known, VoteCertificates)
        counted = certified_vote(known.members, known.member_distances, setup.case.classes, touches=1).distance
        flipped = known.prediction != other.prediction
        found.old += int((flipped & (counted >= 1)).sum())
        found.new += int((flipped & (known.stable_distance >= 1)).sum())
        found.held += int((known.stable_distance >= 1).sum())
        if found.old and found.held:
            break
    return found


ONE_STEP = {"loss": "binary_cross_entropy", "epochs": 1, "lr": 1.0, "batch": {"count": 1}}
FEW = Case("few steps", training=ONE_STEP)  # members start alike and stay close, so that one query is near all of them
FLIPPED = [
    pytest.param(linear(HEAD, "substitute"), 12, 10_000, id="linear heads, substitute"),
    pytest.param(boxes(FEW, "substitute", ks=(0, 1, 2)), 12, 10_000, id="boxes, substitute"),
    pytest.param(boxes(FEW, "paper_privacy", ks=(0, 1, 2)), 12, 10_000, id="boxes, paper_privacy"),
]


@pytest.mark.parametrize(("setup", "seeds", "queries"), FLIPPED)
def test_one_replaced_record_flips_what_counting_one_member_certifies(setup: Setup, seeds: int, queries: int) -> None:
    """All three vote alike, two of them by less than one edit: the old rule added their costs and certified k = 1."""
    found = flips(setup, seeds, queries)
    assert found.old > 0, found
    assert found.new == 0, found
    assert found.held > 0, found


def test_members_are_handed_the_same_records_in_one_order() -> None:
    """What the ensembles above stand on, in the function that trains them."""

    def ids(recipe: Recipe, records: Records, checkpoints: Checkpoints) -> list[str]:
        return records.ids.tolist()

    data = HEAD.data(np.random.default_rng(0))
    config, recipe = EnsembleConfig(members=3), HEAD.recipe("add_remove", threads=1)
    given = ensemble_training.train_members(ids, recipe, data, config)
    for seed in range(5):
        mixed = data.take(np.random.default_rng(seed).permutation(len(data)))
        assert ensemble_training.train_members(ids, recipe, mixed, config) == given
    assert sorted(name for part in given for name in part) == sorted(data.ids)


# -- rules broken on purpose -----------------------------------------------------------------------------------------------


def published(certificates: Certificates) -> Evidence:
    """001 Theorem 5.3: the least distances of ALL members, summed."""
    assert isinstance(certificates, VoteCertificates)
    known = published_vote(certificates.members, certificates.member_distances)
    return known.prediction, known.distance


def steps(certificates: Certificates) -> Evidence:
    """The evidence of ``counting=index``."""
    return certificates.prediction, grid_index(certificates.ks, certificates.certified)


def floor_plus_one(trained: LinearTrained, phi: np.ndarray) -> ClosedForm:
    """How many records the margin withstands, the last one included that it does not."""
    known = closed_form(trained, phi)
    logits = logits_of(trained.weight, phi)
    margin = margins_of(logits)
    share = margin / (trained.loss.pair * trained.sensitivity.per_k * upper_lengths(phi))
    return replace(known, distance=np.floor(share).astype(np.int64) + 1)


def batches_by_index(patch: pytest.MonkeyPatch) -> None:
    """A record's batch is its position: one removal moves every later record."""

    def batches(self: BatchPlan, units: np.ndarray) -> Iterator[np.ndarray]:
        for _ in range(self.epochs):
            for index in range(self.count):
                yield np.flatnonzero(np.arange(len(units)) % self.count == index)

    patch.setattr(BatchPlan, "batches", batches)


class WarmExtremes(ReferenceExtremes):
    """c t - sum max(t - u, 0), with t from the step before instead of this step's c-th least: sound, and not nested."""

    before: dict[object, torch.Tensor]
    name: str

    @staticmethod
    def _keep(kept: torch.Tensor, fresh: torch.Tensor, count: int, largest: bool) -> torch.Tensor:
        return torch.cat([kept, fresh])

    def result(self) -> tuple[torch.Tensor, torch.Tensor]:
        counts = self.counts.tolist()
        greatest = [-self._bound(("greatest", k), -self._greatest[k], c) for k, c in enumerate(counts)]
        least = [self._bound(("least", k), self._least[k], c) for k, c in enumerate(counts)]
        return torch.stack(greatest), torch.stack(least)

    def _bound(self, side: tuple[str, int], values: torch.Tensor, count: int) -> torch.Tensor:
        now = values.sort(dim=0).values[max(count - 1, 0)]
        at = self.before.get((self.name, *side), now)
        self.before[(self.name, *side)] = now
        return count * at - (at - values).clamp(min=0).sum(dim=0)


def warm_start(patch: pytest.MonkeyPatch) -> None:
    """The selection's threshold is warm-started."""

    def selectors(self: TrainingRun, part: slice, batch: int, eligible: int) -> dict[str, WarmExtremes]:
        counts, before = self._counts(part, batch, eligible), self.__dict__.setdefault("warm", {})
        found = {}
        for name, p in self.network.collapse_point(self.point).items():
            found[name] = WarmExtremes(counts, tuple(p.shape), self.relation.capped, self.training.product)
            found[name].before, found[name].name = before, name
        return found

    patch.setattr(TrainingRun, "_selectors", selectors)


def shards_in_any_order(patch: pytest.MonkeyPatch) -> None:
    """Members take their records as they come: a sum in another order has other last digits, in every member at once."""

    def parts(records: Records, config: EnsembleConfig, which: object = None) -> list[Records]:
        home = shards(records.units, config)
        return [records.take(home == index) for index in range(config.members)]

    patch.setattr(ensemble_training, "parts", parts)


def one_member_counted(patch: pytest.MonkeyPatch) -> None:
    """Votes of any relation are certified as if one k changed one member."""

    def counted(labels: np.ndarray, distances: np.ndarray, classes: int, *, touches: int) -> Vote:
        return certified_vote(labels, distances, classes, touches=1)

    patch.setattr(ensemble_tasks, "certified_vote", counted)


def nothing(patch: pytest.MonkeyPatch) -> None:
    """The rules as they are."""


SPARSE = boxes(BINARY, ks=(0, 2, 5, 8))
FIRST_BATCH = Case("first batch", training={"loss": "binary_cross_entropy", "lr": 1.0, "decay": 50.0, "epochs": 1})
FIVE = ensemble(linear(HEAD), 5)
TWO = ensemble(linear(HEAD, "substitute"), 2, edits=linear(HEAD, "substitute", one_by_one))


def divided_by(normalizer: float | None) -> Setup:
    """One step of eight records, divided by a constant or by how many records there are."""
    batch = {"count": 1, "normalizer": normalizer}
    training = {"loss": "binary_cross_entropy", "lr": 0.05, "epochs": 1, "batch": batch}
    return boxes(Case("one step", n=8, training=training), ks=tuple(range(60)))


@dataclass(frozen=True)
class Broken:
    """A rule broken on purpose, beside the one it stands for; ``patch`` breaks what ``setup`` runs."""

    whole: Setup
    setup: Setup
    read: Read = distance
    whole_read: Read = distance
    patch: Break = nothing
    walk: dict[str, int] = field(default_factory=lambda: {"pairs": 6})


BROKEN = {
    "sum over all voters": Broken(ensemble(linear(HEAD), 9), ensemble(linear(HEAD), 9), published, walk={"pairs": 16}),
    "sparse grid read as distances": Broken(SPARSE, SPARSE, whole_read=steps),
    "batches by index": Broken(boxes(FIRST_BATCH), boxes(FIRST_BATCH), patch=batches_by_index),
    "warm-started selection": Broken(boxes(BINARY, "paper_privacy"), boxes(BINARY, "paper_privacy"), patch=warm_start),
    "normaliser from the number of records": Broken(divided_by(8.0), divided_by(None)),
    "floor + 1 for ceil - 1": Broken(linear(HEAD), linear(HEAD, certify=floor_plus_one)),
    "one member counted where a replaced record changes two": Broken(
        TWO, TWO, patch=one_member_counted, walk={"pairs": 30}
    ),
    "members whose rounding follows the order of records": Broken(
        FIVE, FIVE, patch=shards_in_any_order, walk={"pairs": 20}
    ),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_the_check_catches(broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = walk(broken.whole, pairs=2, read=broken.whole_read)
    assert whole.violations == 0, whole
    broken.patch(monkeypatch)
    caught = walk(broken.setup, **broken.walk, read=broken.read)
    assert caught.violations > 0, caught
