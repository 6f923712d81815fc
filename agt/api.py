"""The front door: train on arrays, certify, save, load. ``import agt`` offers all of it.

    model = agt.fit(x, y, declared=agt.Declared(classes=[0, 1], size=1000, features=True,
    settings=True)) model.certify(queries).stable_distance

It builds the same values that the command line builds from its configuration (problem.py), and
trains the same models (models/fitting.py), so every bound, condition and refusal is the same.
"""

import json
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from agt import facts
from agt.account import UNKNOWN_OWNER, DataOwner, Ledger, paying
from agt.arrays import ClassValues, Labels, PublicFlags, RecordIds, StableDistances, UnitIds
from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition, weaker_conditions
from agt.data.arrays import gathered
from agt.data.dataset import Dataset
from agt.data.erasure import without
from agt.data.frames import Features, as_pandas
from agt.data.labelled import Declared, dataset_of, in_order_of, names_of, query_records
from agt.data.table import Columns
from agt.distributed import group
from agt.errors import ConfigError, Doubtful, naming_settings
from agt.facts import Fact
from agt.fit_settings import FIT_ARGUMENTS, DataSettings, FitSettings
from agt.ledger.ledger import Exhausted
from agt.ledger.payer import NoPayer
from agt.mechanisms.claims import Accounting, Claim, Counting, neighbours_of
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.weights_mechanism import WeightsMechanism
from agt.models.description import describe, read_problem
from agt.models.ensemble import training_environment
from agt.models.erm import ErmKind
from agt.models.fitting import fit as fit_model, load as load_model
from agt.models.heads import CustomNetwork, HeadBuilder, HeadConfig
from agt.models.kind import CertificateKind
from agt.models.kinds import certificate_config, usual_certificate
from agt.models.model import Model
from agt.models.portable import Portable, check_printable
from agt.numeric import SeededRandomness, SystemRandomness
from agt.problem import Problem, Settings
from agt.relations import RELATIONS
from agt.release import LabelRelease, ReleaseTerms, WeightsRelease
from agt.settings import (
    USUAL_COUNTS,
    ComputeConfig,
    FeaturesConfig,
    KGridConfig,
    RelationConfig,
    RelationName,
    TrainingConfig,
    plain_of,
    validate,
)
from agt.store import Folder, NewFolder, as_json, read_digest
from agt.training.checkpoint import NOWHERE, checkpoint_folder
from agt.training.ensemble import EnsembleConfig
from agt.training.loop import OnProgress, Progress
from agt.unlearning.promise import Promise, Removal
from agt.unlearning.sentences import Remark

DESCRIPTION = "model.json"
SAMPLE, LARGE = 1_000, 20.0  # records that a new model is tried on; features that are called large
RETRAINED = Promise(
    "retrain", True, 0.0, 0.0, False, (Remark("retrained"), Remark("keys_recorded"))
)
COMMAND = "agt.save"  # what a saved model's manifest says wrote it


@dataclass(frozen=True, repr=False)
class Answers:
    """What a model says of queries, and how many people's data it would take to change that.

    Attributes:
        labels: [n] the nominal labels, as values of the classes.
        certificates: which queries are certified at which k, and the relation that says what one k
            counts.
        conditions: a to g of method.md section 3, and how each stands: what a privacy guarantee
            would need.
    """

    labels: Labels
    certificates: Certificates
    conditions: tuple[Condition, ...]

    def __repr__(self) -> str:
        return (
            f"agt.Answers: labels and stable distances of {len(self.labels)} queries, for the data "
            "owner\n"
            f"  {self.certificates.relation}, k = {grid_text(self.certificates.ks)}\n"
            f"  {conditions_text(self.conditions)}"
        )

    @property
    def stable_distance(self) -> StableDistances:
        """[n] int64: the largest k of the grid up to which no k people's data can change the
        label; 0 if there is none.
        """
        return self.certificates.stable_distance


@dataclass(frozen=True, repr=False)
class Published:
    """Labels that were released.

    Attributes:
        labels: [n] values of the classes; they may be published where ``claim.proved`` and not
            ``simulated``.
        claim: the guarantee of each, what it rests on, or why there is none.
        words: all that may be declarations of it, a line each.
        simulated: drawn from a seed, and so no private release.
    """

    labels: Labels
    claim: Claim
    words: tuple[str, ...]
    simulated: bool

    def __repr__(self) -> str:
        return (
            f"agt.Published: {len(self.labels)} labels by {self.claim.mechanism}\n  {self.words[0]}"
        )


@dataclass(frozen=True, repr=False)
class Fitted:
    """A trained model with its bounds.

    Attributes:
        model: the model itself, on class indices (models/model.py).
        classes: [C] the values that labels have, in the order of the classes.
        columns: how data frames are coded; None: they are not.
        recorded: conditions a to g as they stood when it was saved; None: it was trained just now.
        names: of the data frame's columns that were trained on; queries in a data frame have the
            same, in any order, unless ``columns`` picks them. Empty: there was no data frame.
        earlier: digests of the training data before records were erased from it (``unfit``).
        public: the training records were declared public (``Declared.public``).
        saved_owner: whose data it was, as ``save`` wrote it; None: it was trained just now.
    """

    model: Model
    classes: ClassValues
    columns: Columns | None = None
    recorded: tuple[Condition, ...] | None = None
    names: tuple[str, ...] = ()
    earlier: tuple[str, ...] = ()
    public: bool = False
    saved_owner: DataOwner | None = None

    def __repr__(self) -> str:
        problem = self.model.problem
        settings, size = problem.settings, problem.dataset.declared_size
        declared = "size not declared" if size is None else f"size {size:g} declared"
        shape = "x".join(map(str, problem.dataset.train.features.shape[1:]))
        members = settings.ensemble.members
        voting = f" of {members} members" if members > 1 else ""
        return (
            f"agt.Fitted: {len(self.classes)} classes, {shape} features, {declared}\n"
            f"  model: certificate {settings.certificate.name}{voting}, k = "
            f"{grid_text(settings.kgrid.ks)}\n"
            f"  relation: {neighbours_of(settings.relation)}\n"
            f"  {conditions_text(self.conditions)}"
        )

    @cached_property
    def owner(self) -> DataOwner:
        """Whose data it was trained on, as accounts of what is released know it.

        Raises:
            ConfigError: neither the model's records are there, nor what ``save`` wrote of them.
        """
        problem = self.model.problem
        if not len(problem.dataset.train):
            if self.saved_owner is None:
                raise ConfigError(
                    "model: this model has no training records, and no note of whose data it "
                    "was trained on: use the model that agt.load returns, unchanged"
                )
            return self.saved_owner
        relation = problem.settings.relation
        description = self._description | {"made": training_environment(problem)}
        if problem.settings.learner is not None:
            # Its code has no digest that is always another for other code: each model is one of its
            # own.
            description["learner"] = token_hex(16)
        return DataOwner.of_records(
            problem.dataset, relation, description, self.earlier, self.public
        )

    @property
    def _description(self) -> dict[str, Any]:
        values = {
            "classes": _plain(self.classes),
            "dtype": self.classes.dtype.str,
            "columns": plain_of(self.columns),
        }
        return values | describe(self.model.problem)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions a to g of method.md section 3, each proved, declared or not held."""
        now = self.model.conditions
        return now if self.recorded is None else weaker_conditions(self.recorded, now)

    @naming_settings(FIT_ARGUMENTS)
    def predict(self, x: Features) -> Labels:
        """Return the labels that the trained model gives, without any noise.

        For the data owner only: they depend on private records.

        Args:
            x: [n, ...] queries, made as the training features were; or a data frame, whose columns
                are found by name.

        Returns:
            [n] labels, as they were in ``y``.

        Raises:
            ConfigError, DataError: another width, or a NaN; or a data frame that has other columns,
                or looks like another population's than ``columns`` declares
                (``agt.data.population.population_mismatches``).
        """
        return self.classes[self.model.predict(self._queries(x))]

    @naming_settings(FIT_ARGUMENTS)
    def certify(self, x: Features, on_progress: OnProgress = lambda progress: None) -> Answers:
        """Return the label of each query, and how many people could change it.

        For the data owner only: stable distances depend on private records.

        Args:
            x: [n, ...] queries, as in ``predict``.
            on_progress: called after every block of queries, or after every member of an ensemble.

        Returns:
            ``labels`` [n], as ``predict`` returns them; ``stable_distance`` [n], the largest k of
            ``ks`` for which no k edits of the training records change the label; and
            ``conditions``, on which a privacy claim about the labels would rest.

        Raises:
            ConfigError, DataError: as ``predict``.
        """
        certificates = self.model.certify(self._queries(x), on_progress=on_progress)
        return Answers(self.classes[certificates.prediction], certificates, self.conditions)

    def release(
        self,
        x: Features,
        mechanism: Mechanism,
        *,
        accounting: Accounting = "rigorous",
        counting: Counting = "distance",
        seed: int | None = None,
        ledger: Ledger | str | Path | None = None,
        on_progress: OnProgress = lambda progress: None,
    ) -> Published:
        """Return labels that may be published, each under the mechanism's guarantee.

        Every call spends it anew. On a ledger, a question that was answered before is answered as
        it was then, and costs nothing. Where several processes share a model (``agt.together``),
        each call of each of them is a release of its own: let one of them release.

        Whether the labels are worth their budget is not judged here: how many of them noise changes
        depends on private stable distances, and no guarantee covers what that would tell. ``agt
        predict`` says it on the owner's terminal; in Python, the owner looks at ``certify``.

        Args:
            x: [n, ...] queries, as in ``predict``, which are taken to be public.
            mechanism: such as ``agt.RandomizedResponse(eps=1.0, classes=10)``.
            accounting: rigorous refuses where a condition does not hold; paper runs as published,
                and says what it proves.
            counting: distance, or index for a grid that skips values of k.
            seed: draw from it instead of the operating system's generator: a simulation, which
                guarantees nothing, and which no ledger counts.
            ledger: or its path: that pays, before anything is drawn. To name it declares that the
                model's units are people of its population. None: no ledger does; a second release
                about the same people warns (``PrivacySumWarning``).
            on_progress: called as queries are certified.

        Raises:
            ConfigError: the claim is refused, by condition, or the mechanism does not fit the
                model.
            DataError: as ``predict``; nothing was drawn.
            Exhausted: the ledger's budget does not hold them all. Nothing was drawn, unless another
                process took a part of the budget at the same moment: what was drawn then is
                remembered, and repeated when it is asked again.
            PrivacySumError: ``agt.accounting("strict")``, and something was released about some of
                these people.
        """
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int | np.integer)):
            raise ConfigError(
                f"seed={seed!r}: give a whole number of at least 0; or None, for a private "
                "release (a seed makes only a simulation)"
            )
        if seed is not None and ledger is not None:
            raise ConfigError(
                "seed and ledger cannot be given together, because a release from a seed is "
                "only a simulation and does not spend budget: leave one of them out"
            )
        with naming_settings(FIT_ARGUMENTS):
            queries = self._queries(x)
            terms = ReleaseTerms(
                conditions=self.conditions,
                accounting=accounting,
                counting=counting,
                randomness=SystemRandomness() if seed is None else SeededRandomness(int(seed)),
            )
            # because what it refuses is admitted to no ledger
            LabelRelease.judged(self.model, queries, mechanism, terms)
            with (
                nullcontext(NoPayer()) if seed is not None else paying(ledger, self.owner) as payer
            ):
                release = LabelRelease.judged(
                    self.model, queries, mechanism, replace(terms, payer=payer)
                )
                self._doubt(release.wanted_claim)
                reservation = release.reserve_all()
                labels = gathered(release.draw(on_progress), len(queries))
                claim = release.reserved_claim
        if reservation.size < release.wanted:
            raise Exhausted(
                f"ledger={ledger}: the budget covered only {reservation.size} of the "
                f"{release.wanted} labels that were requested; these are paid for and stored "
                "in the ledger"
            )
        return Published(self.classes[labels], claim, tuple(claim.lines()), release.simulated)

    def release_weights(
        self,
        mechanism: WeightsMechanism,
        delta: float = 0.0,
        *,
        ledger: Ledger | str | Path | None = None,
    ) -> Portable:
        """Release the weights once, for any number of queries.

        Every call draws new noise and spends the mechanism's guarantee again.

        Args:
            mechanism: such as ReleaseWeights (agt/mechanisms/weights.py), or any other
                ``WeightsMechanism``.
            delta: at which the privacy loss is shown; 0: the mechanism's own, or one that is
                chosen.
            ledger: as in ``release``.

        Returns:
            The weights with everything that answers from them: ``labels(queries)`` gives class
            indices [n], ``words`` says what is guaranteed, ``save(folder)`` writes them.

        Raises:
            ConfigError: a condition does not hold, no proof of the mechanism covers this model, or
                a class has control characters.
            AgtError: the solver missed its tolerance: nothing is released.
            Exhausted, PrivacySumError: as ``release``.
        """
        if not isinstance(mechanism, WeightsMechanism):
            raise ConfigError(
                f"mechanism: {mechanism!r} does not release weights: give an object that "
                "does, such as agt.ReleaseWeights(mu=1.0)"
            )
        if isinstance(delta, bool) or not isinstance(delta, Real):
            raise ConfigError(f"delta={delta!r}: give a number")
        with naming_settings(FIT_ARGUMENTS):
            terms = ReleaseTerms(
                conditions=self.conditions, delta=delta, randomness=SystemRandomness()
            )
            # because what it refuses is admitted to no ledger
            WeightsRelease.judged(self.model, mechanism, terms)
            with paying(ledger, self.owner) as payer:
                release = WeightsRelease.judged(self.model, mechanism, replace(terms, payer=payer))
                check_printable(self.model.problem.dataset, release.claim.lines())
                self._doubt(release.claim)
                release.reserve()
                released = release.draw()
                lines = release.reserved_claim.lines()
                return replace(
                    Portable.from_release(release.head, released, {}, lines), slope=released.slope
                )

    def _doubt(self, claim: Claim) -> None:
        for line in claim.doubts(self.model.problem.dataset.declared_size):
            warnings.warn(line, Doubtful, stacklevel=3)

    @naming_settings(FIT_ARGUMENTS)
    def unfit(self, ids: Iterable[object]) -> tuple["Fitted", Removal]:
        """Train again without some people's records.

        Args:
            ids: of the people: ``units`` as they were given to ``fit``; where none were given, the
                records' ``ids``.

        Returns:
            (the model that was trained on the records that remain, what is promised of it). This
            model is not changed.

        Raises:
            ConfigError: no such person, a model that was loaded and so has no records, or noise of
                its own.
            DataError: an id is no whole number or text; constants were read off the records; what
                remains cannot be trained on; or memory-mapped records were edited after training.
        """
        started, problem = time.perf_counter(), self.model.problem
        if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
            raise ConfigError(f"ids={ids!r}: give a list of ids")
        named = list(ids)
        train, asked = problem.dataset.train, set(names_of("ids", named, len(named)).tolist())
        unknown = sorted(asked - set(train.units.tolist()))
        if unknown or not asked:
            raise ConfigError(
                f"ids={unknown[:3]}: none of the {len(train)} training records has these ids: "
                "give ids that were given to agt.fit"
            )
        if refusal := problem.settings.certificate.retraining_refusal:
            raise ConfigError(refusal)
        gone = np.isin(train.units, sorted(asked))
        rest = replace(
            problem, dataset=without(problem.dataset, gone, problem.dataset.preprocessing)
        )
        problem.dataset.check_unchanged()
        earlier = (*self.earlier, problem.dataset.digest)
        left = replace(
            self, model=fit_model(rest, _silent, NOWHERE), recorded=None, earlier=earlier
        )
        count = int(gone.sum())
        facts = {
            "people": len(asked),
            "records_before": len(train),
            "records_after": len(train) - count,
        }
        steps = (Remark("trained_from_scratch", {"records": len(train) - count}),)
        return left, Removal(RETRAINED, count, time.perf_counter() - started, facts, steps)

    @naming_settings(FIT_ARGUMENTS)
    def save(self, folder: str | Path) -> str:
        """Write the model into a new folder, from which ``load`` reads it back.

        The folder is for the data owner only. Of the training data it holds the public constants,
        the digest (by which ledgers know it), the number of records where no size was declared,
        and what the model learnt, but no record.

        Args:
            folder: is made; it may exist if it is empty.

        Returns:
            The digest of the folder. If it is kept elsewhere, ``load(folder, digest)`` accepts
            this model and no other.

        Raises:
            ConfigError: the folder is not empty, or labels are neither numbers nor text.
            OSError: it cannot be written.
        """
        store = NewFolder(Path(folder), COMMAND)
        known = {
            "feature_names": self.names,
            "conditions": [condition.as_json() for condition in self.conditions],
            "owner": self.owner.as_json,
        }
        store.write(DESCRIPTION, as_json(known | self._description))
        self.model.save(store)
        return store.finish()

    def _queries(self, x: Features) -> np.ndarray:
        x = as_pandas(x)
        if isinstance(x, pd.DataFrame):
            x = in_order_of(self.names, x) if self.columns is None else self.columns.code_queries(x)
        features, shape = (
            query_records(x).features,
            self.model.problem.dataset.train.features.shape[1:],
        )
        if features.shape[1:] != shape:
            raise ConfigError(
                f"queries have {features.shape[1:]} features each, and the model was trained on "
                f"{shape}"
            )
        return features


def fit(
    x: Features,
    y: Labels,
    *,
    ids: RecordIds | None = None,
    units: UnitIds | None = None,
    public: PublicFlags | None = None,
    declared: Declared | None = FitSettings.declared,
    columns: Columns | str | Path | None = FitSettings.columns,
    network: Sequence[int] | nn.Sequential = FitSettings.network,
    activation: str | None = FitSettings.activation,
    certificate: str | CertificateKind | Mapping[str, Any] | None = FitSettings.certificate,
    features: str | Mapping[str, Any] | None = FitSettings.features,
    relation: RelationName = FitSettings.relation,
    radius: float | None = FitSettings.radius,
    unit_rows: int = FitSettings.unit_rows,
    ks: int | Iterable[int] = FitSettings.ks,
    members: int = FitSettings.members,
    learner: Any = FitSettings.learner,
    vote: str = FitSettings.vote,
    margin_clip: float | None = FitSettings.margin_clip,
    compute: Mapping[str, Any] | None = FitSettings.compute,
    checkpoint: str | Path | None = FitSettings.checkpoint,
    on_progress: OnProgress | None = FitSettings.on_progress,
    caution: float | None = FitSettings.caution,
    loss: str | None = FitSettings.loss,
    epochs: int | None = FitSettings.epochs,
    lr: float | None = FitSettings.lr,
    clip: float | None = FitSettings.clip,
    batches: int | None = FitSettings.batches,
    weight_decay: float | None = FitSettings.weight_decay,
    dtype: str | None = FitSettings.dtype,
    seed: int | None = FitSettings.seed,
    **training: Any,
) -> Fitted:
    """Train a model together with bounds on what it would have been on every neighbouring dataset.

    Returns the trained model, which labels queries (``predict``), says how many people could change
    a label (``certify``), and releases labels or weights with differential privacy (``release``,
    ``release_weights``).

    Args:
        x: [n, ...] features; or a data frame, of numbers or with ``columns``, whose names queries
            are matched by.
        y: [n] labels: numbers or text.
        ids, units, public: [n] names, people and public flags of the records (data/labelled.py).
        declared: what you say of data and settings, for claims of privacy; None: nothing.
        columns: which columns of a data frame are features, and the public constants that code
            them, or the dataset file that holds them.
        network: widths of hidden layers (none: linear), or an ``nn.Sequential`` of your own, which
            is left as it is. A network needs ``epochs``, ``lr`` and ``clip``: no defaults serve
            one.
        activation: of hidden layers given by width; None: relu.
        certificate: box (any network), stability, erm or removal (linear, in closed form), votes
            (of ``members`` small models), or its settings (models/kinds.py); None: stability for a
            linear head, box for any other, votes where a ``learner`` is given.
        learner: what each member of votes is: ridge, logistic, any estimator that is deterministic,
            or a function (x, y) -> what labels queries (training/learners.py); None: the
            certificate's.
        features: public features in front of a head: relu, landmarks or scattering, or settings of
            ``FeaturesConfig`` such as ``{"map": "landmarks", "public": "train"}``; None: x itself,
            or the certificate's.
        relation: which datasets are neighbours (agt/relations/), and so what one k counts.
        radius: by how much each feature may move, under relation=perturb.
        unit_rows: public cap on the rows of one unit.
        ks: bounds for every k from 0 to this, or for the values listed.
        members: trained on disjoint shards, answering by certified vote; 1: no ensemble, and of
            votes the recipe's number.
        vote: of their labels, or of their margins (two classes), each clipped to ``margin_clip``, a
            public constant.
        compute: settings of ``ComputeConfig`` by name, such as ``{"device": "cuda"}``.
        checkpoint: a folder of its own for what training has reached: the same call goes on from
            there if the process was killed, and ends with the same bits (training/checkpoint.py).
            It is gone when this returns. None: none.
        on_progress: called as training goes on; None: nothing is.
        caution: moves a linear head's settings along the recipe's curve
            (training/strength.py); None: 1.
        loss, epochs, lr, clip, batches, weight_decay, dtype, seed: of training; None: a linear
            head's recipe, or ``TrainingConfig``'s default.
        training: other settings of ``TrainingConfig`` by name, such as ``momentum`` or
            ``batch={"n_max": 500}``.

    Raises:
        ConfigError: a setting that is wrong, or that no proof covers.
        DataError: data that cannot be used.
        UnsoundError: a bound became NaN, infinite or inverted.
    """
    # every argument that is a setting, by its name
    settings = FitSettings.named(locals())
    with naming_settings(FIT_ARGUMENTS):
        model = fit_with(settings, x, y, ids, units, public)
        doubts = doubts_of(model, x)
    for doubt in doubts:
        warnings.warn(doubt, Doubtful, stacklevel=2)
    return model


def fit_with(
    settings: FitSettings,
    x: Features,
    y: Labels,
    ids: RecordIds | None,
    units: UnitIds | None,
    public: PublicFlags | None,
) -> Fitted:
    """Train as ``fit`` does, without its warnings; errors name the command line's keys."""
    x = as_pandas(x)
    neighbours = validate(RelationConfig, settings.part("relation"), "relation")
    data = _Data.of(x, y, settings, neighbours, ids, units, public)
    training = settings.given_training
    head = _head(settings)
    kind = (
        _certificate(settings.certificate or "votes")
        if settings.certificate or settings.learner is not None
        else usual_certificate(head)
    )
    if settings.features is not None:
        kind = kind.with_features(_features(settings.features))
    own = None
    if settings.learner is not None:
        kind, own = kind.with_learner(settings.learner)
    _check_network_settings(head, kind, training)
    voting = settings.part("ensemble")
    size = data.declared.size
    if voting.get("members") == 1 and size is not None:
        voting["members"] = kind.usual_members(size, training.get("caution", 1.0), neighbours.name)
    ensemble = validate(EnsembleConfig, voting, "ensemble")
    if kind.has_member_models(ensemble) and size is None:
        raise ConfigError(
            "members: an ensemble needs declared.size, a public number of records, because "
            "all members use the same normaliser, which must not depend on the data"
        )
    ks = settings.ks
    kgrid = validate(
        KGridConfig, {"values": tuple(ks)} if isinstance(ks, Iterable) else {"max": ks}, "kgrid"
    )
    problem = data.problem(
        neighbours,
        kind,
        training,
        model=head,
        kgrid=kgrid,
        compute=validate(ComputeConfig, settings.compute or {}, "compute"),
        ensemble=ensemble,
        learner=own,
    )
    names = tuple(map(str, x.columns)) if isinstance(x, pd.DataFrame) else ()
    trained = _kept(problem, settings.on_progress or _silent, settings.checkpoint)
    return Fitted(trained, data.classes, data.columns, names=names, public=data.declared.public)


def untrained_head(settings: DataSettings, x: Features, y: Labels, units: UnitIds | None) -> Fitted:
    """The linear head that weights are released from (``Fitted.release_weights``), which train them
    themselves.

    Errors as of ``fit``, but they name the command line's keys.
    """
    neighbours = validate(RelationConfig, settings.part("relation"), "relation")
    data = _Data.of(as_pandas(x), y, settings, neighbours, units=units)
    features = settings.features
    certificate = ErmKind() if features is None else ErmKind(features=_features(features))
    problem = data.problem(neighbours, certificate, {}, model=HeadConfig())
    return Fitted(
        certificate.untrained_head(problem), data.classes, data.columns, public=data.declared.public
    )


@dataclass(frozen=True)
class _Data:
    """Records as they are trained on, the values of their classes, and what was said of them."""

    dataset: Dataset
    classes: np.ndarray
    declared: Declared
    columns: Columns | None

    @classmethod
    def of(
        cls,
        x: Any,
        y: np.ndarray,
        settings: DataSettings,
        relation: RelationConfig,
        ids: np.ndarray | None = None,
        units: np.ndarray | None = None,
        public: np.ndarray | None = None,
    ) -> "_Data":
        declarations = Declared() if settings.declared is None else settings.declared
        if not isinstance(declarations, Declared):
            raise ConfigError(f"declared: expected agt.Declared(...), got {declarations!r}")
        coder = None if settings.columns is None else Columns.of(settings.columns, units)
        flips = RELATIONS[relation.name].label_free_ids
        coding = () if coder is None else coder.facts
        coded = x if coder is None else coder(x)
        dataset, classes = dataset_of(coded, y, declarations, ids, units, public, flips, coding)
        return cls(dataset, classes, declarations, coder)

    def problem(
        self,
        relation: RelationConfig,
        certificate: CertificateKind,
        training: dict[str, Any],
        **parts: Any,
    ) -> Problem:
        usual: dict[str, Any] = {
            "kgrid": KGridConfig(max=50),
            "compute": ComputeConfig(),
            "ensemble": EnsembleConfig(),
        }
        settings = Settings(
            training=_training(certificate, training),
            relation=relation,
            certificate=certificate,
            noise=None,
            choices=_choices(self.declared.settings),
            **(usual | parts),
        )
        return Problem(self.dataset, settings)


def doubts_of(model: Fitted, x: Features) -> list[str]:
    """Return what looks wrong with features or answers, for the owner of the records.

    Args:
        model: trained just now.
        x: the features, as they were given to ``fit``.
    """
    noted = [] if model.columns is None else model.columns.notes(as_pandas(x))
    return [*noted, *_doubts(model)]


def _doubts(model: Fitted) -> Iterator[str]:
    """What looks wrong with features or answers, for the owner of the records."""
    train = model.model.problem.dataset.train
    some = train.take(np.linspace(0, len(train) - 1, min(len(train), SAMPLE), dtype=np.int64))
    reach = float(np.abs(some.features).max(initial=0))
    if reach > LARGE:
        yield (
            f"the largest feature is {reach:g} in absolute value: divide the features by "
            "public constants so that they are about 1 at most, or encode the columns of a "
            "data frame with columns=agt.Columns(...)"
        )
    seen = np.bincount(some.labels, minlength=len(model.classes))
    answered = np.bincount(model.model.predict(some.features), minlength=len(model.classes))
    never = model.classes[(answered == 0) & (seen > len(some) / (2 * len(seen)))].tolist()
    if never:
        yield (
            f"on {len(some)} training records, the model never predicts the classes {never}, "
            "although they are common, so it is of little use as it is"
        )


def _kept(problem: Problem, on_progress: OnProgress, folder: str | Path | None) -> Model:
    """The model, trained with what training has reached kept in a folder, if one is given."""
    if folder is None or group().rank:  # of several processes the first keeps them for all
        return fit_model(problem, on_progress, NOWHERE)
    about = {**describe(problem), **training_environment(problem), "data": problem.dataset.digest}
    with checkpoint_folder(
        Path(folder), about, problem.settings.compute.checkpoint_seconds
    ) as kept:
        return fit_model(problem, on_progress, kept)


@naming_settings(FIT_ARGUMENTS)
def load(
    folder: str | Path, digest: str | None = None, compute: Mapping[str, Any] | None = None
) -> Fitted:
    """Read back a model that ``Fitted.save`` wrote, and verify every file of it.

    The model has no training records, so it cannot ``unfit``.

    Args:
        folder: the model's.
        digest: what ``save`` returned, with or without ``sha256:``; None: any model is accepted.
        compute: as in ``fit``.

    Raises:
        ConfigError: no such model, or a file that is not what was written.
        UnsoundError: bounds or constants that contradict themselves.
    """
    try:
        wanted = None if digest is None else read_digest(digest)
    except ValueError:
        raise ConfigError(
            f"digest={digest}: expected sha256: and 64 hexadecimal digits, as Fitted.save returns "
            "them"
        ) from None
    shelf = Folder.open(Path(folder), COMMAND, wanted)
    content, how = shelf.read(DESCRIPTION), validate(ComputeConfig, compute or {}, "compute")
    try:
        node = json.loads(content)
        problem, recorded = (
            read_problem(node, how),
            tuple(map(Condition.from_json, node["conditions"])),
        )
        classes = np.array(node["classes"], dtype=node["dtype"])
        columns = (
            None if node.get("columns") is None else validate(Columns, node["columns"], "columns")
        )
        owner = DataOwner.read(
            node.get("owner", UNKNOWN_OWNER),
            problem.dataset,
            problem.settings.relation,
            shelf.manifest.digest,
        )
        if classes.shape != (problem.classes,):
            raise ValueError(
                f"the number of class names ({classes.size}) differs from the number of "
                f"classes of the model ({problem.classes})"
            )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"{shelf.folder / DESCRIPTION}: cannot be read ({error}); perhaps another version "
            "of agt saved the model: load it with that version, or fit it again"
        ) from None
    names = tuple(node.get("feature_names", ()))
    return Fitted(load_model(problem, shelf), classes, columns, recorded, names, saved_owner=owner)


def grid_text(ks: Sequence[int]) -> str:
    """Return the values of k, shortly."""
    if len(ks) > 1 and list(ks) == list(range(ks[0], ks[-1] + 1)):
        return f"{ks[0]} to {ks[-1]}"
    return ", ".join(map(str, ks[:3])) + (f" to {ks[-1]}" if len(ks) > 3 else "")


def conditions_text(conditions: Sequence[Condition]) -> str:
    """Return which conditions are proved, declared, and not met, by letter."""
    groups = {"proved": "proved", "declared": "declared", "not held": "not met"}
    letters = {
        name: " ".join(each.letter for each in conditions if each.evidence.standing == standing)
        for standing, name in groups.items()
    }
    listed = "; ".join(f"{name}: {found or 'none'}" for name, found in letters.items())
    return f"conditions {listed}"


def _silent(progress: Progress) -> None:
    """Progress that nobody asked for."""


def _check_network_settings(
    head: HeadBuilder, certificate: CertificateKind, given: Mapping[str, Any]
) -> None:
    """Raise ConfigError, naming what is missing, where a network would train by default
    settings.
    """
    missing = [f"{name}=" for name in certificate.missing_training(head, given)]
    if missing:
        raise ConfigError(
            "network: the default settings are only for linear heads: use network=(), or "
            f"choose {', '.join(missing)} on public data and give them"
        )


def _certificate(certificate: str | CertificateKind | Mapping[str, Any]) -> CertificateKind:
    if isinstance(certificate, CertificateKind):
        return certificate
    return certificate_config(
        {"name": certificate} if isinstance(certificate, str) else certificate
    )


def _features(given: str | Mapping[str, Any]) -> FeaturesConfig:
    """A map's settings, its count the usual one unless given."""
    named = {"map": given} if isinstance(given, str) else given
    usual = USUAL_COUNTS.get(str(named.get("map"))) if isinstance(named, Mapping) else None
    return validate(
        FeaturesConfig,
        named if usual is None else {"count": usual, **named},
        "certificate.features",
    )


def _head(settings: FitSettings) -> HeadBuilder:
    network = settings.network
    if isinstance(network, nn.Module):
        return CustomNetwork.from_network(network)
    if isinstance(network, str) or not isinstance(network, Iterable):
        raise ConfigError(
            f"network={network!r}: give the widths of hidden layers, such as (64, 64), or an "
            "nn.Sequential"
        )
    return validate(HeadConfig, settings.part("model") | {"hidden": tuple(network)}, "model")


def _training(certificate: CertificateKind, given: dict[str, Any]) -> TrainingConfig:
    """The settings given, on defaults that suit the certificate: the recipe's where there is one
    (training/strength.py).
    """
    for key in ("chosen_on", "chosen_for"):
        if key in given:
            raise ConfigError(
                f"{key}: if every setting was chosen on public data, declare that with "
                "declared=agt.Declared(settings=True)"
            )
    return validate(TrainingConfig, {**certificate.training_defaults, **given}, "training")


def _choices(declarations: bool) -> Fact:
    if declarations:
        return facts.declared("settings_chosen_on_public", setting="declared.settings=True")
    return facts.not_held("settings_undeclared", setting="declared.settings=True")


def _plain(classes: np.ndarray) -> list[Any]:
    values: list[Any] = classes.tolist()
    if classes.dtype.kind not in "biufUO" or not all(
        isinstance(value, str | int | float) for value in values
    ):
        raise ConfigError(f"labels of type {classes.dtype} cannot be saved: use numbers or text")
    return values
