"""A trained model: labels, certificates, releases, erasure, and saving."""

import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
import pandas as pd

from agt.account import DataOwner, Ledger, paying
from agt.answers import Answers, NumberAnswers, Published, conditions_text, grid_text
from agt.arrays import ClassValues, Labels
from agt.certificates.conditions import Condition, weaker_conditions
from agt.data.arrays import gathered
from agt.data.erasure import without
from agt.data.frames import Features, as_pandas
from agt.data.in_memory import check_names, query_records, reorder_columns
from agt.data.table import Columns
from agt.errors import ConfigError, Doubtful, counted, naming_settings, warn_user
from agt.fit_settings import FIT_ARGUMENTS
from agt.ledger.ledger import Exhausted
from agt.ledger.payer import NoPayer, Payer
from agt.mechanisms.claims import Claim, describe_neighbours
from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.weights_mechanism import WeightsMechanism
from agt.models.description import describe
from agt.models.doubts import LARGE_FEATURE, large_feature, largest_feature, sample_records
from agt.models.ensemble import training_environment
from agt.models.fitting import fit as fit_model
from agt.models.model import Model
from agt.models.portable import Portable, check_printable
from agt.numeric import Randomness, SeededRandomness, SystemRandomness
from agt.parameters import explaining_arguments
from agt.release import LabelRelease, ReleaseTerms, WeightsRelease
from agt.settings import (
    Accounting,
    Counting,
    check_number,
    plain_of,
)
from agt.store.folder import NewFolder
from agt.store.json_text import as_json
from agt.training.checkpoint import NO_CHECKPOINTS
from agt.training.loop import OnProgress, ignore_progress
from agt.unlearning.promise import Promise, Removal
from agt.unlearning.sentences import Remark

DESCRIPTION = "model.json"
"""The file of a saved model with its settings, classes and conditions."""
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
class Fitted:
    """A trained model, as ``agt.fit`` and ``agt.load`` return it.

    ``predict`` and ``certify`` label queries for the data owner. ``release`` and
    ``release_weights`` return what may be published. ``unfit`` removes people's records. ``save``
    writes the model.

    Attributes:
        model: the trained model, whose labels are indices into ``classes``.
        classes: [C] the values that labels have, in the order of their indices; none if they are
            numbers.
        columns: the rules by which columns of a data frame become features; None: features are
            numbers as given.
        recorded: the seven conditions of a privacy guarantee (docs/method.md) when the model was
            saved; None: it was not loaded.
        names: the columns of the data frame that the model was trained on. A data frame of queries
            must have the same, in any order, unless ``columns`` selects them. Empty: the model was
            trained on an array.
        earlier: the digests of the training data before ``unfit`` removed records from it.
        public: True if the training records were declared public (``Declared.public``).
        saved_owner: the people whose data the model was trained on, as ``save`` wrote it; None: the
            model was not loaded.
        saved_large_features: whether features of the training records were far outside of [-1, 1],
            as ``save`` wrote it; None: the model was not loaded, or an earlier version saved it.
    """

    model: Model
    classes: ClassValues
    columns: Columns | None = None
    recorded: tuple[Condition, ...] | None = None
    names: tuple[str, ...] = ()
    earlier: tuple[str, ...] = ()
    public: bool = False
    saved_owner: DataOwner | None = None
    saved_large_features: bool | None = None

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
        layers_note = settings.model.layers_note(settings.training)
        network = f"  network: {layers_note}\n" if layers_note else ""
        return (
            f"agt.Fitted: {labels}, {shape} features, {declared}\n  model: "
            f"certificate {certificate}{voting}, k = {k_values}\n{network}  relation: "
            f"{neighbours}\n  {conditions}"
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
    def certify(self, x: Features, on_progress: OnProgress = ignore_progress) -> Answers:
        """Return the label of each query, and the number of edits of the data that it withstands.

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

    @explaining_arguments("model.release")
    def release(
        self,
        x: Features,
        mechanism: Mechanism | LaplaceMean,
        *,
        accounting: Accounting = "rigorous",
        counting: Counting = "distance",
        seed: int | None = None,
        ledger: Ledger | str | Path | None = None,
        on_progress: OnProgress = ignore_progress,
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
                budget is counted, and a second release about the same people causes a
                ``PrivacySumWarning`` with the total.
            on_progress: called with an ``agt.training.loop.Progress`` as queries are certified.

        Returns:
            An object with ``labels`` [n] (values as in ``classes``), ``claim``, ``words`` and
            ``simulated``.

        Raises:
            ConfigError: the claim is refused, because a condition is not met (the message names
                it); the mechanism does not fit the model; or ``seed`` and ``ledger`` are both
                given.
            DataError: the queries do not fit the training data (see ``predict``). Nothing was
                drawn.
            Exhausted: the ledger's budget does not suffice for all queries. Nothing was drawn,
                unless another process took a part of the budget at the same moment. Then the labels
                that were drawn are stored in the ledger, and returned when they are asked again.
            PrivacySumError: ``agt.accounting("strict")`` is on, no ledger is given, and there was a
                release about some of these people before.
        """
        _check_seed(seed, ledger)
        with naming_settings(FIT_ARGUMENTS):
            queries = self._queries(x)
            randomness: Randomness = SystemRandomness()
            if seed is not None:
                randomness = SeededRandomness(int(seed))
            terms = ReleaseTerms(
                conditions=self.conditions,
                accounting=accounting,
                counting=counting,
                randomness=randomness,
            )
            # Called because it may raise: what it refuses must not be entered in the ledger.
            LabelRelease.judged(self.model, queries, mechanism, terms)
            if seed is None:
                self._warn_of_training_records(queries)
            payer_context: AbstractContextManager[Payer] = nullcontext(NoPayer())
            if seed is None:  # a simulation spends nothing
                payer_context = paying(ledger, self.owner)
            with payer_context as payer:
                release = LabelRelease.judged(
                    self.model, queries, mechanism, replace(terms, payer=payer)
                )
                self._warn_owner(release.requested_claim)
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

    @explaining_arguments("model.release_weights")
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
                budget is counted (see ``release``).

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
        check_number(delta, "delta")
        with naming_settings(FIT_ARGUMENTS):
            terms = ReleaseTerms(
                conditions=self.conditions, delta=delta, randomness=SystemRandomness()
            )
            # Called because it may raise: what it refuses must not be entered in the ledger.
            WeightsRelease.judged(self.model, mechanism, terms)
            with paying(ledger, self.owner) as payer:
                release = WeightsRelease.judged(self.model, mechanism, replace(terms, payer=payer))
                check_printable(self.model.problem.dataset, release.claim.lines())
                self._warn_owner(release.claim)
                release.reserve()
                released = release.draw()
                lines = release.reserved_claim.lines()
                # No configuration of the dataset: it was given as arrays.
                portable = Portable.from_release(release.head, released, {}, lines)
                return replace(portable, slope=released.slope)

    def _warn_owner(self, claim: Claim) -> None:
        """Warn the data owner of doubts about a release, for example that its guarantee is weak.

        Args:
            claim: the privacy claim of the release.
        """
        for warning in claim.owner_warnings(self.model.problem.dataset.declared_size):
            warn_user(warning, Doubtful)

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
        people = set(check_names("ids", given_ids, len(given_ids)).tolist())
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
        model = fit_model(replace(problem, dataset=remaining), ignore_progress, NO_CHECKPOINTS)
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
        recognise the data), the number of records if no size was declared, and whether a feature
        was far outside of [-1, 1].

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
        details = {
            "feature_names": self.names,
            "conditions": [condition.as_json() for condition in self.conditions],
            "owner": self.owner.as_json,
            "large_features": self._has_large_features,
        }
        writer.write(DESCRIPTION, as_json(details | self._description))
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
            if self.columns is None:
                x = reorder_columns(self.names, x)
            else:
                x = self.columns.code_queries(x)
        features = query_records(x).features
        shape = self.model.problem.dataset.train.features.shape[1:]
        if features.shape[1:] != shape:
            raise ConfigError(
                f"x: each query has features of shape {features.shape[1:]}, but the model was "
                f"trained on features of shape {shape}: give queries of this shape"
            )
        self._warn_of_scale(features)
        return features

    def _warn_of_scale(self, features: np.ndarray) -> None:
        """Warn of queries that are far outside of [-1, 1], unless training records are, too.

        Features of arrays have no public range, so nothing else finds queries on another scale.

        Args:
            features: [n, ...] the queries, as the model takes them.
        """
        largest = largest_feature(features)
        # ``fit`` warned of training records that are large themselves.
        if largest <= LARGE_FEATURE or self._has_large_features:
            return
        condition = ""
        if self._has_large_features is None:
            condition = (
                ", unless the training records were as large, which this model, saved by an "
                "earlier version of agt, does not know"
            )
        warn_user(
            f"x: the largest feature of these queries is {largest:g} in absolute value. Scale "
            f"queries as the training records were scaled, by the same public constants{condition}",
            Doubtful,
        )

    def _warn_of_training_records(self, features: np.ndarray) -> None:
        """Warn of queries whose features are those of a training record.

        Features that were coded from columns can be the same for different people, so that there
        only more than half of the queries cause a warning. A model that was read back has no
        records, and there is no warning.

        Args:
            features: [n, ...] the queries, as the model takes them.
        """
        if not len(self.model.problem.dataset.train):
            return
        found = self.owner.hashed.count_records(features)
        if found == 0 or (self.columns is not None and 2 * found <= len(features)):
            return
        verb = "has" if found == 1 else "have"
        warn_user(
            f"x: {found:,} of {counted(len(features), 'query', 'queries')} {verb} the features of "
            "a training record, but the guarantee of a release covers queries that are independent "
            "of the training records. Ask about other rows, which the model was not trained on "
            '(docs/trust.md, section "Queries that are training records")',
            Doubtful,
        )

    @cached_property
    def _has_large_features(self) -> bool | None:
        """Whether features of the training records are far outside of [-1, 1]; None: not known.

        It depends on private records, so it is for the data owner only.
        """
        records = self.model.problem.dataset.train
        if not len(records):  # the model was loaded
            return self.saved_large_features
        return large_feature(sample_records(records)) is not None


def _plain(classes: np.ndarray) -> list[Any]:
    """Return the label values [C] as Python numbers or strings, which JSON can hold.

    Raises:
        ConfigError: a label is neither a number nor text.
    """
    values: list[Any] = classes.tolist()
    is_plain_type = classes.dtype.kind in "biufUO"
    are_plain = all(isinstance(value, str | int | float) for value in values)
    if not is_plain_type or not are_plain:
        raise ConfigError(f"labels of type {classes.dtype} cannot be saved: use numbers or text")
    return values


def _check_seed(seed: object, ledger: object) -> None:
    """Raise ConfigError unless the seed of a release is None, or an integer without a ledger.

    Args:
        seed: the seed of a simulation; None: a private release.
        ledger: the ledger that would count the release; None: no ledger would.
    """
    if seed is None:
        return
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise ConfigError(
            f"seed={seed!r}: give a whole number of at least 0 for a simulation, or None for "
            "a private release"
        )
    if ledger is not None:
        raise ConfigError(
            "seed and ledger cannot be given together, because a release from a seed is only "
            "a simulation, which spends no budget: leave out seed= or ledger="
        )
