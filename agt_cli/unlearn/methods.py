"""The methods by name, and which of them a run is worth: ``method=auto``."""

from typing import Literal

from agt.errors import ConfigError
from agt.settings import RemovalConfig
from agt.unlearning.promise import MethodName
from agt_cli.runs.prepare import RunSettings
from agt_cli.unlearn.job import Method
from agt_cli.unlearn.newton import newton
from agt_cli.unlearn.pending import pending
from agt_cli.unlearn.retrain import retrain
from agt_cli.unlearn.sisa import sisa

Choice = Literal["auto", "certificate", "newton", "sisa", "retrain"]
METHODS: dict[MethodName, Method] = {"certificate": pending, "newton": newton, "sisa": sisa, "retrain": retrain}


def chosen(choice: Choice, settings: RunSettings, fresh: bool) -> MethodName:
    """What ``auto`` means for a run, the cheapest whose guarantee can hold; else the choice, if the run is of its kind.

    ``auto`` never means ``certificate``, which removes nothing yet: whoever wants that says so.

    Args:
        fresh: whether everything that the state was drawn with is to be drawn anew.

    Raises:
        ConfigError: a method that is not for this kind of run.
    """
    removal, members = isinstance(settings.certificate, RemovalConfig), settings.ensemble.members
    if choice == "auto":
        return "newton" if removal else "sisa" if members > 1 and not fresh else "retrain"
    if choice == "newton" and not removal:
        raise ConfigError(
            f"method=newton: this run was trained with certificate={settings.certificate.name}, which keeps nothing that a "
            "Newton step starts from: train with certificate=removal, or give method=auto"
        )
    if choice == "sisa" and members == 1:
        raise ConfigError(
            "method=sisa: this run is no ensemble, so there is no part that had not seen the records: train with "
            "ensemble.members=10, or give method=auto"
        )
    return choice
