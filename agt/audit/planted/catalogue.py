"""Every violation that is planted, by name."""

from collections.abc import Callable

from agt.audit.findings import Finding
from agt.audit.planted import certificate, mechanism, unlearning

PLANTED: dict[str, Callable[[int], Finding]] = {**certificate.PLANTED, **mechanism.PLANTED, **unlearning.PLANTED}
