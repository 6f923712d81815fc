"""Every violation that is planted, and every sound twin, by name."""

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
SOUND: dict[str, Callable[[int], Finding]] = {
    **mechanism.SOUND,
    **votes.SOUND,
    **certificate.SOUND,
    **dpsgd.SOUND,
    **membership.SOUND,
    **unlearning.SOUND,
}
