"""scikit-learn estimators: certified and differentially private, for pipelines and searches.

    make_pipeline(FunctionTransformer(lambda x: x / 16), agt.CertifiedClassifier())
    agt.PrivateClassifier(epsilon=1.0, declared=agt.Declared(...)).fit(x, y)
    agt.PrivateRegressor(epsilon=1.0, range=(0, 100), declared=agt.Declared(...)).fit(x, y)

A step in front that is fitted on the records (a scaler, PCA) makes each row depend on all records.
Then certificates hold only for fixed features, and ``declared.features`` must stay False.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from agt.account import Ledger, total_so_far
from agt.answers import Answers, NumberAnswers, Published
from agt.api import fit_with, untrained_head
from agt.arrays import Labels, Margins, Probabilities
from agt.data.frames import as_pandas
from agt.data.in_memory import refuse_masked
from agt.data.table import Columns
from agt.data.target import NumericTarget, declared_numbers
from agt.errors import (
    AgtError,
    ConfigError,
    DataError,
    Doubtful,
    PrivacySumError,
    few,
    naming_settings,
    warn_user,
)
from agt.fit_doubts import counted_size_doubts, doubts_of, large_feature_doubts
from agt.fit_settings import FIT_ARGUMENTS, DataSettings, FitSettings
from agt.fitted import Fitted
from agt.ledger.process import PROCESS
from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.statistics import NoisyStatistics
from agt.messages import ArgumentNames
from agt.models.doubts import sample_records
from agt.models.portable import Portable
from agt.models.shares import logistic_shares
from agt.parameters import explaining_parameters
from agt.settings import check_number
from agt.unlearning.promise import Removal


class SettingError(ConfigError, ValueError):
    """A wrong setting of an estimator: a ConfigError that is a ValueError, as in scikit-learn."""


PRIVATE_ARGUMENTS = ArgumentNames({**FIT_ARGUMENTS.arguments, "eps": "epsilon"})
"""Key of the command line -> what error messages of private estimators call the setting."""


@contextmanager
def _value_errors(names: ArgumentNames = FIT_ARGUMENTS) -> Iterator[None]:
    """Turn errors of agt in the block into ValueErrors, as scikit-learn's estimators raise them.

    A ``PrivacySumError`` stays what it is, because its handlers look for this class.

    Args:
        names: the names of settings in messages.

    Raises:
        SettingError: the block raised a ConfigError.
        ValueError: the block raised any other AgtError.
    """
    try:
        with naming_settings(names):
            yield
    except PrivacySumError:
        raise
    except ConfigError as error:
        raise SettingError(str(error)) from error
    except AgtError as error:
        raise ValueError(str(error)) from error


def _check_rows(X: Any) -> None:
    """Raise ValueError if features have more axes than an estimator of scikit-learn takes.

    Args:
        X: features as given to ``fit``.
    """
    shape = np.shape(X)
    if len(shape) > 2:
        record = ", ".join(map(str, shape[1:]))
        raise ValueError(
            f"X has records of shape ({record}), but estimators of scikit-learn take rows of "
            f"numbers: give X.reshape(len(X), -1), and begin a network for images with "
            "nn.Unflatten(1, (CHANNELS, HEIGHT, WIDTH)); or use agt.fit, which takes images"
        )


def _check_columns_are_numbers(frame: Any) -> None:
    """Raise DataError, which names columns of words, for a data frame that has some."""
    kinds = getattr(frame, "dtypes", None)
    if kinds is None or not hasattr(kinds, "items"):
        return
    words = [str(name) for name, kind in kinds.items() if getattr(kind, "kind", "O") not in "biuf"]
    if words:
        raise DataError(
            f"data frame: the columns {few(map(repr, words))} do not contain numbers: give "
            "columns=agt.Columns(...) with the public list of words of each, or the path of the "
            "dataset file that agt data inspect writes; or leave these columns out"
        )


class _Estimator(BaseEstimator, DataSettings):
    """The checks of arrays and data frames that all estimators share.

    Attributes:
        columns_: the rules by which columns of data frames become features, as ``fit`` read it;
            None: features are numbers as given.
    """

    columns_: Columns | None

    @_value_errors()
    def _check_training_data(
        self, X: Any, y: Any, units: Any, **checks: Any
    ) -> tuple[np.ndarray, np.ndarray, Columns | None]:
        """Check the arguments of ``fit``, and set ``n_features_in_``.

        Args:
            X: [n, d] numbers, or a data frame.
            y: [n] labels.
            units: [n] the person that each record belongs to, or None.
            checks: further arguments of scikit-learn's ``check_X_y`` by name.

        Returns:
            The features (a data frame stays one if there are ``columns``), the labels [n], and the
            coding of the columns.

        Raises:
            ValueError: the data cannot be used.
        """
        # Read once: the file may have changed when queries come.
        columns = None if self.columns is None else Columns.of(self.columns, units)
        X = as_pandas(X)
        # Before scikit-learn drops the masks.
        refuse_masked("X", X)
        refuse_masked("y", y)
        if columns is None:
            try:
                X, y = validate_data(self, X, y, dtype=(np.float64, np.float32), **checks)
            except ValueError:
                _check_columns_are_numbers(X)
                _check_rows(X)
                raise
        else:
            y = column_or_1d(y)
            self.n_features_in_ = len(getattr(X, "columns", ()))
        return X, y, columns

    @_value_errors()
    def _queries(self, X: Any) -> np.ndarray:
        """Return the features of queries as the model takes them, [n, d].

        Args:
            X: [n, d] numbers, or a data frame.

        Raises:
            ValueError: the queries do not fit the training data.
        """
        X = as_pandas(X)
        refuse_masked("X", X)
        if self.columns_ is not None:
            return self.columns_.code_queries(X)
        checked: np.ndarray = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        return checked


class _Classifier(ClassifierMixin, _Estimator):
    """The checks of classes that both classifiers share."""

    @_value_errors()
    def _check_training_data(
        self, X: Any, y: Any, units: Any, **checks: Any
    ) -> tuple[np.ndarray, np.ndarray, Columns | None]:
        """Check the arguments of ``fit`` as ``_Estimator`` does, and that there are two classes.

        Raises:
            ValueError: the data cannot be used, or has fewer than two classes.
        """
        X, y, columns = super()._check_training_data(X, y, units, **checks)
        check_classification_targets(y)
        declared_classes = getattr(self.declared, "classes", None)
        values = np.unique(y if declared_classes is None else list(declared_classes))
        if len(values) < 2:
            only_class = values.tolist()[0]  # Python's own number or word
            raise ValueError(
                f"Classifier can't train when only one class is present: {only_class!r}. Give at "
                "least two classes"
            )
        return X, y, columns

    def _in_sorted_order(self, margins: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """Return margins in the order of ``classes_``, with scikit-learn's shapes.

        Args:
            margins: the margins, of two classes [1, n], positive for the second class; of more
                classes [C, n].
            classes: [C] the label values in the order of the margins, which the user may have
                declared; ``classes_`` is sorted.

        Returns:
            For two classes [n], positive for ``classes_[1]``; for more classes [n, C].
        """
        order = np.argsort(classes)
        if len(order) > 2:
            return margins[order].T
        return margins[0] if order[0] == 0 else -margins[0]


# Dataclasses, because scikit-learn needs each parameter to be an attribute of the same name.
@dataclass(kw_only=True, eq=False, repr=False)
class _Certified(_Estimator, FitSettings):
    """The base of the certified estimators, whose model is trained by ``agt.fit``.

    Attributes:
        model_: the trained ``agt.Fitted``.
    """

    def _fit(
        self,
        data: tuple[np.ndarray, np.ndarray, Columns | None],
        ids: Any,
        units: Any,
        public: Any,
        numbers: NumericTarget | None = None,
    ) -> None:
        """Train ``model_``, and warn of what the data owner should know.

        Args:
            data: the features, the labels and the coding of the columns, as
                ``_check_training_data`` returns them.
            ids, units, public: [n] as ``fit`` takes them.
            numbers: the range of labels that are numbers; None: labels are classes.

        Raises:
            ValueError: a setting is wrong, or no proof covers the settings.
        """
        X, y, columns = data
        settings = FitSettings.named(self.get_params(deep=False) | {"columns": columns})
        with _value_errors():
            model = fit_with(settings, X, y, ids=ids, units=units, public=public, numbers=numbers)
        for doubt in doubts_of(model, X):
            warn_user(doubt, Doubtful)
        # validate_data has turned data frames into arrays, but recorded the names of columns.
        names = tuple(getattr(self, "feature_names_in_", ()))
        self.model_: Fitted = replace(model, names=names)
        self.columns_ = columns

    def predict(self, X: Any) -> np.ndarray:
        """Return the answers to queries, [n], without noise.

        They are values of ``classes_``, or numbers. They depend on private records, so they are for
        the data owner only.

        Args:
            X: [n, d] numbers, or a data frame with the columns of the training data.

        Raises:
            ValueError: the queries do not fit the training data.
            sklearn.exceptions.NotFittedError: ``fit`` was not called.
        """
        with _value_errors():
            answers: np.ndarray = self._fitted_model().predict(self._queries(X))
            return answers

    def release(
        self,
        X: Any,
        mechanism: Mechanism | LaplaceMean,
        *,
        ledger: Ledger | str | Path | None = None,
    ) -> Published:
        """Release an answer to each query with differential privacy, so that it may be published.

        Each call spends the mechanism's guarantee once for each query.

        Args:
            X: [n, d] numbers, or a data frame with the columns of the training data. The queries
                are taken to be public.
            mechanism: such as ``agt.RandomizedResponse(eps=1.0, classes=2)``; of numbers
                ``agt.LaplaceMean(eps=1.0)``.
            ledger: the ledger, or its path, that is debited before anything is drawn; None: no
                budget is counted.

        Returns:
            An object with ``labels`` [n], ``claim`` (the guarantee) and ``words`` (the guarantee
            and what it rests on, a sentence each).

        Raises:
            ValueError: a condition of the privacy claim is not met, the mechanism or the queries do
                not fit the model, or the ledger's budget does not suffice.
            PrivacySumError: ``agt.accounting("strict")`` is on, no ledger is given, and there was a
                release about some of these people before.
        """
        with _value_errors():
            return self._fitted_model().release(self._queries(X), mechanism, ledger=ledger)

    def unfit(self, ids: Sequence[object]) -> tuple[Self, Removal]:
        """Remove people's records: train a new estimator from scratch without them.

        Args:
            ids: the people to remove: values of ``units`` as given to ``fit``; if no units were
                given, values of ``ids``.

        Returns:
            A new estimator trained on the records that remain; and what was done, with what is
            promised (``agt.Removal``). This estimator is not changed.

        Raises:
            ValueError: an id is unknown, or the records that remain cannot be trained on.
        """
        with _value_errors():
            model, removal = self._fitted_model().unfit(ids)
        estimator = copy(self)
        estimator.model_ = model
        return estimator, removal

    def _fitted_model(self) -> Fitted:
        """Return ``model_``, or raise scikit-learn's NotFittedError."""
        check_is_fitted(self, "model_")
        return self.model_


@explaining_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class CertifiedClassifier(_Certified, _Classifier):
    """A scikit-learn classifier that knows how many people's data it takes to change each label.

        classifier = agt.CertifiedClassifier(certificate="stability").fit(X, y)
        classifier.predict(X_new)  # [n] labels
        classifier.certify(X_new).stable_distance  # [n] int64

    All settings of ``agt.fit`` are parameters, with the same names, meanings and defaults. Those
    below are needed most. They are given by name.

    Args:
        certificate: the method by which labels are certified: ``stability``, ``erm`` or ``removal``
            (a linear classifier), ``box`` (any network), or ``votes`` (an ensemble of small
            models). None: ``stability`` without, and ``box`` with hidden layers.
        network: the widths of hidden layers, such as ``(64, 64)``, or an ``nn.Module``; empty: a
            linear classifier. A network needs ``epochs``, ``lr`` and ``clip``.
        declared: an ``agt.Declared`` with what you state about data and settings, on which privacy
            claims rest; None: nothing. ``certify`` does not need it, ``release`` does.
        columns: the rules by which columns of a data frame become features (``agt.Columns``); None:
            features are numbers.
        relation: the meaning of one edit of the records; by default a record added or removed.
        members: the number of models in an ensemble; 1: a single model, or for ``votes`` a default
            number.
        training: further settings of the training by name, such as ``{"momentum": 0.9}``.

    Attributes:
        classes_: [C] the label values, sorted.
        n_features_in_: the number of features of a record, or of columns of the data frame.
        columns_: the rules by which columns of data frames become features; None: features are
            numbers as given.
        model_: the trained ``agt.Fitted``.
    """

    def fit(
        self, X: Any, y: Any, ids: Any = None, units: Any = None, public: Any = None
    ) -> "CertifiedClassifier":
        """Train the classifier together with bounds on its answers, and return it.

        Args:
            X: [n, d] numbers; or a data frame, of numbers or with ``columns``.
            y: [n] labels, numbers or text.
            ids: [n] unique names of the records; None: hashes of their content.
            units: [n] the person (or other unit) that each record belongs to, with at most
                ``unit_rows`` records each; None: each record is a unit.
            public: [n] bool, True for records that are public; None: no record is public.

        Raises:
            ValueError: the data cannot be used, a setting is wrong, or no proof covers the
                settings. For a setting it is also an ``agt.ConfigError``.

        Warns:
            Doubtful: features are large, or a class is never predicted.
        """
        self._fit(self._check_training_data(X, y, units), ids, units, public)
        self.classes_ = np.sort(self.model_.classes)
        return self

    def decision_function(self, X: Any) -> Margins:
        """Return the margins of queries, of which the greatest is the predicted class's.

        Args:
            X: [n, d] numbers, or a data frame with the columns of the training data.

        Returns:
            For two classes [n], positive where ``classes_[1]`` is predicted. For more classes
            [n, C], in the order of ``classes_``: each class's logit (or fraction of the votes) less
            the greatest of the other classes.
        """
        with _value_errors():
            margins = self._fitted_model().model.margins(self._queries(X))
            return self._in_sorted_order(margins, self.model_.classes)

    def predict_proba(self, X: Any) -> Probabilities:
        """Return the probabilities of the classes, [n, C], in the order of ``classes_``.

        They are the sigmoid or softmax of the logits; for an ensemble, the fractions of the
        members' votes. Certificates say nothing about them.

        Args:
            X: [n, d] numbers, or a data frame with the columns of the training data.
        """
        with _value_errors():
            shares = self._fitted_model().model.shares(self._queries(X))
        return shares[:, np.argsort(self.model_.classes)]

    def certify(self, X: Any) -> Answers:
        """Return the label of each query, and how many people's data it takes to change it.

        Args:
            X: [n, d] numbers, or a data frame with the columns of the training data.

        Returns:
            An object with ``labels`` [n], equal to those of ``predict``; ``stable_distance`` [n]
            int64, the largest number of edits (people added or removed, by default) that is proved
            unable to change the label; and ``conditions``, those that a privacy claim about the
            labels would rest on.
        """
        with _value_errors():
            return self._fitted_model().certify(self._queries(X))


@explaining_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class CertifiedRegressor(RegressorMixin, _Certified):
    """A scikit-learn regressor that knows how far edits of the data can move each answer.

        regressor = agt.CertifiedRegressor(range=(0, 100), members=50).fit(X, y)
        regressor.predict(X_new)  # [n] numbers
        regressor.certify(X_new).bounds(5)  # lower and upper ends [n] after 5 edits

    All settings of ``agt.fit`` are parameters, with the same names, meanings and defaults.

    Args:
        range: the public range (a, b) of labels, which are clipped into it. ``fit`` refuses without
            one, because a range that is read off the records is not public.
        certificate: ``votes``, the only one that supports numbers; None: the same.
        learner: how members are trained: ``ridge``, or a deterministic regressor of scikit-learn;
            None: ridge.
        members: the number of members; 1: about one for 100 records of ``declared.size``, also with
            ``columns``.

    Attributes:
        n_features_in_: the number of features of a record, or of columns of the data frame.
        columns_: the rules by which columns of data frames become features; None: features are
            numbers as given.
        model_: the trained ``agt.Fitted``.
    """

    range: Sequence[float] | None = None

    def fit(
        self, X: Any, y: Any, ids: Any = None, units: Any = None, public: Any = None
    ) -> "CertifiedRegressor":
        """Train the regressor together with intervals of its answers, and return it.

        Args:
            X: [n, d] numbers; or a data frame with ``columns``.
            y: [n] numbers.
            ids: [n] unique names of the records; None: hashes of their content.
            units: [n] the person (or other unit) that each record belongs to; None: each record is
                a unit.
            public: [n] bool, True for records that are public; None: no record is public.

        Raises:
            ValueError: no range is declared, the data cannot be used, or a setting is wrong.

        Warns:
            Doubtful: features are large, labels lie outside of the range, or the model is no better
                than a constant.
        """
        data = self._check_training_data(X, y, units, y_numeric=True)
        with _value_errors():
            numbers = declared_numbers("numeric", self.range)
        self._fit(data, ids, units, public, numbers)
        return self

    def certify(self, X: Any) -> NumberAnswers:
        """Return the answers to queries with the intervals that edits of the data cannot leave.

        Args:
            X: [n, d] numbers, or a data frame with the columns of the training data.
        """
        with _value_errors():
            # Labels are numbers here.
            return cast(NumberAnswers, self._fitted_model().certify(self._queries(X)))


@dataclass(kw_only=True, eq=False, repr=False)
class _Private(_Estimator):
    """The base of the private estimators: each ``fit`` releases weights once.

    Attributes:
        released_: the released weights with the feature map (``agt.Portable``).
        total_guarantee_: the total that was spent after the fit.
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    ledger: Ledger | str | Path | None = None

    def _fit(
        self,
        data: tuple[np.ndarray, np.ndarray, Columns | None],
        units: Any,
        numbers: NumericTarget | None = None,
    ) -> Fitted:
        """Release the weights of a linear head, set the attributes that say so, and return it.

        Args:
            data: the features, the labels and the coding of the columns, as
                ``_check_training_data`` returns them.
            units: [n] as ``fit`` takes them.
            numbers: the range of labels that are numbers; None: labels are classes.

        Raises:
            ValueError: a condition of the privacy claim is not met, a setting is wrong, or the
                ledger's budget does not suffice.
        """
        X, y, columns = data
        with _value_errors(PRIVATE_ARGUMENTS):
            model = untrained_head(self._data_settings(columns), X, y, units, numbers)
            mechanism = NoisyStatistics.within(self.epsilon, self.delta)
            # Before anything is spent, because the owner may want to stop here. It is only warned
            # of, and no attribute has it, because the fitted estimator may be published.
            dataset = model.model.problem.dataset
            column_notes = () if columns is None else columns.notes(X)
            doubts = [*column_notes, *counted_size_doubts(dataset)]
            doubts += large_feature_doubts(sample_records(dataset.train))
            for doubt in doubts:
                warn_user(doubt, Doubtful)
            self.released_: Portable = model.release_weights(
                mechanism, self.delta, ledger=self.ledger
            )
            self.total_guarantee_ = total_so_far(self.ledger, model.owner)
        self.columns_ = columns
        return model

    def _data_settings(self, columns: Columns | None) -> DataSettings:
        """Return the settings about data, with the coding of columns as ``fit`` read it.

        Raises:
            ConfigError: epsilon or delta is not a number.
        """
        for name in ("epsilon", "delta"):
            check_number(getattr(self, name), name)
        return DataSettings(
            declared=self.declared,
            columns=columns,
            features=self.features,
            relation=self.relation,
            unit_rows=self.unit_rows,
        )

    @property
    def guarantee_(self) -> tuple[str, ...]:
        """All that may be said about the release, a sentence each, the privacy guarantee first."""
        check_is_fitted(self, "released_")
        return self.released_.words

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes to pickle.

        Without a ledger, ``total_guarantee_`` is left out. It depends on what else this process has
        released about these people, which a published pickle must not reveal.
        """
        state: dict[str, Any] = super().__getstate__()
        if self.ledger is None:
            state = {name: value for name, value in state.items() if name != "total_guarantee_"}
        return state

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy with the same parameters, as ``sklearn.base.clone`` asks for it.

        Raises:
            PrivacySumError: a search or cross-validation clones the estimator again after a fit,
                and no ledger counts what the fits spend.
        """
        if self.ledger is None and not getattr(self.declared, "public", False):
            PROCESS.check_search()
        return type(self)(
            **{
                name: clone(value, safe=False)
                for name, value in self.get_params(deep=False).items()
            }
        )

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags, which say that two fits give different weights."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags


@explaining_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class PrivateClassifier(_Private, _Classifier):
    """A linear classifier whose weights are (epsilon, delta)-differentially private.

        declared = agt.Declared(classes=[0, 1], size=1000, features=True, settings=True)
        classifier = agt.PrivateClassifier(epsilon=1.0, declared=declared).fit(X, y)
        classifier.predict(X_new)  # [n] labels, at no further cost

    ``fit`` releases the weights once, solved from sums over the records to which noise was added.
    The fitted estimator holds only these weights and public constants, so it may be pickled and
    published, and labels any number of queries. Every ``fit`` spends epsilon again, also within a
    search over settings. So search on public records.

    Args:
        epsilon: the epsilon of one ``fit``.
        delta: the delta of one ``fit``.
        declared: what you state about data and settings, on which the privacy claim rests. ``fit``
            refuses if a statement is missing, and names it.
        columns: the columns of the data frame that become features, with the public constants that
            code them; None: features are numbers as given.
        features: a public feature map in front of the weights, such as ``relu``; None: no map.
        relation: what one edit of the records is, such as ``add_remove``; the guarantee holds for
            datasets that differ by one edit.
        unit_rows: the largest number of records of one person, a public constant.
        ledger: the ledger, or its path, that each ``fit`` debits before anything is drawn. Naming
            it declares that units are people of its population. None: no budget is counted. A
            second fit on some of the same people then causes a ``PrivacySumWarning`` with the
            total; in a search or a cross-validation it raises ``PrivacySumError``.

    Attributes:
        classes_: [C] the label values, sorted.
        n_features_in_: the number of features of a record, or of columns of the data frame.
        columns_: the rules by which columns of data frames become features; None: features are
            numbers as given.
        released_: the released weights with the feature map (``agt.Portable``).
        guarantee_: all that may be said about the release, a sentence each: what is proved, and
            what was declared.
        total_guarantee_: what the ledger has spent in all after this fit; without a ledger, what
            this process has spent on some of the same people.
    """

    def fit(self, X: Any, y: Any, units: Any = None) -> "PrivateClassifier":
        """Train the classifier, release its weights, and return it.

        Args:
            X: [n, d] numbers; or a data frame, of numbers or with ``columns``. Features should be
                at most about 1 in absolute value.
            y: [n] labels, numbers or text.
            units: [n] the person (or other unit) that each record belongs to, with at most
                ``unit_rows`` records each; None: each record is a unit.

        Raises:
            ValueError: a statement is missing in ``declared``, the data cannot be used, a setting
                is wrong, or the ledger's budget does not suffice.
            PrivacySumError: it is a second fit on some of the same people, in a search, a
                cross-validation, or with ``agt.accounting("strict")``. Nothing was drawn.

        Warns:
            Doubtful: features are far outside of [-1, 1], or the declared size is exactly the
                number of records. For the data owner only.
            PrivacySumWarning: it is a second fit on some of the same people, and no ledger counts.
        """
        model = self._fit(self._check_training_data(X, y, units), units)
        self._values: np.ndarray = model.classes  # in the order of the class indices
        self.classes_ = np.sort(model.classes)
        return self

    def predict(self, X: Any) -> Labels:
        """Return the labels of queries, [n] values of ``classes_``, from the released weights.

        It spends no privacy budget, so the labels may be published.

        Args:
            X: [n, d] numbers, or a data frame with the columns of the training data.

        Raises:
            ValueError: the queries do not fit the training data.
            sklearn.exceptions.NotFittedError: ``fit`` was not called.
        """
        check_is_fitted(self, "released_")
        class_indices = self.released_.labels(self._queries(X))
        labels: Labels = self._values[class_indices]
        return labels

    def decision_function(self, X: Any) -> Margins:
        """Return the margins of queries, of which the greatest is the predicted class's.

        It spends no privacy budget.

        Args:
            X: [n, d] numbers, or a data frame with the columns of the training data.

        Returns:
            For two classes [n], positive where ``classes_[1]`` is predicted. For more classes
            [n, C], in the order of ``classes_``: each class's score less the greatest score of the
            other classes.
        """
        check_is_fitted(self, "released_")
        margins = self.released_.margins(self._queries(X))
        return self._in_sorted_order(margins, self._values)

    def predict_proba(self, X: Any) -> Probabilities:
        """Return the probabilities of the classes, [n, C], in the order of ``classes_``.

        They are the softmax of the released scores times a factor, which is computed from what was
        released. It spends no privacy budget.

        Args:
            X: [n, d] numbers, or a data frame with the columns of the training data.
        """
        check_is_fitted(self, "released_")
        slope = self.released_.slope
        assert slope is not None  # NoisyStatistics, which fit uses, releases one
        shares = logistic_shares(slope * self.released_.margins(self._queries(X)))
        return shares[:, np.argsort(self._values)]


@explaining_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class PrivateRegressor(RegressorMixin, _Private):
    """A linear regression whose weights are (epsilon, delta)-differentially private.

        declared = agt.Declared(size=1000, features=True, settings=True)
        regressor = agt.PrivateRegressor(epsilon=1.0, range=(0, 100), declared=declared).fit(X, y)
        regressor.predict(X_new)  # [n] numbers from 0 to 100, at no further cost

    ``fit`` releases the weights once, solved from sums over the records to which noise was added.
    The fitted estimator holds only these weights and public constants, so it may be pickled and
    published, and answers any number of queries. Every ``fit`` spends epsilon again, also within a
    search over settings. So search on public records.

    Args:
        range: (a, b), the smallest and largest value that the target may have, from public
            knowledge. Values outside are clipped to the nearer end. The noise grows with b - a.
        epsilon, delta, columns, relation, unit_rows, ledger: as for ``PrivateClassifier``.
        declared: what you state about data and settings, on which the privacy claim rests. ``fit``
            refuses if a statement is missing, and names it.
        features: a public feature map in front of the weights, such as ``relu``, or a mapping with
            settings. None: features are divided by ``radius``, and longer rows brought to length 1.
            The radius is the square root of the number of columns if there are ``columns``, and
            else twice the square root of the number of features.

    Attributes:
        n_features_in_: the number of features of a record, or of columns of the data frame.
        columns_: the rules by which columns of data frames become features; None: features are
            numbers as given.
        released_: the released weights with the feature map (``agt.Portable``).
        guarantee_: all that may be said about the release, a sentence each: what is proved, and
            what was declared.
        total_guarantee_: what the ledger has spent in all after this fit; without a ledger, what
            this process has spent on some of the same people.
    """

    range: tuple[float, float] | None = None

    def fit(self, X: Any, y: Any, units: Any = None) -> "PrivateRegressor":
        """Solve the regression from noisy sums, release its weights, and return the estimator.

        Args:
            X: [n, d] numbers; or a data frame, of numbers or with ``columns``. Features should be
                at most about 1 in absolute value.
            y: [n] numbers.
            units: [n] the person (or other unit) that each record belongs to, with at most
                ``unit_rows`` records each; None: each record is a unit.

        Raises:
            ValueError: there is no range, a statement is missing in ``declared``, the data cannot
                be used, a setting is wrong, or the ledger's budget does not suffice.
            PrivacySumError: it is a second fit on some of the same people, in a search, a
                cross-validation, or with ``agt.accounting("strict")``. Nothing was drawn.

        Warns:
            Doubtful: features are far outside of [-1, 1], or values of y outside of the range.
                For the data owner only.
            PrivacySumWarning: it is a second fit on some of the same people, and no ledger counts.
        """
        with _value_errors(PRIVATE_ARGUMENTS):
            if self.range is None:
                raise ConfigError(
                    "range=(a, b): give the smallest and largest value that the target may have, "
                    "from public knowledge"
                )
            numbers = NumericTarget.declared(self.range)
        data = self._check_training_data(X, y, units, y_numeric=True)
        model = self._fit(data, units, numbers)
        for note in model.model.problem.dataset.notes:
            warn_user(note, Doubtful)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the numbers that the released weights give for queries, [n] float64.

        They are in the unit of the target, and within the range. It spends no privacy budget, so
        they may be published.

        Args:
            X: [n, d] numbers, or a data frame with the columns of the training data.

        Raises:
            ValueError: the queries do not fit the training data.
            sklearn.exceptions.NotFittedError: ``fit`` was not called.
        """
        check_is_fitted(self, "released_")
        return self.released_.numbers(self._queries(X))

    def _data_settings(self, columns: Columns | None) -> DataSettings:
        """Return the settings about data, with the usual radius unless ``features`` is given.

        Raises:
            ConfigError: epsilon or delta is not a number.
        """
        settings = super()._data_settings(columns)
        if settings.features is None:
            settings.features = {"radius": self._default_radius(columns)}
        return settings

    def _default_radius(self, columns: Columns | None) -> float:
        """Return the radius that features are divided by, unless ``features`` says otherwise.

        Each coded column has length 1, so no row is longer than the square root of their number.
        Twice that suits features of about 1, which are rarely all large in one row.

        Args:
            columns: the rules by which columns of a data frame become features; None: they are
                numbers.
        """
        if columns is None:
            return 2 * math.sqrt(self.n_features_in_)
        count = len(columns.numeric) + len(columns.categorical)
        # Crosses together weigh as much as all columns.
        return math.sqrt(2 * count if columns.crosses else count)
