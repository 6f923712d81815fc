"""The list of all kinds of certificate, and how settings choose one."""

from agt.certificates.settings import read_certificate
from agt.models.box import BoxKind
from agt.models.erm import ErmKind
from agt.models.heads import HeadBuilder
from agt.models.kind import CertificateKind
from agt.models.own_votes import OwnVotesKind
from agt.models.removal import RemovalKind
from agt.models.stability import StabilityKind
from agt.models.votes import VotesKind

KINDS: tuple[type[CertificateKind], ...] = (
    BoxKind,
    StabilityKind,
    ErmKind,
    RemovalKind,
    VotesKind,
    OwnVotesKind,
)
"""The classes of all kinds of certificate.

Two of them have the name ``votes``. ``CertificateKind.reads`` decides from the settings which one
is meant.
"""


def certificate_config(node: object) -> CertificateKind:
    """Validate the settings of a certificate, and return them as an object of the class they name.

    Args:
        node: a mapping of settings that has the kind's ``name``, such as
            ``{"name": "stability", "average": 10}``.

    Raises:
        ConfigError: the kind or a setting is unknown, or a value has the wrong type.
    """
    return read_certificate(node, KINDS)


def default_certificate(head: HeadBuilder) -> CertificateKind:
    """Return the default certificate of a head: ``stability`` if it is linear, else ``box``."""
    return StabilityKind() if head.linear else BoxKind()
