"""agt: certified private machine learning. The library; the command line is the package
``agt_cli``. In short::

    import agt
    model = agt.fit(x, y)                          train with bounds for every k
    model.certify(queries).stable_distance         how many people's data it would take to change
                                                   each answer

What this package offers is loaded when it is first used, so that ``import agt`` takes no time.
"""

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agt.account import Ledger
    from agt.answers import Answers, NumberAnswers, Published
    from agt.api import fit, load
    from agt.certificates.box import Certificates
    from agt.certificates.conditions import Condition
    from agt.data.in_memory import Declared
    from agt.data.table import Columns
    from agt.distributed import together
    from agt.errors import (
        AgtError,
        CheckError,
        ConfigError,
        DataError,
        Doubtful,
        PrivacySumError,
        PrivacySumWarning,
        UnsoundError,
    )
    from agt.estimator import (
        CertifiedClassifier,
        CertifiedRegressor,
        PrivateClassifier,
        PrivateRegressor,
    )
    from agt.fitted import Fitted
    from agt.ledger.ledger import Exhausted
    from agt.ledger.process import PrivacyTotal, accounting
    from agt.mechanisms.argmax import GaussianArgmax, NoisyArgmax
    from agt.mechanisms.claims import Claim
    from agt.mechanisms.laplace_mean import LaplaceMean
    from agt.mechanisms.objective import ObjectivePerturbation
    from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
    from agt.mechanisms.planning import Budget, afford
    from agt.mechanisms.statistics import NoisyStatistics
    from agt.mechanisms.weights import ReleaseWeights
    from agt.models.portable import Portable
    from agt.progress import progress_bar
    from agt.unlearning.promise import Removal

__version__ = "0.22.0"

__all__ = [
    "AgtError",
    "Answers",
    "Budget",
    "Certificates",
    "CertifiedClassifier",
    "CertifiedRegressor",
    "CheckError",
    "Claim",
    "Columns",
    "Condition",
    "ConfigError",
    "DataError",
    "Declared",
    "Doubtful",
    "Exhausted",
    "Fitted",
    "GaussianArgmax",
    "GaussianMargin",
    "LaplaceMean",
    "Ledger",
    "NoisyArgmax",
    "NoisyStatistics",
    "NumberAnswers",
    "ObjectivePerturbation",
    "Portable",
    "PrivacySumError",
    "PrivacySumWarning",
    "PrivacyTotal",
    "PrivateClassifier",
    "PrivateRegressor",
    "Published",
    "RandomizedResponse",
    "ReleaseWeights",
    "Removal",
    "UnsoundError",
    "accounting",
    "afford",
    "fit",
    "load",
    "progress_bar",
    "together",
]
_NAMES_OF_MODULE = {
    "agt.account": ("Ledger",),
    "agt.answers": (
        "Answers",
        "NumberAnswers",
        "Published",
    ),
    "agt.api": (
        "fit",
        "load",
    ),
    "agt.certificates.box": ("Certificates",),
    "agt.certificates.conditions": ("Condition",),
    "agt.data.in_memory": ("Declared",),
    "agt.data.table": ("Columns",),
    "agt.distributed": ("together",),
    "agt.errors": (
        "AgtError",
        "CheckError",
        "ConfigError",
        "DataError",
        "Doubtful",
        "PrivacySumError",
        "PrivacySumWarning",
        "UnsoundError",
    ),
    "agt.estimator": (
        "CertifiedClassifier",
        "CertifiedRegressor",
        "PrivateClassifier",
        "PrivateRegressor",
    ),
    "agt.fitted": ("Fitted",),
    "agt.ledger.ledger": ("Exhausted",),
    "agt.ledger.process": (
        "PrivacyTotal",
        "accounting",
    ),
    "agt.mechanisms.argmax": (
        "GaussianArgmax",
        "NoisyArgmax",
    ),
    "agt.mechanisms.claims": ("Claim",),
    "agt.mechanisms.laplace_mean": ("LaplaceMean",),
    "agt.mechanisms.objective": ("ObjectivePerturbation",),
    "agt.mechanisms.optimal": (
        "GaussianMargin",
        "RandomizedResponse",
    ),
    "agt.mechanisms.planning": (
        "Budget",
        "afford",
    ),
    "agt.mechanisms.statistics": ("NoisyStatistics",),
    "agt.mechanisms.weights": ("ReleaseWeights",),
    "agt.models.portable": ("Portable",),
    "agt.progress": ("progress_bar",),
    "agt.unlearning.promise": ("Removal",),
}
_OTHER_NAMES = {"train": "fit", "Classifier": "CertifiedClassifier", "read": "load"}
"""A name that users may try -> the name that was probably meant."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, because its module may take long to load.

    Raises:
        AttributeError: there is no such name; the message proposes a similar one.
    """
    for module, names in _NAMES_OF_MODULE.items():
        if name in names:
            globals()[name] = getattr(import_module(module), name)
            return globals()[name]
    close = [_OTHER_NAMES[name]] if name in _OTHER_NAMES else get_close_matches(name, __all__, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise AttributeError(f"module 'agt' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    """Return all public names, also those that were not imported yet."""
    return sorted([*globals(), *__all__])
