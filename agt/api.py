"""The Python interface: train on arrays or data frames, certify, release, save and load.

    model = agt.fit(x, y)
    model.certify(queries).stable_distance

``import agt`` offers all of it. The command line builds the same problems (problem.py) and trains
the same models (models/fitting.py), so bounds, conditions and refusals agree.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal

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
from agt.data.records import Records
from agt.data.table import Columns
from agt.data.target import NumericTarget, declared_numbers
from agt.distributed import group
from agt.errors import ConfigError, Doubtful, naming_settings, warn_user
from agt.facts import Fact
from agt.fit_settings import FIT_ARGUMENTS, DataSettings, FitSettings
from agt.ledger.ledger import Exhausted
from agt.ledger.payer import NoPayer, Payer
from agt.mechanisms.claims import Claim, describe_neighbours
from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.weights_mechanism import WeightsMechanism
from agt.models.description import describe, read_problem
from agt.models.doubts import count_certified, sample_records
from agt.models.ensemble import training_environment
from agt.models.erm import ErmKind
from agt.models.fitting import fit as fit_model, load as load_model
from agt.models.heads import CustomNetwork, HeadBuilder, HeadConfig
from agt.models.kind import CertificateKind
from agt.models.kinds import certificate_config, usual_certificate
from agt.models.model import Model
from agt.models.number_head import NumberHeadKind
from agt.models.number_votes import NumberCertificates, NumberVotes, ToleranceDistances
from agt.models.portable import Portable, check_printable
from agt.numeric import SeededRandomness, SystemRandomness
from agt.problem import Problem, Settings
from agt.relations import RELATIONS
from agt.release import LabelRelease, ReleaseTerms, WeightsRelease
from agt.settings import (
    USUAL_COUNTS,
    Accounting,
    ComputeConfig,
    Counting,
    FeaturesConfig,
    KGridConfig,
    RelationConfig,
    RelationName,
    TrainingConfig,
    plain_of,
    validate,
)
from agt.store import Folder, NewFolder, as_json, read_digest
from agt.training.checkpoint import NO_CHECKPOINTS, checkpoint_folder
from agt.training.learners import Learner
from agt.training.loop import OnProgress, Progress
from agt.training.settings import EnsembleConfig
from agt.unlearning.promise import Promise, Removal
from agt.unlearning.sentences import Remark

DESCRIPTION = "model.json"
"""The file of a saved model with its settings, classes and conditions."""
LARGE_FEATURE = 20.0
"""Features above this in absolute value cause a warning."""
RETRAINED = Promise(
    method="retrain",
    exact=True,
    eps=0.0,
    delta=0.0,
    adaptive=False,
    terms=(Remark("retrained"), Remark("keys_recorded")),
)
"""What ``Fitted.unfit`` promises: exact removal, because the model was trained again."""
COMMAND = "agt.save"
"""The program that the manifest of a saved model names as its writer."""


@dataclass(frozen=True, repr=False)
class Answers:
    """The labels of n queries, and how many people's data it would take to change each of them.

    ``Fitted.certify`` returns it. Everything here depends on private records, so it is for the data
    owner only.

    Attributes:
        labels: [n] the labels, as values of ``Fitted.classes``.
        certificates: for each k, which labels k edits of the training records cannot change; and
            the relation, which defines one edit (``certificates.relation``).
        conditions: the seven conditions of a privacy claim, a to g (docs/method.md), in this order,
            each proved, declared by the user, or not met.
    """

    labels: Labels
    certificates: Certificates
    conditions: tuple[Condition, ...]

    def __repr__(self) -> str:
        """Return a short text: the number of queries, the relation, the grid, the conditions."""
        query_count = len(self.labels)
        relation = self.certificates.relation
        k_values = grid_text(self.certificates.ks)
        conditions = conditions_text(self.conditions)
        return (
            f"agt.Answers: labels and stable distances of {query_count} queries (private, only "
            f"for the data owner)\n  relation {relation}, k = {k_values}\n  {conditions}"
        )

    @property
    def stable_distance(self) -> StableDistances:
        """[n] int64: the largest number k of edits that is proved unable to change the label.

        An edit is what the relation counts, by default one person's records added or removed. 0
        means that nothing is proved even for one edit. With ``certificate="box"`` no distance
        exceeds the last k of the grid.
        """
        return self.certificates.stable_distance


@dataclass(frozen=True, repr=False)
class NumberAnswers(Answers):
    """The numbers that answer n queries, and the intervals that edits of the data cannot leave.

    ``Fitted.certify`` returns it for numeric labels. Everything here depends on private records, so
    it is for the data owner only.

    Attributes:
        labels: [n] float64, the answers.
        certificates: the intervals for every k, and the relation, which defines one edit.
        conditions: the seven conditions of a privacy claim, a to g (docs/method.md), in this order,
            each proved, declared by the user, or not met.
    """

    certificates: NumberCertificates  # type: ignore[assignment]  # numbers have intervals

    @property
    def stable_distance(self) -> StableDistances:
        """Raise ConfigError: numbers have intervals, not stable distances."""
        raise ConfigError(
            "stable_distance only exists for labels. For answers that are numbers, use bounds(k) "
            "or within(tolerance)"
        )

    def __repr__(self) -> str:
        """Return a short text: the number of queries, the relation, the conditions."""
        conditions = conditions_text(self.conditions)
        return (
            f"agt.NumberAnswers: {len(self.labels)} numbers and their intervals (private, only for "
            f"the data owner)\n  relation {self.certificates.relation}, every k\n  {conditions}"
        )

    def bounds(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper ends [n] of what k edits of the records can make of answers.

        Args:
            k: the number of edits (people added or removed, by default), at least 0.
        """
        return self.certificates.bounds(k)

    def width(self, k: int) -> np.ndarray:
        """Return the widths [n] of the intervals that k edits of the records cannot leave."""
        return self.certificates.width(k)

    def within(self, tolerance: float) -> ToleranceDistances:
        """Return up to how many edits each answer stays within a tolerance; never release it.

        Args:
            tolerance: in the unit of the labels, at least 0.
        """
        return self.certificates.within(tolerance)


@dataclass(frozen=True, repr=False)
class Published:
    """Labels released with differential privacy, as ``Fitted.release`` returns them.

    Attributes:
        labels: [n] the released labels, as values of ``Fitted.classes``, or numbers. They may be
            published if ``claim.proved`` is True and ``simulated`` is False.
        claim: the privacy guarantee (``claim.guarantee``, for each label) and what it rests on; or
            why there is none (``claim.reasons``).
        words: everything that may be said about the release, a sentence each, the guarantee first.
        simulated: True if the noise came from a seed. Then the labels are not private.
    """

    labels: Labels
    claim: Claim
    words: tuple[str, ...]
    simulated: bool

    def __repr__(self) -> str:
        """Return a short text: the number of labels, the mechanism, the guarantee."""
        label_count = len(self.labels)
        mechanism = self.claim.mechanism
        guarantee = self.words[0]
        return f"agt.Published: {label_count} labels released by {mechanism}\n  {guarantee}"


@dataclass(frozen=True, repr=False)
class Fitted:
    """A trained model, as ``agt.fit`` and ``agt.load`` return it.

    ``predict`` and ``certify`` label queries for the data owner. ``release`` and
    ``release_weights`` return what may be published. ``unfit`` removes people's records. ``save``
    writes the model.

    Attributes:
        model: the trained model, whose labels are indices into ``classes``.
        classes: [C] the values that labels have, in the order of their indices; none if they are
            numbers.
        columns: how the columns of a data frame become features; None: features are numbers as
            given.
        recorded: the conditions a to g of a privacy claim when the model was saved; None: it was
            not loaded.
        names: the columns of the data frame that the model was trained on. A data frame of queries
            must have the same, in any order, unless ``columns`` selects them. Empty: the model was
            trained on an array.
        earlier: the digests of the training data before ``unfit`` removed records from it.
        public: True if the training records were declared public (``Declared.public``).
        saved_owner: whose data the model was trained on, as ``save`` wrote it; None: the model was
            not loaded.
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
        """Return a short text: classes, features, certificate, grid, relation, conditions."""
        problem = self.model.problem
        settings = problem.settings
        size = problem.dataset.declared_size
        declared = "size not declared" if size is None else f"size {size:g} declared"
        shape = "x".join(map(str, problem.dataset.train.features.shape[1:]))
        members = settings.ensemble.members
        voting = f" of {members} members" if members > 1 else ""
        numbers = problem.dataset.target.numeric
        labels = f"{len(self.classes)} classes"
        if numbers is not None:
            labels = f"numbers from {numbers.low:g} to {numbers.high:g}"
        certificate = settings.certificate.name
        k_values = grid_text(settings.kgrid.ks)
        neighbours = describe_neighbours(settings.relation)
        conditions = conditions_text(self.conditions)
        return (
            f"agt.Fitted: {labels}, {shape} features, {declared}\n  model: "
            f"certificate {certificate}{voting}, k = {k_values}\n  relation: {neighbours}\n  "
            f"{conditions}"
        )

    @cached_property
    def owner(self) -> DataOwner:
        """Whose data the model was trained on: what a ledger needs to add up privacy losses.

        Raises:
            ConfigError: the model has no training records, and ``load`` found no owner either.
        """
        problem = self.model.problem
        if not len(problem.dataset.train):
            if self.saved_owner is None:
                raise ConfigError(
                    "model: agt cannot tell whose privacy budget a release of this model would "
                    "spend, because its data are unknown. Use a model as agt.fit or agt.load "
                    "returned it, unchanged"
                )
            return self.saved_owner
        relation = problem.settings.relation
        description = self._description | {"made": training_environment(problem)}
        if problem.settings.learner is not None:
            # Two learners with equal settings may differ in their code. So each model counts as a
            # run of its own.
            description["learner"] = token_hex(16)
        return DataOwner.from_records(
            problem.dataset, relation, description, self.earlier, self.public
        )

    @property
    def _description(self) -> dict[str, Any]:
        """The settings, classes and coding of the model, as model.json holds them."""
        values = {
            "classes": _plain(self.classes),
            "dtype": self.classes.dtype.str,
            "columns": plain_of(self.columns),
        }
        return values | describe(self.model.problem)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The seven conditions of a privacy claim, a to g (docs/method.md), in this order.

        Each is proved, declared by the user, or not met. For a loaded model, each is the weaker of
        what was recorded and what this version of agt finds.
        """
        now = self.model.conditions
        return now if self.recorded is None else weaker_conditions(self.recorded, now)

    @naming_settings(FIT_ARGUMENTS)
    def predict(self, x: Features) -> Labels:
        """Return the labels of queries, without any noise.

        They depend on private records, so they are for the data owner only. ``release`` returns
        labels that may be published.

        Args:
            x: [n, ...] the queries, with features made as those of the training records were; or a
                data frame, whose columns are matched by name.

        Returns:
            [n] labels, with values as in the ``y`` of ``agt.fit``.

        Raises:
            ConfigError: a query has the wrong shape.
            DataError: a value is NaN; or a data frame has other columns than the training data, or
                its values do not fit what ``columns`` declares.
        """
        answers = self.model.predict(self._queries(x))
        return answers if self.model.number_votes is not None else self.classes[answers]

    @naming_settings(FIT_ARGUMENTS)
    def certify(self, x: Features, on_progress: OnProgress = lambda progress: None) -> Answers:
        """Return the label of each query, and how many people's data it takes to change it.

        Stable distances depend on private records, so they are for the data owner only.

            answers = model.certify(queries)
            robust = answers.stable_distance >= 5  # [n] bool

        Args:
            x: [n, ...] the queries, with features made as those of the training records were; or a
                data frame, whose columns are matched by name.
            on_progress: called with an ``agt.training.loop.Progress`` (steps done, steps in all)
                after every block of queries, or after every member of an ensemble.

        Returns:
            An object with ``labels`` [n], equal to those of ``predict``; ``stable_distance`` [n]
            int64, the largest number of edits (people added or removed, by default) that is proved
            unable to change the label; and ``conditions``, those that a privacy claim about the
            labels would rest on. For numeric labels an ``agt.NumberAnswers`` with ``labels``,
            ``bounds(k)`` and ``width(k)``.

        Raises:
            ConfigError: a query has the wrong shape.
            DataError: a value is NaN; or a data frame has other columns than the training data, or
                its values do not fit what ``columns`` declares.
        """
        votes = self.model.number_votes
        if votes is not None:
            intervals = votes.certify(self._queries(x), on_progress=on_progress)
            return NumberAnswers(intervals.prediction, intervals, self.conditions)
        certificates = self.model.certify(self._queries(x), on_progress=on_progress)
        labels = self.classes[certificates.prediction]
        return Answers(labels, certificates, self.conditions)

    def release(
        self,
        x: Features,
        mechanism: Mechanism | LaplaceMean,
        *,
        accounting: Accounting = "rigorous",
        counting: Counting = "distance",
        seed: int | None = None,
        ledger: Ledger | str | Path | None = None,
        on_progress: OnProgress = lambda progress: None,
    ) -> Published:
        """Release a label for each query with differential privacy, so that it may be published.

            mechanism = agt.RandomizedResponse(eps=1.0, classes=2)
            published = model.release(queries, mechanism)
            published.labels, published.words

        Each call spends the mechanism's guarantee once for each query. With a ledger, a query that
        it has answered before gets the same answer, at no cost. If several processes share a model
        (``agt.together``), only one of them should call this.

        How many labels the noise changes is not reported, because it depends on private stable
        distances. The data owner can see them with ``certify``.

        Args:
            x: [n, ...] the queries, as for ``predict``. They are taken to be public.
            mechanism: the mechanism that randomises labels, for as many classes as the model has;
                ``agt.LaplaceMean`` for numeric labels.
            accounting: ``rigorous`` refuses if a condition of the privacy claim is not met;
                ``paper`` follows the published paper, and the claim says what is not proved.
            counting: ``distance``: the mechanism uses stable distances; ``index``: it uses their
                position in the grid ``ks``, as a grid that skips values of k needs.
            seed: an integer >= 0 from which the noise is drawn. This is a simulation, which is not
                private. None: the noise comes from the operating system's generator.
            ledger: the ledger, or its path, that is debited before anything is drawn. Naming it
                declares that the units of the training data are people of its population. None: no
                budget is kept, and a second release about the same people causes a
                ``PrivacySumWarning`` with the total.
            on_progress: called with an ``agt.training.loop.Progress`` as queries are certified.

        Returns:
            An object with ``labels`` [n] (values as in ``classes``), ``claim``, ``words`` and
            ``simulated``.

        Raises:
            ConfigError: the claim is refused, because a condition is not met (the message names
                it); the mechanism does not fit the model; or ``seed`` and ``ledger`` are both
                given.
            DataError: as for ``predict``. Nothing was drawn.
            Exhausted: the ledger's budget does not suffice for all queries. Nothing was drawn,
                unless another process took a part of the budget at the same moment. Then the labels
                that were drawn are stored in the ledger, and returned when they are asked again.
            PrivacySumError: ``agt.accounting("strict")`` is on, no ledger is given, and there was a
                release about some of these people before.
        """
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int | np.integer)):
            raise ConfigError(
                f"seed={seed!r}: give a whole number of at least 0 for a simulation, or None for "
                "a private release"
            )
        if seed is not None and ledger is not None:
            raise ConfigError(
                "seed and ledger cannot be given together, because a release from a seed is only "
                "a simulation, which spends no budget: leave out seed= or ledger="
            )
        with naming_settings(FIT_ARGUMENTS):
            queries = self._queries(x)
            terms = ReleaseTerms(
                conditions=self.conditions,
                accounting=accounting,
                counting=counting,
                randomness=SystemRandomness() if seed is None else SeededRandomness(int(seed)),
            )
            # Called because it may raise: what it refuses must not be entered in the ledger.
            LabelRelease.judged(self.model, queries, mechanism, terms)
            payer_context: AbstractContextManager[Payer]
            # A simulation spends nothing.
            payer_context = paying(ledger, self.owner) if seed is None else nullcontext(NoPayer())
            with payer_context as payer:
                release = LabelRelease.judged(
                    self.model, queries, mechanism, replace(terms, payer=payer)
                )
                self._doubt(release.requested_claim)
                reservation = release.reserve_all()
                labels = gathered(release.draw(on_progress), len(queries))
                claim = release.reserved_claim
        if reservation.size < release.requested:
            raise Exhausted(
                f"ledger={ledger}: the budget covered only {reservation.size} of the "
                f"{release.requested} labels that were requested. These {reservation.size} labels "
                "are paid for and stored in the ledger: ask for them again to get them without "
                "further cost"
            )
        votes = self.model.number_votes
        published = self.classes[labels] if votes is None else votes.mean_of(labels)
        return Published(published, claim, tuple(claim.lines()), release.simulated)

    def release_weights(
        self,
        mechanism: WeightsMechanism,
        delta: float = 0.0,
        *,
        ledger: Ledger | str | Path | None = None,
    ) -> Portable:
        """Release the weights of a linear head once with differential privacy.

        Any number of queries can then be labelled at no further cost. Each call draws new noise and
        spends the mechanism's guarantee again.

            released = model.release_weights(agt.ReleaseWeights(mu=1.0))
            class_indices = released.labels(queries)  # [n] int64, indices into released.classes

        Args:
            mechanism: ``agt.ReleaseWeights``, ``agt.ObjectivePerturbation``,
                ``agt.NoisyStatistics``, or another ``WeightsMechanism``.
            delta: the delta for which the claim states an epsilon, from 0 to 1. 0: the mechanism's
                own delta, or a default.
            ledger: the ledger, or its path, that is debited before anything is drawn; None: no
                budget is kept (see ``release``).

        Returns:
            The released weights with the public feature map: ``labels(queries)``,
            ``margins(queries)``, ``words`` (what is guaranteed, a sentence each), ``weight`` and
            ``classes``.

        Raises:
            ConfigError: the model is not a linear head, or has noise of its own; a condition of the
                privacy claim is not met; no proof of the mechanism covers the model; or the name of
                a class has control characters.
            AgtError: the solver missed its tolerance. Nothing is released.
            Exhausted: the ledger's budget does not suffice. Nothing was drawn.
            PrivacySumError: ``agt.accounting("strict")`` is on, no ledger is given, and there was a
                release about some of these people before.
        """
        if not isinstance(mechanism, WeightsMechanism):
            raise ConfigError(
                f"mechanism={mechanism!r} is not a mechanism that releases weights: give one "
                "that does, such as agt.ReleaseWeights(mu=1.0)"
            )
        if isinstance(delta, bool) or not isinstance(delta, Real):
            raise ConfigError(f"delta={delta!r}: give a number")
        with naming_settings(FIT_ARGUMENTS):
            terms = ReleaseTerms(
                conditions=self.conditions, delta=delta, randomness=SystemRandomness()
            )
            # Called because it may raise: what it refuses must not be entered in the ledger.
            WeightsRelease.judged(self.model, mechanism, terms)
            with paying(ledger, self.owner) as payer:
                release = WeightsRelease.judged(self.model, mechanism, replace(terms, payer=payer))
                check_printable(self.model.problem.dataset, release.claim.lines())
                self._doubt(release.claim)
                release.reserve()
                released = release.draw()
                lines = release.reserved_claim.lines()
                # No configuration of the dataset: it was given as arrays.
                portable = Portable.from_release(release.head, released, {}, lines)
                return replace(portable, slope=released.slope)

    def _doubt(self, claim: Claim) -> None:
        """Warn of what looks wrong with a release, such as a guarantee that means little.

        Args:
            claim: the claim of the release.
        """
        for line in claim.owner_warnings(self.model.problem.dataset.declared_size):
            warn_user(line, Doubtful)

    @naming_settings(FIT_ARGUMENTS)
    def unfit(self, ids: Iterable[object]) -> tuple["Fitted", Removal]:
        """Remove people's records: train a new model from scratch without them.

            smaller, removal = model.unfit(["alice", "bob"])

        Args:
            ids: the people to remove: values of ``units`` as given to ``agt.fit``; if no units were
                given, values of ``ids``.

        Returns:
            A new model trained on the records that remain; and what was done
            (``removal.sentences``, ``removal.records``) with what is promised
            (``removal.promise``). This model is not changed.

        Raises:
            ConfigError: an id is unknown; the model was loaded, so that it has no records; or its
                certificate is ``removal``, which draws noise in each training.
            DataError: an id is neither a whole number nor text; constants that make features were
                computed from the records; the records that remain cannot be trained on; or
                memory-mapped records were changed after the training.
        """
        started = time.perf_counter()
        problem = self.model.problem
        if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
            raise ConfigError(f"ids={ids!r} is not a list: give a list of ids")
        given_ids = list(ids)
        train = problem.dataset.train
        people = set(names_of("ids", given_ids, len(given_ids)).tolist())
        unknown = sorted(people - set(train.units.tolist()))
        if unknown or not people:
            raise ConfigError(
                f"ids={unknown[:3]}: none of the {len(train)} training records has these ids. "
                "Give values from the argument units= of agt.fit (or from ids=, if agt.fit was "
                "called without units=)"
            )
        if refusal := problem.settings.certificate.retraining_refusal:
            raise ConfigError(refusal)
        is_removed = np.isin(train.units, sorted(people))
        remaining = without(problem.dataset, is_removed, problem.dataset.preprocessing)
        problem.dataset.check_unchanged()
        earlier = (*self.earlier, problem.dataset.digest)
        model = fit_model(replace(problem, dataset=remaining), _ignore_progress, NO_CHECKPOINTS)
        fitted = replace(self, model=model, recorded=None, earlier=earlier)
        removed_count = int(is_removed.sum())
        remaining_count = len(train) - removed_count
        facts = {
            "people": len(people),
            "records_before": len(train),
            "records_after": remaining_count,
        }
        steps = (Remark("trained_from_scratch", {"records": remaining_count}),)
        removal = Removal(
            promise=RETRAINED,
            records=removed_count,
            seconds=time.perf_counter() - started,
            facts=facts,
            steps=steps,
        )
        return fitted, removal

    @naming_settings(FIT_ARGUMENTS)
    def save(self, folder: str | Path) -> str:
        """Write the model into a new folder, from which ``agt.load`` reads it back.

        The folder is for the data owner only. It holds no training record, but everything that the
        model learnt, the public constants, the digest of the training data (by which ledgers
        recognise the data), and the number of records if no size was declared.

            digest = model.save("model")
            model = agt.load("model", digest)

        Args:
            folder: the path of the folder, which is created. It may exist if it is empty.

        Returns:
            The digest of the folder, ``sha256:`` and 64 hexadecimal digits. Store it elsewhere:
            ``agt.load(folder, digest)`` accepts only this model.

        Raises:
            ConfigError: the folder is not empty, or labels are neither numbers nor text.
            OSError: the folder cannot be written.
        """
        writer = NewFolder(Path(folder), COMMAND)
        known = {
            "feature_names": self.names,
            "conditions": [condition.as_json() for condition in self.conditions],
            "owner": self.owner.as_json,
        }
        writer.write(DESCRIPTION, as_json(known | self._description))
        self.model.save(writer)
        return writer.finish()

    def _queries(self, x: Features) -> np.ndarray:
        """Return the features of queries as the model takes them, [n, ...].

        Args:
            x: the queries, as an array or a data frame.

        Raises:
            ConfigError: a query has the wrong shape.
            DataError: a value is NaN; or a data frame has other columns than the training data, or
                its values do not fit what ``columns`` declares.
        """
        x = as_pandas(x)
        if isinstance(x, pd.DataFrame):
            x = in_order_of(self.names, x) if self.columns is None else self.columns.code_queries(x)
        features = query_records(x).features
        shape = self.model.problem.dataset.train.features.shape[1:]
        if features.shape[1:] != shape:
            raise ConfigError(
                f"x: each query has features of shape {features.shape[1:]}, but the model was "
                f"trained on features of shape {shape}: give queries of this shape"
            )
        return features


def fit(
    x: Features,
    y: Labels,
    *,
    target: Literal["classes", "numeric"] = "classes",
    range: Sequence[float] | None = None,
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
    """Train a classifier together with bounds on its answers after edits of the training records.

        model = agt.fit(x, y)
        answers = model.certify(queries)
        answers.labels, answers.stable_distance  # [n] labels, [n] int64

    The stable distance of a query is the largest number of edits of the training records that is
    proved unable to change its label. By default one edit adds or removes one record.

    The arguments from ``loss`` to ``seed`` are settings of the training. None is a default that
    suits the certificate; for a linear head it follows from ``declared.size`` (docs/recipe.md).

    Args:
        x: [n, ...] features as numbers; or a data frame of numbers, or of anything with
            ``columns``. Features should be at most about 1 in absolute value.
        y: [n] labels, numbers or text.
        target: what labels are: ``classes``; or ``numeric``, numbers in ``range``, which works with
            ``certificate="votes"``.
        range: the public range (a, b) of numeric labels, into which they are clipped.
        ids: [n] unique names of the records, whole numbers or text; None: hashes of their content.
        units: [n] the person (or other unit) that each record belongs to, whole numbers or text;
            None: each record is a unit.
        public: [n] bool, True for records that are public and need no protection; None: none is.
        declared: what you state about data and settings, on which privacy claims rest; None:
            nothing. Releases need it; ensembles, ``votes`` and ``removal`` need its ``size``.
        columns: the columns of the data frame that become features, with the public constants that
            code them; or the path of a dataset file that holds them.
        network: the widths of hidden layers, such as ``(64, 64)``; empty: a linear classifier; or
            your own ``nn.Sequential``, whose parameters training starts from, and which is not
            changed. A network needs ``epochs``, ``lr`` and ``clip``.
        activation: the activation of hidden layers given by their widths; None: relu.
        certificate: the method by which labels are certified, as a name or a mapping with ``name``
            and settings. ``box``: bounds on every parameter, for any network. ``stability``,
            ``erm``, ``removal``: a linear head in closed form. ``votes``: an ensemble of small
            models. None: ``votes`` with a ``learner``, else ``stability`` for a linear classifier
            and ``box`` for a network.
        learner: for ``votes``, how each member is trained: ``ridge``, ``logistic``, a deterministic
            scikit-learn estimator, or a function (x, y) that returns a function labelling rows.
            None: ridge.
        features: a public feature map in front of a linear head: ``relu``, ``landmarks``,
            ``scattering``, or a mapping with ``map`` and its settings; None: the features
            themselves.
        relation: what one edit is. ``add_remove``: a unit added or removed; ``remove``: a unit
            removed; ``substitute``: a unit exchanged for another; ``flip``: a label changed;
            ``perturb``: a unit's features moved by up to ``radius``; ``paper_privacy`` and
            ``paper_unlearning``: as in the papers.
        radius: the largest change of each feature, only with ``relation="perturb"``.
        unit_rows: the largest number of records of one unit, a public constant; more are refused.
        ks: the numbers of edits for which bounds are computed: every k from 0 to this integer, or
            the values of a sequence. 50 by default.
        members: the number of models in an ensemble, each trained on its own part of the records;
            1: a single model, or for ``votes`` about one for 100 records.
        vote: what members of an ensemble contribute: ``labels``, or ``margins`` for two classes.
        margin_clip: the public constant to which margins are clipped, only with ``vote="margins"``.
        compute: settings of the computation by name, such as ``{"device": "cuda", "threads": 4}``.
        checkpoint: a folder in which training saves its state, so that the same call resumes there
            after an interruption. It is deleted when this returns. None: nothing is saved.
        on_progress: called with an ``agt.training.loop.Progress`` (steps done, steps in all).
        caution: a factor > 0 on the default settings of a linear head or votes. At 2, stable
            distances are about twice as long, and accuracy is lower. None: 1.
        loss: ``binary_cross_entropy``, ``cross_entropy`` or ``squared_error``.
        epochs: the number of passes over the records.
        lr: the learning rate.
        clip: the level to which each entry of a record's gradient is clamped; for a linear head in
            closed form, each entry of its loss's derivative in the logits.
        batches: the number of batches of an epoch.
        weight_decay: the factor of the decoupled weight decay.
        dtype: ``float64`` or ``float32``.
        seed: the seed of the initial parameters.
        training: other settings of training by name, such as ``momentum=0.9``.

    Returns:
        The trained model, with ``predict``, ``certify``, ``release``, ``release_weights``,
        ``unfit`` and ``save``.

    Raises:
        ConfigError: a setting is wrong, or no proof covers the settings.
        DataError: the data cannot be used; the message names the row.
        UnsoundError: a bound became NaN or infinite, or a lower bound exceeds its upper bound.

    Warns:
        Doubtful: features are large, or a class is never predicted.
    """
    settings = FitSettings.named(locals())  # first, so that locals() has the arguments only
    with naming_settings(FIT_ARGUMENTS):
        numbers = declared_numbers(target, range)
        model = fit_with(settings, x, y, ids, units, public, numbers)
        doubts = doubts_of(model, x)
    for doubt in doubts:
        warn_user(doubt, Doubtful)
    return model


def fit_with(
    settings: FitSettings,
    x: Features,
    y: Labels,
    ids: RecordIds | None,
    units: UnitIds | None,
    public: PublicFlags | None,
    numbers: NumericTarget | None = None,
) -> Fitted:
    """Train a model as ``fit`` does, without warnings.

    Errors name settings by their keys of the command line; the caller translates them with
    ``naming_settings``.

    Args:
        settings: all arguments of ``fit`` that are settings.
        x: [n, ...] features, or a data frame.
        y: [n] labels.
        ids: [n] unique names of the records, or None.
        units: [n] the person (or other unit) that each record belongs to, or None.
        public: [n] bool, True for public records, or None.
        numbers: the range of labels that are numbers; None: labels are classes.
    """
    x = as_pandas(x)
    relation = validate(RelationConfig, settings.part("relation"), "relation")
    data = _Data.from_arrays(x, y, settings, relation, ids, units, public, numbers)
    if numbers is not None and settings.certificate is None:
        settings = replace(settings, certificate="votes")
    training = settings.given_training
    head = _build_head(settings)
    certificate, own_learner = _build_certificate(settings, head)
    _check_network_settings(head, certificate, training)
    ensemble = _build_ensemble(settings, certificate, data.declared.size, training)
    ks = settings.ks
    grid_settings = {"values": tuple(ks)} if isinstance(ks, Iterable) else {"max": ks}
    kgrid = validate(KGridConfig, grid_settings, "kgrid")
    problem = data.problem(
        relation,
        certificate,
        training,
        model=head,
        kgrid=kgrid,
        compute=validate(ComputeConfig, settings.compute or {}, "compute"),
        ensemble=ensemble,
        learner=own_learner,
    )
    names = tuple(map(str, x.columns)) if isinstance(x, pd.DataFrame) else ()
    model = _train(problem, settings.on_progress or _ignore_progress, settings.checkpoint)
    return Fitted(model, data.classes, data.columns, names=names, public=data.declared.public)


def untrained_head(
    settings: DataSettings,
    x: Features,
    y: Labels,
    units: UnitIds | None,
    numbers: NumericTarget | None = None,
) -> Fitted:
    """Return a linear head before training, from which ``release_weights`` can release weights.

    Mechanisms that release weights train them. Errors name settings by their keys of the command
    line; the caller translates them with ``naming_settings``.

    Args:
        settings: what is declared about the data, and the feature map.
        x: [n, ...] features, or a data frame.
        y: [n] labels.
        units: [n] the person (or other unit) that each record belongs to, or None.
        numbers: the range of labels that are numbers; None: labels are classes.
    """
    relation = validate(RelationConfig, settings.part("relation"), "relation")
    data = _Data.from_arrays(as_pandas(x), y, settings, relation, units=units, numbers=numbers)
    kind = ErmKind if numbers is None else NumberHeadKind
    features = settings.features
    certificate = kind() if features is None else kind(features=_build_features(features))
    problem = data.problem(relation, certificate, {}, model=HeadConfig())
    head = certificate.untrained_head(problem)
    return Fitted(head, data.classes, data.columns, public=data.declared.public)


@dataclass(frozen=True)
class _Data:
    """The records that a model is trained on, and what was declared about them.

    Attributes:
        dataset: the records, with features [n, ...] and class indices.
        classes: [C] the label values, in the order of their indices.
        declared: the user's statements.
        columns: how the columns of a data frame became features; None: there was no coding.
    """

    dataset: Dataset
    classes: np.ndarray
    declared: Declared
    columns: Columns | None

    @classmethod
    def from_arrays(
        cls,
        x: Any,
        y: np.ndarray,
        settings: DataSettings,
        relation: RelationConfig,
        ids: np.ndarray | None = None,
        units: np.ndarray | None = None,
        public: np.ndarray | None = None,
        numbers: NumericTarget | None = None,
    ) -> "_Data":
        """Build a dataset from what the user gave.

        Args:
            x: [n, ...] features, or a pandas data frame.
            y: [n] labels.
            settings: what is declared, and how columns are coded.
            relation: which datasets are neighbours.
            ids: [n] unique names of the records; None: hashes of their content.
            units: [n] the person (or other unit) that each record belongs to; None: each record is
                a unit.
            public: [n] bool, True for public records; None: none is public.
            numbers: the range of labels that are numbers; None: labels are classes.

        Raises:
            ConfigError: ``declared`` is no ``agt.Declared``, or ``columns`` is wrong.
            DataError: the data cannot be used.
        """
        declared = Declared() if settings.declared is None else settings.declared
        if not isinstance(declared, Declared):
            raise ConfigError(
                f"declared={declared!r} is not of the type agt.Declared: give "
                "declared=agt.Declared(...)"
            )
        columns = None if settings.columns is None else Columns.of(settings.columns, units)
        # Where edits change labels, ids are hashed without the label, so that they stay.
        label_free_ids = RELATIONS[relation.name].label_free_ids
        coding_facts = () if columns is None else columns.facts
        features = x if columns is None else columns(x)
        dataset, classes = dataset_of(
            features, y, declared, ids, units, public, label_free_ids, coding_facts, numbers
        )
        return cls(dataset, classes, declared, columns)

    def problem(
        self,
        relation: RelationConfig,
        certificate: CertificateKind,
        training: dict[str, Any],
        **parts: Any,
    ) -> Problem:
        """Return the training problem of these records.

        Args:
            relation: which datasets are neighbours.
            certificate: the settings of the certificate.
            training: the training settings that were given, by name.
            parts: further fields of ``Settings`` by name, which replace the defaults.

        Raises:
            ConfigError: a training setting is unknown or wrong, or no proof covers the settings.
        """
        defaults: dict[str, Any] = {
            "kgrid": KGridConfig(max=50),
            "compute": ComputeConfig(),
            "ensemble": EnsembleConfig(),
        }
        settings = Settings(
            training=_build_training(certificate, training),
            relation=relation,
            certificate=certificate,
            noise=None,
            choices=_choices_fact(self.declared.settings),
            **(defaults | parts),
        )
        return Problem(self.dataset, settings)


def doubts_of(model: Fitted, x: Features) -> list[str]:
    """Return warnings for the data owner about features and predictions, a sentence each.

    They depend on private records, so they must not be published.

    Args:
        model: a model that was just trained, with its records.
        x: the features or the data frame that were given to ``fit``.
    """
    column_notes = [] if model.columns is None else model.columns.notes(as_pandas(x))
    return [*column_notes, *_doubts(model)]


def _doubts(model: Fitted) -> Iterator[str]:
    """Yield warnings if answers are not certified, features are large, or labels are poor.

    Up to ``SAMPLE_ROWS`` training records are looked at, evenly spaced.

    Args:
        model: a model that was just trained, with its records.
    """
    sample = sample_records(model.model.problem.dataset.train)
    certainty = count_certified(model.model, sample)
    if certainty is not None:
        for doubt in (certainty.rounding_warning, certainty.distance_warning):
            if doubt is not None:
                yield doubt.text(FIT_ARGUMENTS)
    largest = float(np.abs(sample.features).max(initial=0))
    if largest > LARGE_FEATURE:
        yield (
            f"the largest feature is {largest:g} in absolute value: divide the features by public "
            "constants so that all are about 1 at most. For a data frame, give "
            "columns=agt.Columns(...), which encodes its columns"
        )
    if model.model.number_votes is not None:
        yield from model.model.problem.dataset.notes
        yield from _number_doubts(model.model.number_votes, sample)
        return
    class_count = len(model.classes)
    labelled = np.bincount(sample.labels, minlength=class_count)
    prediction = model.model.predict(sample.features)
    predicted = np.bincount(prediction, minlength=class_count)
    # Frequent: more than half of what each class has if all are equally frequent.
    is_frequent = labelled > len(sample) / (2 * len(labelled))
    never = model.classes[(predicted == 0) & is_frequent].tolist()
    if never:
        yield (
            f"on {len(sample)} training records, the model never predicts the classes {never}, "
            "although these classes are common in the training records. So the model is of "
            "little use: change the training settings"
        )
        return
    correct = int((prediction == sample.labels).sum())
    most_frequent = int(labelled.max())
    if correct <= most_frequent < len(sample):
        most_frequent_class = model.classes[int(labelled.argmax())]
        yield (
            f"the model labels {correct} of {len(sample)} training records correctly, but always "
            f"answering {most_frequent_class!r} would be correct for {most_frequent} of the same "
            "records. So the model is of little use: change the training settings"
        )


def _number_doubts(model: NumberVotes, sample: Records) -> Iterator[str]:
    """Yield a warning if the numbers of a model are no better than always the median.

    Args:
        model: a model that was just trained.
        sample: some of its training records.
    """
    if not len(sample):
        return
    errors = model.predict(sample.features) - sample.labels
    rmse = float(np.sqrt(np.mean(errors**2)))
    constant_errors = np.median(sample.labels) - sample.labels
    rmse_of_median = float(np.sqrt(np.mean(constant_errors**2)))
    if rmse >= rmse_of_median > 0:
        yield (
            f"the root mean squared error on {len(sample)} training records is {rmse:.4g}, but "
            f"always answering their median would have {rmse_of_median:.4g}. So the model is of "
            "little use: use more records, fewer members, or a smaller strength"
        )


def _train(problem: Problem, on_progress: OnProgress, folder: str | Path | None) -> Model:
    """Train the model of a problem, and resume in a folder with checkpoints if one is given.

    Args:
        problem: the records and the settings.
        on_progress: called with the progress of training.
        folder: where the state of the training is saved; None: it is not saved.
    """
    # If several processes train together, the first one saves the state for all.
    if folder is None or group().rank:
        return fit_model(problem, on_progress, NO_CHECKPOINTS)
    # The checkpoints of another training, or of another version or machine, must not be used.
    description = {
        **describe(problem),
        **training_environment(problem),
        "data": problem.dataset.digest,
    }
    seconds = problem.settings.compute.checkpoint_seconds
    with checkpoint_folder(Path(folder), description, seconds) as checkpoints:
        return fit_model(problem, on_progress, checkpoints)


@naming_settings(FIT_ARGUMENTS)
def load(
    folder: str | Path, digest: str | None = None, compute: Mapping[str, Any] | None = None
) -> Fitted:
    """Read back a model that ``Fitted.save`` wrote, and check every file of it.

        model = agt.load("model", digest)
        model.certify(queries).stable_distance

    Args:
        folder: the path of the model's folder.
        digest: the digest that ``save`` returned, with or without ``sha256:``; None: any model is
            accepted.
        compute: settings of the computation by name, such as ``{"threads": 4}``; None: defaults.

    Returns:
        The model. It has no training records, so ``unfit`` is refused.

    Raises:
        ConfigError: there is no such model; its digest is another one; or a file differs from what
            was written.
        UnsoundError: bounds or constants contradict themselves or the settings.
    """
    try:
        expected_digest = None if digest is None else read_digest(digest)
    except ValueError:
        raise ConfigError(
            f"digest={digest}: a digest is sha256: followed by 64 hexadecimal digits; give the "
            "one that Fitted.save returned"
        ) from None
    reader = Folder.open(Path(folder), COMMAND, expected_digest)
    content = reader.read(DESCRIPTION)
    compute_settings = validate(ComputeConfig, compute or {}, "compute")
    try:
        node = json.loads(content)
        problem = read_problem(node, compute_settings)
        recorded = tuple(map(Condition.from_json, node["conditions"]))
        classes = np.array(node["classes"], dtype=node["dtype"])
        columns = None
        if node.get("columns") is not None:
            columns = validate(Columns, node["columns"], "columns")
        owner = DataOwner.from_json(
            node.get("owner", UNKNOWN_OWNER),
            problem.dataset,
            problem.settings.relation,
            reader.manifest.digest,
        )
        expected = problem.dataset.target.class_count or 0  # numbers have no classes
        if classes.shape != (expected,):
            raise ValueError(
                f"the number of class names ({classes.size}) differs from the number of "
                f"classes of the model ({expected})"
            )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"{reader.folder / DESCRIPTION}: this file cannot be read ({error}). If another "
            "version of agt saved the model, load it with that version. Otherwise fit the model "
            "again"
        ) from None
    names = tuple(node.get("feature_names", ()))
    model = load_model(problem, reader)
    return Fitted(model, classes, columns, recorded, names, saved_owner=owner)


def grid_text(ks: Sequence[int]) -> str:
    """Return a grid of k as short text: "0 to 50", or "0, 5, 10 to 100" if it skips values.

    Args:
        ks: the values of k, increasing, at least one.
    """
    if len(ks) > 1 and list(ks) == list(range(ks[0], ks[-1] + 1)):
        return f"{ks[0]} to {ks[-1]}"
    first_values = ", ".join(map(str, ks[:3]))
    if len(ks) <= 3:
        return first_values
    return f"{first_values} to {ks[-1]}"


def conditions_text(conditions: Sequence[Condition]) -> str:
    """Return the letters of conditions as text, grouped by how far they are established.

    For example "conditions proved: a d f g; declared: c e; not met: b".

    Args:
        conditions: the conditions a to g of a privacy claim.
    """
    shown_names = {"proved": "proved", "declared": "declared", "not held": "not met"}
    groups = []
    for standing, shown_name in shown_names.items():
        members = [each.letter for each in conditions if each.evidence.standing == standing]
        letters = " ".join(members) or "none"
        groups.append(f"{shown_name}: {letters}")
    return f"conditions {'; '.join(groups)}"


def _ignore_progress(progress: Progress) -> None:
    """Do nothing: the callback of calls whose progress is not wanted."""


def _check_network_settings(
    head: HeadBuilder, certificate: CertificateKind, given: Mapping[str, Any]
) -> None:
    """Raise ConfigError if a setting is missing that has no default for a network.

    Args:
        head: the linear head or network to be trained.
        certificate: the kind of certificate, which knows what is needed.
        given: the training settings that were given, by name.
    """
    missing = [f"{name}=" for name in certificate.missing_training_settings(head, given)]
    if missing:
        raise ConfigError(
            "network: the default training settings are only for linear heads (no hidden "
            f"layers): use network=(). For hidden layers, choose {', '.join(missing)} on public "
            "data and give them to agt.fit"
        )


def _build_certificate(
    settings: FitSettings, head: HeadBuilder
) -> tuple[CertificateKind, Learner | None]:
    """Return the certificate that arguments of ``fit`` name, with its features and learner.

    Args:
        settings: the arguments; ``certificate``, ``features`` and ``learner`` are read.
        head: the linear head or network to be trained, which decides the default.

    Returns:
        The settings of the certificate; and the learner if it is the user's own, else None.

    Raises:
        ConfigError: the certificate is unknown, or takes no features or no learner.
    """
    certificate: CertificateKind
    if settings.certificate or settings.learner is not None:
        certificate = _named_certificate(settings.certificate or "votes")
    else:
        certificate = usual_certificate(head)
    if settings.features is not None:
        certificate = certificate.with_features(_build_features(settings.features))
    own_learner = None
    if settings.learner is not None:
        certificate, own_learner = certificate.with_learner(settings.learner)
    return certificate, own_learner


def _named_certificate(certificate: str | CertificateKind | Mapping[str, Any]) -> CertificateKind:
    """Return the settings of a certificate given as an object, a name, or a mapping of settings.

    Raises:
        ConfigError: the name or a setting is unknown, or a value has the wrong type.
    """
    if isinstance(certificate, CertificateKind):
        return certificate
    return certificate_config(
        {"name": certificate} if isinstance(certificate, str) else certificate
    )


def _build_ensemble(
    settings: FitSettings,
    certificate: CertificateKind,
    size: int | None,
    training: Mapping[str, Any],
) -> EnsembleConfig:
    """Return the settings of the ensemble that arguments of ``fit`` describe.

    Args:
        settings: the arguments; ``members``, ``vote`` and ``margin_clip`` are read.
        certificate: the kind of certificate, which has a default number of members.
        size: the declared number of records; None: it was not declared.
        training: the training settings that were given, by name; ``caution`` is read.

    Raises:
        ConfigError: a setting is wrong, or an ensemble has no declared size.
    """
    given = settings.part("ensemble")
    if given.get("members") == 1 and size is not None:
        # 1 is the default of ``fit`` and means that the certificate decides.
        caution = training.get("caution", 1.0)
        given["members"] = certificate.usual_members(size, caution, settings.relation)
    ensemble = validate(EnsembleConfig, given, "ensemble")
    if certificate.has_member_models(ensemble) and size is None:
        raise ConfigError(
            "members: all members of an ensemble divide by the same number of records, which "
            "must be public: give declared=agt.Declared(size=...)"
        )
    return ensemble


def _build_features(given: str | Mapping[str, Any]) -> FeaturesConfig:
    """Return the settings of a feature map given by its name or by a mapping of settings.

    The number of features is a default of the map unless ``count`` is given.

    Raises:
        ConfigError: the map or a setting is unknown, or a value is wrong.
    """
    named = {"map": given} if isinstance(given, str) else given
    usual = USUAL_COUNTS.get(str(named.get("map"))) if isinstance(named, Mapping) else None
    return validate(
        FeaturesConfig,
        named if usual is None else {"count": usual, **named},
        "certificate.features",
    )


def _build_head(settings: FitSettings) -> HeadBuilder:
    """Return the builder of the linear head or network that ``network`` describes.

    Args:
        settings: the arguments of ``fit``; ``network`` and ``activation`` are read.

    Raises:
        ConfigError: ``network`` is neither a sequence of widths nor an ``nn.Sequential`` of layers
            that have bounds.
    """
    network = settings.network
    if isinstance(network, nn.Module):
        return CustomNetwork.from_network(network)
    if isinstance(network, str) or not isinstance(network, Iterable):
        raise ConfigError(
            f"network={network!r}: give the widths of hidden layers, such as (64, 64), or an "
            "nn.Sequential"
        )
    return validate(HeadConfig, settings.part("model") | {"hidden": tuple(network)}, "model")


def _build_training(certificate: CertificateKind, given: dict[str, Any]) -> TrainingConfig:
    """Return the training settings: those given, and for the others defaults of the certificate.

    Args:
        certificate: the kind of certificate, which has the defaults.
        given: the training settings that were given, by name.

    Raises:
        ConfigError: a setting is unknown or wrong.
    """
    for key in ("chosen_on", "chosen_for"):
        if key in given:
            raise ConfigError(
                f"{key} is not an argument of agt.fit: if every setting was chosen on public "
                "data, declare that with declared=agt.Declared(settings=True)"
            )
    return validate(TrainingConfig, {**certificate.training_defaults, **given}, "training")


def _choices_fact(is_declared: bool) -> Fact:
    """Return the fact that all settings were chosen on public data, or that nobody declared it.

    Args:
        is_declared: the user's ``Declared.settings``.
    """
    if is_declared:
        return facts.declared("settings_chosen_on_public", setting="declared.settings=True")
    return facts.not_held("settings_undeclared", setting="declared.settings=True")


def _plain(classes: np.ndarray) -> list[Any]:
    """Return the label values [C] as Python numbers or strings, which JSON can hold.

    Raises:
        ConfigError: a label is neither a number nor text.
    """
    values: list[Any] = classes.tolist()
    if classes.dtype.kind not in "biufUO" or not all(
        isinstance(value, str | int | float) for value in values
    ):
        raise ConfigError(f"labels of type {classes.dtype} cannot be saved: use numbers or text")
    return values
