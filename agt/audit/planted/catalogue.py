"""Every violation that is planted, by name."""

from collections.abc import Callable

from agt.audit.findings import Finding
from agt.audit.planted import certificate, dpsgd, mechanism, membership, unlearning, votes

PLANTED: dict[str, Callable[[int], Finding]] = {
    **mechanism.PLANTED,
    **votes.PLANTED,
    **certificate.PLANTED,
    **dpsgd.PLANTED,
    **membership.PLANTED,
    **unlearning.PLANTED,
}
