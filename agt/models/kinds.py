"""The list of all kinds of certificate, and how settings choose one."""

from collections.abc import Mapping

from agt.errors import ConfigError, nearest
from agt.messages import Message
from agt.models.box import BoxKind
from agt.models.erm import ErmKind
from agt.models.heads import HeadBuilder
from agt.models.kind import CertificateKind
from agt.models.own_votes import OwnVotesKind
from agt.models.removal import RemovalKind
from agt.models.stability import StabilityKind
from agt.models.votes import VotesKind
from agt.settings import validate

KINDS: tuple[type[CertificateKind], ...] = (
    BoxKind,
    StabilityKind,
    ErmKind,
    RemovalKind,
    VotesKind,
    OwnVotesKind,
)
"""Every kind. Two may share a name: ``CertificateKind.reads`` tells them apart."""


def certificate_config(node: object) -> CertificateKind:
    """Return settings of a certificate as an object of their kind, checked.

    Args:
        node: the settings by name, with the kind's ``name``; None: ``certificate=box``, for records
            of versions that had no other kind.

    Raises:
        ConfigError: the kind or a setting is unknown, or a value has another type.
    """
    if node is None:
        return BoxKind()
    if not isinstance(node, Mapping):
        # It raises, with a message that says which settings were expected.
        return validate(BoxKind, node, "certificate")
    for kind in KINDS:
        if kind.is_described_by(node):
            return validate(kind, node, "certificate")
    name = str(node.get("name"))
    names = dict.fromkeys(kind.name for kind in KINDS)
    raise ConfigError(
        Message(
            "{config:certificate.name}: unknown value '{name}'{hint}",
            name=name,
            hint=nearest(name, names),
        )
    )


def usual_certificate(head: HeadBuilder) -> CertificateKind:
    """Return the certificate that a head is trained for if the user names none."""
    return StabilityKind() if head.linear else BoxKind()
