"""agt: certified private machine learning. The library; the command line is the package ``agt_cli``.

    import agt
    model = agt.fit(x, y)                          train with bounds for every k
    model.certify(queries).stable_distance         how many people's data it would take to change each answer

What this package offers is loaded when it is first used, so that ``import agt`` takes no time.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agt.account import Ledger
    from agt.api import Answers, Fitted, Published, fit, load
    from agt.data.labelled import Declared
    from agt.data.records import DataError
    from agt.data.table import Columns
    from agt.distributed import together
    from agt.errors import AgtError, ConfigError, PrivacySumError, PrivacySumWarning, UnsoundError
    from agt.estimator import CertifiedClassifier, PrivateClassifier
    from agt.ledger.process import accounting
    from agt.mechanisms.argmax import NoisyArgmax
    from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
    from agt.mechanisms.planning import Budget, afford

__version__ = "0.8.0"

# Before anything loads OpenMP: PyTorch and Numba keep a pool of threads each, and by default an idle pool spins. On a
# machine with other work to do, spinning pools made one training step ten times slower. A short spin (tens of
# microseconds) bridges the gap from one small operation to the next.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

__all__ = [
    "AgtError",
    "Answers",
    "Budget",
    "CertifiedClassifier",
    "Columns",
    "ConfigError",
    "DataError",
    "Declared",
    "Fitted",
    "GaussianMargin",
    "Ledger",
    "NoisyArgmax",
    "PrivacySumError",
    "PrivacySumWarning",
    "PrivateClassifier",
    "Published",
    "RandomizedResponse",
    "UnsoundError",
    "accounting",
    "afford",
    "fit",
    "load",
    "together",
]
_HOMES = {
    "agt.account": ("Ledger",),
    "agt.api": ("Answers", "Fitted", "Published", "fit", "load"),
    "agt.data.labelled": ("Declared",),
    "agt.data.table": ("Columns",),
    "agt.data.dataset": ("DataError",),
    "agt.distributed": ("together",),
    "agt.errors": ("AgtError", "ConfigError", "PrivacySumError", "PrivacySumWarning", "UnsoundError"),
    "agt.estimator": ("CertifiedClassifier", "PrivateClassifier"),
    "agt.ledger.process": ("accounting",),
    "agt.mechanisms.argmax": ("NoisyArgmax",),
    "agt.mechanisms.optimal": ("GaussianMargin", "RandomizedResponse"),
    "agt.mechanisms.planning": ("Budget", "afford"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            globals()[name] = getattr(import_module(home), name)
            return globals()[name]
    raise AttributeError(f"module 'agt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
