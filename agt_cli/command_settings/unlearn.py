"""Settings of agt unlearn."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from agt.certificates.settings import CERTIFICATES, CertificateConfig
from agt.errors import ConfigError, nearest
from agt.training.settings import EnsembleConfig
from agt_cli.configuration import check_keys, read_digest_setting
from agt_cli.renamed import with_new_name
from agt_cli.usage import IDS_NEED_A_FILE, ids_by_pipe

By = Literal["id", "unit"]
UnknownIds = Literal["refuse", "ignore"]
METHOD_CHOICES = ("auto", "certificate", "newton", "sisa", "retrain")
"""``method`` of agt unlearn: what ``agt_cli.unlearn.methods.METHODS`` has, or the cheapest."""
UNLEARN_KEYS = (
    *("run", "digest", "ids", "by", "method", "forbid_retraining", "fresh", "rehearse"),
    *("unknown", "compute", "output_dir"),
)
CERTIFICATE_OF_METHOD = {kind.own_erasure: kind.name for kind in CERTIFICATES if kind.own_erasure}
"""A method of erasure that a kind of certificate has of its own -> the certificate's name."""
UNLEARN_FLAGS = ("forbid_retraining", "fresh", "rehearse")


def check_unlearn(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a wrong setting of agt unlearn; the run and the ids are not read."""
    check_keys(config, UNLEARN_KEYS)
    _check_choice(config, "method", METHOD_CHOICES)
    if config.get("by") is not None:  # None: the command chooses
        _check_choice(config, "by", get_args(By))
    _check_choice(config, "unknown", get_args(UnknownIds))
    for key in UNLEARN_FLAGS:
        value = config.get(key)
        if not isinstance(value, bool):
            shown = with_new_name("unlearn", key)
            raise ConfigError(f"{shown}={value}: give true or false")
    if isinstance(config.get("ids"), list | dict):
        run = str(config.get("run") or "RUN")
        raise ConfigError(f"ids=[...]: {IDS_NEED_A_FILE}. Without a file, {ids_by_pipe(run)}")
    read_digest_setting(config, "digest")  # called because it raises if it is no digest


def no_column_of_ids(path: Path) -> ConfigError:
    """Return the refusal of a table of ids none of whose columns is known to have ids."""
    return ConfigError(
        f"ids={path}: no column of this file has the name of the dataset's id or unit "
        "column. Rename the column of ids, or write one id per line into a .txt file"
    )


def check_method(method: str, certificate: CertificateConfig, ensemble: EnsembleConfig) -> None:
    """Raise ConfigError if a method of erasure is not possible for a kind of run.

    Args:
        method: the method, not ``auto``.
        certificate: the settings of the run's certificate.
        ensemble: the settings of its ensemble.
    """
    if method in certificate.erasure_methods(ensemble):
        return
    if method in CERTIFICATE_OF_METHOD:
        needed = CERTIFICATE_OF_METHOD[method]
        raise ConfigError(
            f"method={method}: this run was trained with "
            f"certificate={certificate.name}, which does not store what this method "
            f"needs: train with certificate={needed}, or give method=auto"
        )
    raise ConfigError(
        "method=sisa needs an ensemble of separately trained models, but this run is not "
        "such an ensemble: give method=auto. To use method=sisa later, train with "
        "ensemble.members=10, and with certificate=votes without a learner of your own"
    )


def _check_choice(config: Mapping[str, Any], key: str, choices: Sequence[str]) -> None:
    """Raise ConfigError unless the value of a setting is one of ``choices``."""
    value = config.get(key)
    if value not in choices:
        raise ConfigError(f"{key}={value}: unknown value{nearest(str(value), choices)}")
