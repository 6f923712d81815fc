"""How answers are scored by comparing them with labels, and the sentences about scores.

Classes are scored by accuracy, numbers by errors. ``agt start`` asks the scoring of its dataset
instead of deciding by the kind of labels.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from agt.data.target import NumericTarget, Target
from agt.mechanisms.planning import Evidence, QueryEvidence
from agt.models.model import Model
from agt_cli.report.number_quality import NumberEstimate, format_number, mae, r_squared, rmse
from agt_cli.report.quality import RateEstimate, format_rate, share_estimate

Estimate = RateEstimate | NumberEstimate
Scores = tuple[Estimate | None, ...]

MEMBERS_WITHOUT_SIZE = 31
"""Members of an ensemble for numbers if no size of the table is declared; a public constant."""
PROMISED_GAP = 0.01
"""How much less accurate than logistic regression a model may be by docs/recipe.md."""
LOGISTIC_REGRESSION = "LogisticRegression"
"""The name of logistic regression in tables and figures that compare models."""
MIN_RECALL = 0.1
"""With a lower recall, a model finds hardly any records of a class."""
MAX_EDITS = 10
"""The largest number of edits k for which ``NumberScoring`` reports the width of intervals."""


@dataclass(frozen=True)
class Stability:
    """One metric of how much answers can change when training records are added or removed.

    It depends on private records, so it is for the data owner only.

    Attributes:
        name: the name of the metric in files.
        value: its value.
        sentence: a sentence that tells people what the value means.
    """

    name: str
    value: float
    sentence: str


@dataclass(frozen=True)
class ConstantAnswer:
    """The best answer that is the same for every query.

    Attributes:
        name: its name in tables and figures.
        in_sentence: the answer as a sentence names it.
        value: the answer: the index of a class, or a number.
    """

    name: str
    in_sentence: str
    value: float


class ReferenceLearners(NamedTuple):
    """The learners of scikit-learn that a model is compared with, without privacy.

    Attributes:
        linear_name: the name of the linear one in tables and figures.
        linear: the linear one.
        boosting: boosted trees.
    """

    linear_name: str
    linear: Any
    boosting: Any


class UnitNames(NamedTuple):
    """The name of what certificates count: rows or people."""

    singular: str
    plural: str


class Scoring(ABC):
    """How answers to queries are scored by comparing them with the true labels.

    Attributes:
        keys: names of the scores in metrics and tables. The first one is drawn.
        titles: the names of the scores as titles of columns.
        heading: the heading of a table of scores.
        private_results: the results of ``agt start`` that depend on private records, as a clause.
        answers: the name of what is published one by one, such as "labels".
        pronoun: the pronoun for ``heading``.
        baseline: the name of the constant answer.
        baseline_in_sentence: the name of the constant answer with its article.
        baseline_metric: the metric of the constant answer's score.
        measured_training: the settings that ``agt train`` needs after ``agt measure``, in addition
            to the dataset.
    """

    keys: ClassVar[tuple[str, ...]]
    titles: ClassVar[tuple[str, ...]]
    heading: ClassVar[str]
    private_results: ClassVar[str]
    answers: ClassVar[str]
    pronoun: ClassVar[str]
    baseline: ClassVar[str]
    baseline_in_sentence: ClassVar[str]
    baseline_metric: ClassVar[str]
    measured_training: ClassVar[str]

    @abstractmethod
    def scores(self, answers: np.ndarray, labels: np.ndarray) -> Scores:
        """Return the score for each of ``keys``, of answers [n] to queries with labels [n]."""

    @abstractmethod
    def constant(self, labels: np.ndarray) -> ConstantAnswer:
        """Return the best constant answer to queries with these labels [n], the true ones."""

    @abstractmethod
    def learners(self) -> ReferenceLearners:
        """Return the reference learners for answers of this kind, not yet fitted."""

    @abstractmethod
    def training_words(self, *, size_is_public: bool, certificates_only: bool) -> list[str]:
        """Return the settings of ``agt train`` to propose, which depend on public values only.

        Args:
            size_is_public: whether the number of records is declared.
            certificates_only: whether nothing is to be published.
        """

    @abstractmethod
    def measure_stability(
        self, model: Model, evidence: Evidence, features: np.ndarray, counted: UnitNames
    ) -> Stability:
        """Return how much answers to queries can change when training records change.

        It is a median: for half of the queries the answer changes no more than that.

        Args:
            model: a fitted model, whose answers are of this scoring's kind.
            evidence: the evidence that was computed for the queries, of the type of this scoring's
                answers.
            features: [n, ...] the queries.
            counted: the name of what certificates count, rows or people.
        """

    @abstractmethod
    def words(self, score: float) -> str:
        """Return a score as tables and sentences write it."""

    @abstractmethod
    def expected_words(self, score: float) -> str:
        """Return a clause on how good released answers are expected to be."""

    @abstractmethod
    def certificate_words(self, counted: str) -> str:
        """Return a clause on what certificates say about an answer.

        Args:
            counted: the edits that certificates count, in the plural, such as "records".
        """

    @abstractmethod
    def is_better(self, score: float, other: float) -> bool:
        """Return whether a score is better than another."""

    def shortfall(self, model: float, references: Mapping[str, float]) -> str:
        """Return sentences on how much better the best reference learner is.

        It is empty if that learner is hardly better, or if nothing is promised (the default).

        Args:
            model: the score of the model.
            references: the name of each reference learner -> its score.
        """
        return ""

    @abstractmethod
    def finding(self, model: float, constant: float, constant_answer: ConstantAnswer) -> str:
        """Return what a figure that compares models shows, in a sentence.

        Args:
            model: the score of the model.
            constant: the score of the constant answer.
            constant_answer: this answer.
        """

    def legend(self, labels: np.ndarray) -> str:
        """Return a note for a table of scores on records with these labels; empty: needs none.

        Args:
            labels: [n] the true labels.
        """
        return ""

    def warning(self, answers: np.ndarray, labels: np.ndarray) -> str:
        """Return a warning on errors that a model's first score hides; empty: none are found.

        Args:
            answers: [n] those of a model.
            labels: [n] the true labels.
        """
        return ""


@dataclass(frozen=True)
class ClassScoring(Scoring):
    """Answers are classes, scored by accuracy, and by the recall of the rarest class.

    The recall of a class is the share of its records that are answered correctly. The rarest class
    is the one with the fewest of the true labels, among those that occur.

    Attributes:
        classes: the names of the label values 0, 1, ....
    """

    classes: Sequence[str]

    keys = ("accuracy", "recall_of_rarest_class")
    titles = ("accuracy", "recall of rarest class")
    heading = "Accuracy"
    private_results = "Accuracies, stable distances"
    answers = "labels"
    pronoun = "it"
    baseline = "majority-class baseline"
    baseline_in_sentence = "the majority-class baseline"
    baseline_metric = "test_majority_rate"
    measured_training = ""

    def scores(self, answers: np.ndarray, labels: np.ndarray) -> Scores:
        """Return the accuracy, and the recall of the rarest class (None if there is one class)."""
        right = answers == labels
        recall = None
        rarest = _rarest_class(labels)
        if rarest is not None:
            of_class = labels == rarest
            recall = share_estimate(int((right & of_class).sum()), int(of_class.sum()))
        return share_estimate(int(right.sum()), len(labels)), recall

    def legend(self, labels: np.ndarray) -> str:
        """Return the name of the rarest class; empty if there is one class only."""
        rarest = _rarest_class(labels)
        if rarest is None:
            return ""
        return (
            f"The rarest class is '{self.classes[rarest]}' ({int((labels == rarest).sum()):,} of "
            f"{len(labels):,} rows)."
        )

    def warning(self, answers: np.ndarray, labels: np.ndarray) -> str:
        """Return that hardly any record of the rarest class is found, where its recall is below
        ``MIN_RECALL``; empty: it is not, or there are too few of its records to say so.
        """
        accuracy, recall = self.scores(answers, labels)
        rarest = _rarest_class(labels)
        if recall is None or rarest is None or recall.value >= MIN_RECALL or recall.high >= 0.5:
            return ""
        name = self.classes[rarest]
        count = int((labels == rarest).sum())
        recalled = int(((answers == rarest) & (labels == rarest)).sum())
        return (
            f"Of the {count:,} rows of the rarest class '{name}', this model finds {recalled:,} "
            f"(recall {recall}), although its accuracy is {accuracy}. If this class matters to "
            "you, do not judge the model by its accuracy: published answers may hardly ever be "
            f"'{name}', either."
        )

    def constant(self, labels: np.ndarray) -> ConstantAnswer:
        """Return the most frequent class."""
        most_frequent = int(np.bincount(labels).argmax())
        quoted = f"'{self.classes[most_frequent]}'"
        return ConstantAnswer(f"majority class {quoted}", quoted, most_frequent)

    def learners(self) -> ReferenceLearners:
        """Return logistic regression and boosted trees."""
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.linear_model import LogisticRegression

        linear = LogisticRegression(max_iter=300)
        boosting = HistGradientBoostingClassifier(random_state=0)
        return ReferenceLearners(LOGISTIC_REGRESSION, linear, boosting)

    def training_words(self, *, size_is_public: bool, certificates_only: bool) -> list[str]:
        """Return votes where the size is public, and there are two classes or nothing is published.

        Otherwise return a linear head.
        """
        voted = size_is_public and (len(self.classes) == 2 or certificates_only)
        return ["certificate=votes" if voted else "certificate=stability"]

    def measure_stability(
        self, model: Model, evidence: Evidence, features: np.ndarray, counted: UnitNames
    ) -> Stability:
        """Return the median stable distance, rounded down.

        Only ``evidence`` (of classes) and ``counted`` are used.
        """
        # ``scoring_of`` takes this class if answers are classes, whose evidence has this type.
        assert isinstance(evidence, QueryEvidence)
        singular, plural = counted
        distance = int(np.median(evidence.distance))
        if distance == 0:
            sentence = f"Half of the answers could change if one {singular} were added or removed."
        else:
            edits = f"any {distance:,} {plural}" if distance > 1 else f"any one {singular}"
            sentence = f"Half of the answers would stay the same if {edits} were added or removed."
        return Stability("stable_distance_median", distance, sentence)

    def words(self, score: float) -> str:
        """Return an accuracy with three digits."""
        return format_rate(score)

    def expected_words(self, score: float) -> str:
        """Return the share of answers that are expected to be right."""
        return f"{format_rate(score)} of them correct"

    def certificate_words(self, counted: str) -> str:
        """Return that certificates count edits that change an answer."""
        return f"how many {counted} it takes to change an answer"

    def is_better(self, score: float, other: float) -> bool:
        """Return whether an accuracy is higher."""
        return score > other

    def shortfall(self, model: float, references: Mapping[str, float]) -> str:
        """Return by how much the best reference is better, if that is above ``PROMISED_GAP``."""
        best = max(references, key=lambda name: references[name], default=None)
        if best is None or references[best] - model <= PROMISED_GAP:
            return ""
        gap = format_rate(references[best] - model)
        return f"{best} is more accurate by {gap} (expected gaps: docs/recipe.md)."

    def finding(self, model: float, constant: float, constant_answer: ConstantAnswer) -> str:
        """Return how many rows the model, and always one class, answer correctly."""
        return (
            f"This model answers {_as_percentage(model)} of the rows correctly. Always answering "
            f"{constant_answer.in_sentence} would be correct for {_as_percentage(constant)}."
        )


def _as_percentage(share: float) -> str:
    """Return a share as a percentage that is 100 only for all."""
    return f"{100 * float(format_rate(share)):.1f} %"


def _rarest_class(labels: np.ndarray) -> int | None:
    """Return the class with the fewest of these labels, among those that occur.

    Returns:
        The first of several; None where fewer than two classes occur.
    """
    classes, counts = np.unique(labels, return_counts=True)
    return None if len(classes) < 2 else int(classes[counts.argmin()])


@dataclass(frozen=True)
class NumberScoring(Scoring):
    """Answers are numbers, scored by their errors.

    Attributes:
        target: the range of the labels.
    """

    target: NumericTarget

    keys = ("rmse", "mae", "r2")
    titles = ("RMSE", "MAE", "R²")
    heading = "Errors"
    private_results = "Errors, intervals"
    answers = "numbers"
    pronoun = "them"
    baseline = "always the median"
    baseline_in_sentence = "always answering the median"
    baseline_metric = "test_rmse_of_median"
    measured_training = " certificate=votes"

    def scores(self, answers: np.ndarray, labels: np.ndarray) -> Scores:
        """Return RMSE, MAE and R^2 (None: all labels are equal)."""
        errors = answers - labels
        return rmse(errors), mae(errors), r_squared(errors, labels)

    def constant(self, labels: np.ndarray) -> ConstantAnswer:
        """Return the median."""
        return ConstantAnswer(self.baseline, "the median", float(np.median(labels)))

    def learners(self) -> ReferenceLearners:
        """Return ridge regression and boosted trees."""
        from sklearn.ensemble import HistGradientBoostingRegressor
        from sklearn.linear_model import Ridge

        return ReferenceLearners("Ridge", Ridge(), HistGradientBoostingRegressor(random_state=0))

    def training_words(self, *, size_is_public: bool, certificates_only: bool) -> list[str]:
        """Return votes, the one certificate for numbers."""
        members = [] if size_is_public else [f"ensemble.members={MEMBERS_WITHOUT_SIZE}"]
        return ["certificate=votes", *members]

    def measure_stability(
        self, model: Model, evidence: Evidence, features: np.ndarray, counted: UnitNames
    ) -> Stability:
        """Return the median width of the intervals that hold for k edits of the training data.

        k is a quarter of the largest k with certificates, but from 1 to MAX_EDITS. ``evidence`` is
        not used, because it has no intervals.
        """
        votes = model.number_votes
        # ``scoring_of`` takes this class if answers are numbers, which such votes alone give.
        assert votes is not None
        certificates = votes.certify(features)
        # k may be named in public, because max_k follows from the number of members alone.
        k = max(1, min(MAX_EDITS, certificates.max_k // 4))
        width = float(np.median(certificates.width(k)))
        edits = f"any {k} {counted.plural}" if k > 1 else f"any one {counted.singular}"
        sentence = (
            f"If {edits} were added or removed, half of the answers would stay within an interval "
            f"that is at most {format_number(width)} wide."
        )
        return Stability(f"width_median_k{k}", width, sentence)

    def words(self, score: float) -> str:
        """Return an error with four digits."""
        return format_number(score)

    def expected_words(self, score: float) -> str:
        """Return the error that is expected of answers."""
        return f"with an expected RMSE of {format_number(score)}"

    def certificate_words(self, counted: str) -> str:
        """Return that certificates bound how far edits move an answer."""
        return f"how far {counted} that are added or removed can move an answer"

    def is_better(self, score: float, other: float) -> bool:
        """Return whether an error is lower."""
        return score < other

    def finding(self, model: float, constant: float, constant_answer: ConstantAnswer) -> str:
        """Return the errors of the model and of the median."""
        return (
            f"The RMSE of this model is {format_number(model)}. Always answering "
            f"{constant_answer.in_sentence} would have an RMSE of {format_number(constant)}."
        )


def scoring_of(target: Target) -> Scoring:
    """Return how answers to queries are scored whose labels are of this target."""
    if target.numeric is not None:
        return NumberScoring(target.numeric)
    return ClassScoring(target.classes)
