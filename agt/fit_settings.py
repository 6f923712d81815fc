"""What ``agt.fit`` and the estimators take, each setting written down once.

A setting's field has its name, its type and its default. Where the command line has it too, the
field also has its key, from which follow the settings that training reads (``part``) and how errors
call it (``FIT_ARGUMENTS``).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from torch import nn

from agt.account import LEDGER_ARGUMENTS
from agt.data.labelled import Declared
from agt.data.table import Columns
from agt.errors import ConfigError
from agt.messages import ArgumentNames
from agt.models.kind import CertificateKind
from agt.settings import RelationName
from agt.training.loop import OnProgress

KEY = "key"
"""Of a field's metadata: what the command line calls the setting."""


@dataclass(kw_only=True, eq=False, repr=False)
class DataSettings:
    """What is said of data, and what is taken from it, as in ``agt.fit``."""

    declared: Declared | None = None
    columns: Columns | str | Path | None = None
    features: str | Mapping[str, Any] | None = field(
        default=None, metadata={KEY: "certificate.features"}
    )
    relation: RelationName = field(default="add_remove", metadata={KEY: "relation.name"})
    unit_rows: int = field(default=1, metadata={KEY: "relation.unit_rows"})

    def part(self, group: str) -> dict[str, Any]:
        """Return the settings of one group of the command line's, such as ``relation``.

        They have the names that the command line gives them. A setting whose default is None is
        left out where it is None; of any other, None is a value, which validation refuses.
        """
        settings = {}
        for entry in fields(self):
            key = entry.metadata.get(KEY, "")
            value = getattr(self, entry.name)
            is_unset = value is None and entry.default is None
            if key.startswith(f"{group}.") and not is_unset:
                settings[key.removeprefix(f"{group}.")] = value
        return settings


@dataclass(kw_only=True, eq=False, repr=False)
class FitSettings(DataSettings):
    """What ``agt.fit`` takes beside records, as its docstring says.

    Attributes:
        training: settings of ``TrainingConfig`` by name, beside those that are fields here; None:
            no others.
    """

    network: Sequence[int] | nn.Sequential = field(default=(), metadata={KEY: "model.hidden"})
    activation: str | None = field(default=None, metadata={KEY: "model.activation"})
    certificate: str | CertificateKind | Mapping[str, Any] | None = field(
        default=None, metadata={KEY: "certificate.name"}
    )
    radius: float | None = field(default=None, metadata={KEY: "relation.radius"})
    ks: int | Iterable[int] = field(default=50, metadata={KEY: "kgrid.max"})
    members: int = field(default=1, metadata={KEY: "ensemble.members"})
    learner: Any = field(default=None, metadata={KEY: "certificate.learner"})
    vote: str = field(default="labels", metadata={KEY: "ensemble.vote"})
    margin_clip: float | None = field(default=None, metadata={KEY: "ensemble.margin_clip"})
    compute: Mapping[str, Any] | None = field(default=None, metadata={KEY: "compute"})
    checkpoint: str | Path | None = None
    on_progress: OnProgress | None = None
    caution: float | None = field(default=None, metadata={KEY: "training.caution"})
    loss: str | None = field(default=None, metadata={KEY: "training.loss"})
    epochs: int | None = field(default=None, metadata={KEY: "training.epochs"})
    lr: float | None = field(default=None, metadata={KEY: "training.lr"})
    clip: float | None = field(default=None, metadata={KEY: "training.clip"})
    batches: int | None = field(default=None, metadata={KEY: "training.batch.count"})
    weight_decay: float | None = field(default=None, metadata={KEY: "training.weight_decay"})
    dtype: str | None = field(default=None, metadata={KEY: "training.dtype"})
    seed: int | None = field(default=None, metadata={KEY: "training.seed"})
    training: Mapping[str, Any] | None = None

    @classmethod
    def named(cls, arguments: Mapping[str, Any]) -> Self:
        """Return the settings that are among named arguments."""
        known = {entry.name for entry in fields(cls)}
        return cls(**{name: value for name, value in arguments.items() if name in known})

    @property
    def given_training(self) -> dict[str, Any]:
        """The settings of training that were given, as ``TrainingConfig`` takes them.

        Raises:
            ConfigError: the number of batches was given twice.
        """
        given = self.part("training") | dict(self.training or {})
        count = given.pop("batch.count", None)
        batch = given.get("batch", {})
        if count is None or not isinstance(batch, Mapping):
            return given
        if "count" in batch:
            raise ConfigError(
                f"batches={count!r} and batch={batch!r} both give the number of batches: "
                "leave one of them out"
            )
        return given | {"batch": {"count": count, **batch}}


FIT_ARGUMENTS = ArgumentNames(
    {entry.metadata[KEY]: entry.name for entry in fields(FitSettings) if entry.metadata}
    | {
        "relation": "relation",
        "certificate": "certificate",
        "certificate.": 'certificate["{}"]',
        "certificate.features.": 'features["{}"]',
        "features.": 'features["{}"]',
        "compute.": 'compute["{}"]',
        "ensemble": "members",
        "kgrid": "ks",
        "kgrid.values": "ks",
        "kgrid.values.": "ks[{}]",
        "model": "network",
        "model.hidden.": "network[{}]",
        "training.": "{}",
        "training.batch.": 'batch["{}"]',
        "training.chosen_on": "declared.settings",
        "dataset.declared_size": "declared.size",
        "dataset.classes": "declared.classes",
        "dataset.id": "ids",
        "dataset.unit": "units",
        "dataset.public": "public",
        "dataset.numeric.": "columns.numeric.{}",
    }
    | {  # a setting with its value, where Python asks for it in another way
        "model=linear": "network=()",
        "training.chosen_on=public": "agt.Declared(settings=True)",
        "kgrid=dense": "ks=K, one number",
        "compute=default": "the usual compute",
        "mechanism=release_weights": "agt.ReleaseWeights",
        "mechanism=randomized_response": "agt.RandomizedResponse",
        "agt unlearn": "the command agt unlearn",
        "+dataset.csv.decimal=','": "make the column one of numbers",
    }
    | dict(LEDGER_ARGUMENTS.arguments)
)
"""How errors call settings where ``agt.fit`` or a model's methods raise them."""
