"""A scikit-learn estimator: certified training in pipelines, grid searches and notebooks.

    pipeline = make_pipeline(FunctionTransformer(lambda x: x / 16), agt.CertifiedClassifier(certificate="stability"))

A step in front of it that is fitted on the records (a scaler, PCA) makes every row depend on all of them: certificates are
then about the classifier alone, given those features, and ``declared.features`` must not be set.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from agt.api import Answers, Fitted, OnProgress, fit
from agt.data.labelled import Declared
from agt.errors import AgtError


@contextmanager
def _value_errors() -> Iterator[None]:
    """Errors as scikit-learn's own estimators raise them."""
    try:
        yield
    except AgtError as error:
        raise ValueError(str(error)) from error


@dataclass(kw_only=True, eq=False, repr=False)  # its parameters are its fields, as scikit-learn asks
class CertifiedClassifier(ClassifierMixin, BaseEstimator):
    """A classifier whose every answer has a stable distance (``certify``).

    Args:
        declared, network, activation, certificate, features, relation, ks, members, vote, margin_clip: as in ``agt.fit``.
        loss, epochs, lr, clip, batches, weight_decay, dtype, seed: of training; None: ``agt.fit``'s default.
        on_progress: called as training goes on; None: nothing is.

    Attributes:
        classes_: [C] the label values.
        n_features_in_: features of a record.
        model_: the trained ``agt.Fitted``.
    """

    declared: Declared | None = None
    network: Sequence[int] | nn.Sequential = ()
    activation: str | None = None
    certificate: str | None = None
    features: str | Mapping[str, Any] | None = None
    relation: str = "add_remove"
    ks: int | Sequence[int] = 50
    members: int = 1
    vote: str = "labels"
    margin_clip: float | None = None
    loss: str | None = None
    epochs: int | None = None
    lr: float | None = None
    clip: float | None = None
    batches: int | None = None
    weight_decay: float | None = None
    dtype: str | None = None
    seed: int | None = None
    on_progress: OnProgress | None = None

    def fit(self, X: Any, y: Any) -> "CertifiedClassifier":
        """Train with bounds.

        Args:
            X: [n, d] numbers.
            y: [n] labels.

        Raises:
            ValueError: data or settings that cannot be used, as scikit-learn's own estimators raise it.
        """
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32))
        check_classification_targets(y)
        listed = getattr(self.declared, "classes", None)
        self.classes_ = np.unique(y if listed is None else list(listed))
        if len(self.classes_) < 2:
            raise ValueError(f"Classifier can't train when only one class is present: {self.classes_[0]!r}")
        given: dict[str, Any] = {name: value for name, value in self.get_params(deep=False).items() if value is not None}
        if "batches" in given:
            given["batch"] = {"count": given.pop("batches")}
        with _value_errors():
            self.model_: Fitted = fit(X, y, **given)
        self.classes_ = np.sort(self.model_.classes)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """[n] labels of the nominal model."""
        with _value_errors():
            return self._model().predict(self._queries(X))

    def decision_function(self, X: Any) -> np.ndarray:
        """[n] the margin of ``classes_[1]`` over the other; of more classes [n, C], each logit less the best other's."""
        with _value_errors():
            margins = self._model().model.margins(self._queries(X))
        order = np.argsort(self.model_.classes)  # they may have been declared in another order
        if len(order) > 2:
            return margins[order].T
        return margins[0] if order[0] == 0 else -margins[0]

    def certify(self, X: Any) -> Answers:
        """Labels and stable distances (``agt.Fitted.certify``)."""
        with _value_errors():
            return self._model().certify(self._queries(X))

    def _model(self) -> Fitted:
        check_is_fitted(self)
        return self.model_

    def _queries(self, X: Any) -> np.ndarray:
        checked: np.ndarray = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        return checked
