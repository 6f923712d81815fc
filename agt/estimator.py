"""scikit-learn estimators: certified and private training in pipelines, grid searches and
notebooks.

    pipeline = make_pipeline(FunctionTransformer(lambda x: x / 16),
    agt.CertifiedClassifier(certificate="stability"))

    agt.PrivateClassifier(epsilon=1.0, declared=agt.Declared(...)).fit(x, y)
                                             released weights, which may be published

A step in front of it that is fitted on the records (a scaler, PCA) makes every row depend on all of
them: certificates are then about the classifier alone, given those features, and
``declared.features`` must not be set.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any
from warnings import warn

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from agt.account import Ledger, total_so_far
from agt.api import Answers, Fitted, Published, doubts_of, fit_with, untrained_head
from agt.arrays import Labels, Margins, Probabilities
from agt.data.frames import as_pandas
from agt.data.table import Columns
from agt.errors import AgtError, ConfigError, Doubtful, PrivacySumError, naming_settings
from agt.fit_settings import FIT_ARGUMENTS, DataSettings, FitSettings
from agt.ledger.process import PROCESS
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.statistics import NoisyStatistics
from agt.messages import ArgumentNames
from agt.models.portable import Portable
from agt.models.shares import logistic_shares
from agt.unlearning.promise import Removal


class SettingError(ConfigError, ValueError):
    """A ConfigError of an estimator, which scikit-learn expects to be a ValueError."""


PRIVATE_ARGUMENTS = ArgumentNames({**FIT_ARGUMENTS.arguments, "eps": "epsilon"})
"""How errors of ``PrivateClassifier`` call settings."""


@contextmanager
def _value_errors(names: ArgumentNames = FIT_ARGUMENTS) -> Iterator[None]:
    """Errors as scikit-learn's own estimators raise them, naming arguments."""
    try:
        with naming_settings(names):
            yield
    except PrivacySumError:
        raise
    except ConfigError as error:
        raise SettingError(str(error)) from error
    except AgtError as error:
        raise ValueError(str(error)) from error


class _Classifier(ClassifierMixin, BaseEstimator, DataSettings):
    """What both estimators do with arrays and data frames."""

    columns_: Columns | None

    @_value_errors()
    def _training(
        self, X: Any, y: Any, units: Any
    ) -> tuple[np.ndarray, np.ndarray, Columns | None]:
        # The columns as they were read once: a file may be another one when queries come.
        columns = None if self.columns is None else Columns.of(self.columns, units)
        X = as_pandas(X)
        if columns is None:
            X, y = validate_data(self, X, y, dtype=(np.float64, np.float32))
        else:
            y, self.n_features_in_ = column_or_1d(y), len(getattr(X, "columns", ()))
        check_classification_targets(y)
        listed = getattr(self.declared, "classes", None)
        values = np.unique(y if listed is None else list(listed))
        if len(values) < 2:
            raise ValueError(
                f"Classifier can't train when only one class is present: {values[0]!r}"
            )
        return X, y, columns

    @_value_errors()
    def _queries(self, X: Any) -> np.ndarray:
        X = as_pandas(X)
        if self.columns_ is not None:
            return self.columns_.code_queries(X)
        checked: np.ndarray = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        return checked

    def _sorted(self, margins: np.ndarray, classes: np.ndarray) -> np.ndarray:
        order = np.argsort(classes)  # they may have been declared in another order
        if len(order) > 2:
            return margins[order].T
        return margins[0] if order[0] == 0 else -margins[0]


# its parameters are its fields, as scikit-learn asks
@dataclass(kw_only=True, eq=False, repr=False)
class CertifiedClassifier(_Classifier, FitSettings):
    """A classifier whose every answer has a stable distance (``certify``).

    Args:
        declared, columns, network, and every other setting: as in ``agt.fit``; ``training`` is a
            mapping of those that have no argument of their own, such as ``{"momentum": 0.9}``.

    Attributes:
        classes_: [C] the label values.
        n_features_in_: features of a record, or columns of its data frame.
        columns_: how data frames are coded; None: they are not.
        model_: the trained ``agt.Fitted``.
    """

    def fit(
        self, X: Any, y: Any, ids: Any = None, units: Any = None, public: Any = None
    ) -> "CertifiedClassifier":
        """Train with bounds.

        Args:
            X: [n, d] numbers; or a data frame, with ``columns``.
            y: [n] labels.
            ids: [n] unique names of the records, by which ``unfit`` takes some out; None: hashes of
                their content.
            units: [n] whose each record is, at most ``unit_rows`` of one; None: each is a unit of
                its own.
            public: [n] bool, True where a record is public; None: all are private.

        Raises:
            ValueError: data or settings that cannot be used, as scikit-learn's own estimators raise
                it.
        """
        X, y, columns = self._training(X, y, units)
        settings = FitSettings.named(self.get_params(deep=False) | {"columns": columns})
        with _value_errors():
            model = fit_with(settings, X, y, ids, units, public)
        for doubt in doubts_of(model, X):
            warn(doubt, Doubtful, stacklevel=2)
        self.model_: Fitted = replace(model, names=tuple(getattr(self, "feature_names_in_", ())))
        self.columns_, self.classes_ = columns, np.sort(self.model_.classes)
        return self

    def predict(self, X: Any) -> Labels:
        """Return labels [n], values of ``classes_``, from the trained model, without noise."""
        with _value_errors():
            return self._model().predict(self._queries(X))

    def decision_function(self, X: Any) -> Margins:
        """Return each class's lead: of two classes [n], the margin of ``classes_[1]``.

        Of more classes [n, C]: each class's logit less the greatest logit of the others.
        The predicted class has the greatest lead.
        """
        with _value_errors():
            return self._sorted(self._model().model.margins(self._queries(X)), self.model_.classes)

    def predict_proba(self, X: Any) -> Probabilities:
        """Return probabilities [n, C]: the sigmoid or softmax, or the members' shares of votes.

        No certificate is about them.
        """
        with _value_errors():
            shares = self._model().model.shares(self._queries(X))
        return shares[:, np.argsort(self.model_.classes)]

    def certify(self, X: Any) -> Answers:
        """Return labels and stable distances, as ``agt.Fitted.certify`` does."""
        with _value_errors():
            return self._model().certify(self._queries(X))

    def release(
        self, X: Any, mechanism: Mechanism, *, ledger: Ledger | str | Path | None = None
    ) -> Published:
        """Return labels that may be published, as ``agt.Fitted.release`` does.

        Every call spends the mechanism's guarantee again.
        """
        with _value_errors():
            return self._model().release(self._queries(X), mechanism, ledger=ledger)

    def unfit(self, ids: Sequence[object]) -> tuple["CertifiedClassifier", Removal]:
        """Return (a new estimator trained without these ids, what is promised of it).

        As ``agt.Fitted.unfit``; this estimator is not changed.
        """
        with _value_errors():
            left, removal = self._model().unfit(ids)
        estimator = copy(self)
        estimator.model_ = left
        return estimator, removal

    def _model(self) -> Fitted:
        check_is_fitted(self, "model_")
        return self.model_


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateClassifier(_Classifier):
    """A linear classifier on public features whose weights are released once, under (epsilon,
    delta)-differential privacy.

    Fitted, it holds the released weights and public constants alone, so that it may be pickled and
    published, and answers any number of queries. Every ``fit`` spends epsilon anew, those of a
    search over settings too: search on public rows.

    Args:
        epsilon, delta: of one ``fit``.
        declared: what you say of data and settings, which the claim rests on; what is missing is
            named.
        columns, features, relation, unit_rows: as in ``agt.fit``.
        ledger: or its path: that pays for each ``fit``, before anything is drawn. To name it
            declares that units are people of its population. None: no ledger counts; a second fit
            on some of the same people warns with the total (``PrivacySumWarning``), and is refused
            in a search or a cross-validation (``PrivacySumError``).

    Attributes:
        classes_: [C] the label values.
        n_features_in_: features of a record, or columns of its data frame.
        columns_: how data frames are coded; None: they are not.
        total_guarantee_: where the ledger's counter stands after this fit; without one, what
            releases of this process about some of the same people cost together.
        released_: the weights, with the public features in front of them.
        guarantee_: all that may be said of the release, a line each: what is proved, and what was
            declared.

    The weights are solved from noisy sums over the records (mechanisms/statistics.py).
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    ledger: Ledger | str | Path | None = None

    def fit(self, X: Any, y: Any, units: Any = None) -> "PrivateClassifier":
        """Train, and release the weights.

        Args:
            X: [n, d] numbers; or a data frame, with ``columns``.
            y: [n] labels.
            units: [n] whose each record is, at most ``unit_rows`` of one; None: each is a unit of
                its own.

        Raises:
            ValueError: a declaration that the claim rests on is missing, data or settings that
                cannot be used, or the ledger's budget does not hold it.
            PrivacySumError: it is a second fit on some of the same people where that is refused;
                nothing was drawn.
        """
        X, y, columns = self._training(X, y, units)
        settings = DataSettings(
            declared=self.declared,
            columns=columns,
            features=self.features,
            relation=self.relation,
            unit_rows=self.unit_rows,
        )
        with _value_errors(PRIVATE_ARGUMENTS):
            for name in ("epsilon", "delta"):
                value = getattr(self, name)
                if isinstance(value, bool) or not isinstance(value, Real):
                    raise ConfigError(f"{name}={value!r}: give a number")
            model = untrained_head(settings, X, y, units)
            mechanism = NoisyStatistics.within(self.epsilon, self.delta)
            self.released_: Portable = model.release_weights(
                mechanism, self.delta, ledger=self.ledger
            )
            self.total_guarantee_ = total_so_far(self.ledger, model.owner)
        self._values: np.ndarray = model.classes
        self.columns_, self.classes_ = columns, np.sort(model.classes)
        return self

    @property
    def guarantee_(self) -> tuple[str, ...]:
        """All that may be said of the release, a line each."""
        check_is_fitted(self, "released_")
        return self.released_.words

    def predict(self, X: Any) -> Labels:
        """Return labels [n], values of ``classes_``, from the released weights; spends nothing."""
        check_is_fitted(self, "released_")
        labels: Labels = self._values[self.released_.labels(self._queries(X))]
        return labels

    def decision_function(self, X: Any) -> Margins:
        """Return each class's lead: of two classes [n], the margin of ``classes_[1]``.

        Of more classes [n, C]: each class's score less the greatest score of the others.
        The predicted class has the greatest lead.
        """
        check_is_fitted(self, "released_")
        return self._sorted(self.released_.margins(self._queries(X)), self._values)

    def predict_proba(self, X: Any) -> Probabilities:
        """Return probabilities [n, C], the softmax of the released scores; nothing is spent.

        Its slope is worked out from what was released.
        """
        check_is_fitted(self, "released_")
        slope = self.released_.slope
        assert slope is not None  # the mechanism that fit takes releases one
        shares = logistic_shares(slope * self.released_.margins(self._queries(X)))
        return shares[:, np.argsort(self._values)]

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: not the total of this process, which tells whose records other
        fits had, too.
        """
        state: dict[str, Any] = super().__getstate__()
        if self.ledger is None:
            state = {name: value for name, value in state.items() if name != "total_guarantee_"}
        return state

    def __sklearn_clone__(self) -> "PrivateClassifier":
        """Return an unfitted copy.

        Raises:
            PrivacySumError: a search or cross-validation asks for it that has fitted once, on no
                ledger.
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
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags
