"""Every violation that is planted, by name."""

from collections.abc import Callable

from agt.audit.findings import Finding
from agt.audit.planted import dpsgd, mechanism, unlearning

PLANTED: dict[str, Callable[[int], Finding]] = {**mechanism.PLANTED, **unlearning.PLANTED}
from agt.audit.planted import mechanism, votes

PLANTED: dict[str, Callable[[int], Finding]] = {**mechanism.PLANTED, **votes.PLANTED}
PLANTED: dict[str, Callable[[int], Finding]] = {**mechanism.PLANTED, **dpsgd.PLANTED, **unlearning.PLANTED}
