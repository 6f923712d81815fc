"""The kinds of certificate that there are, each listed once."""

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
"""Every kind; a name that two share is settled by ``CertificateKind.reads``."""


def certificate_config(node: object) -> CertificateKind:
    """Return the certificate's settings as the kind that they are of.

    Args:
        node: a mapping of settings with their ``name``; None, as in records older than the choice:
            boxes.

    Raises:
        ConfigError: an unknown name or setting.
    """
    if node is None:
        return BoxKind()
    if not isinstance(node, Mapping):
        return validate(BoxKind, node, "certificate")  # which says what was expected
    for kind in KINDS:
        if kind.reads(node):
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
    """Return the certificate that a head is trained for where none is named."""
    return StabilityKind() if head.linear else BoxKind()
