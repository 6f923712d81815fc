"""Every violation that is planted, by name."""

from collections.abc import Callable

from agt.audit.findings import Finding
from agt.audit.planted import dpsgd, mechanism, unlearning

PLANTED: dict[str, Callable[[int], Finding]] = {**mechanism.PLANTED, **dpsgd.PLANTED, **unlearning.PLANTED}
