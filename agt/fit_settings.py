"""The settings that ``agt.fit`` and the estimators take, each with its type and default.

A field's metadata holds the key that the command line has for the setting. From it follow the
settings that training reads (``part``), and the names in error messages (``FIT_ARGUMENTS``).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from torch import nn

from agt.account import LEDGER_ARGUMENTS
from agt.data.in_memory import Declared
from agt.data.table import Columns
from agt.errors import ConfigError
from agt.messages import ArgumentNames
from agt.models.kind import CertificateKind
from agt.settings import RelationName, TrainingConfig
from agt.training.loop import OnProgress

KEY = "key"
"""The entry of a field's metadata that holds the command line's key for the setting."""


@dataclass(kw_only=True, eq=False, repr=False)
class DataSettings:
    """The settings about data, which ``agt.fit`` and both estimators take.

    Attributes:
        declared: the user's statements about data and settings, on which privacy claims rest; None:
            nothing.
        columns: the columns of a data frame that become features, with the public constants that
            code them; or the path of a dataset file that holds them. None: features are numbers as
            given.
        features: a public feature map in front of a linear head: ``relu``, ``landmarks``,
            ``scattering``, or a mapping with ``map`` and its settings; None: no map.
        relation: the name of the relation, which says what one edit of the training records is,
            such as ``add_remove``.
        unit_rows: the largest number of records of one unit (a person), a public constant.
    """

    declared: Declared | None = None
    columns: Columns | str | Path | None = None
    features: str | Mapping[str, Any] | None = field(
        default=None, metadata={KEY: "certificate.features"}
    )
    relation: RelationName = field(default="add_remove", metadata={KEY: "relation.name"})
    unit_rows: int = field(default=1, metadata={KEY: "relation.unit_rows"})

    def part(self, group: str) -> dict[str, Any]:
        """Return the settings of one group of the command line, by the command line's names.

        For example ``part("relation")`` returns ``{"name": "add_remove", "unit_rows": 1}``. A
        setting is left out if it is None and None is its default. Any other None is returned, so
        that validation refuses it.

        Args:
            group: the name of the group: certificate, relation, model, ensemble or training.
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
    """All settings of ``agt.fit``; its docstring says what each means.

    Attributes:
        training: further settings of ``TrainingConfig`` by name, such as ``{"momentum": 0.9}``;
            None: there are no others.
    """

    network: Sequence[int] | nn.Module = field(default=(), metadata={KEY: "model.hidden"})
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
    verbose: bool = False
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
        """Return the settings among named arguments; other arguments are ignored.

        Args:
            arguments: name -> value, such as ``locals()`` of ``agt.fit``.
        """
        names = {entry.name for entry in fields(cls)}
        return cls(**{name: value for name, value in arguments.items() if name in names})

    @property
    def given_training(self) -> dict[str, Any]:
        """The settings of ``TrainingConfig`` that were given, by name; others keep their defaults.

        Raises:
            ConfigError: the number of batches was given twice, as ``batches`` and in ``batch``.
        """
        given = self.part("training") | dict(self.training or {})
        # ``batches`` has the key training.batch.count: it belongs into the mapping ``batch``.
        count = given.pop("batch.count", None)
        batch = given.get("batch", {})
        if count is None or not isinstance(batch, Mapping):
            return given
        if "count" in batch:
            raise ConfigError(
                f"batches={count!r} and batch={batch!r} both determine the number of batches: "
                "leave out either batches= or batch="
            )
        return given | {"batch": {"count": count, **batch}}


FIT_PARAMETERS = frozenset(
    (
        *("x", "y", "target", "range", "ids", "units", "public"),
        *(entry.name for entry in fields(FitSettings) if entry.name != "training"),
        *(entry.name for entry in fields(TrainingConfig)),
    )
)
"""The names of all keyword arguments of ``agt.fit``."""
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
        # the two names that users of the command line have for training.clip
        "training.clip_elementwise": "clip",
        "training.clip_derivative": "clip",
        "training.batch.": 'batch["{}"]',
        "training.chosen_on": "declared.settings",
        "dataset.declared_size": "declared.size",
        "dataset.classes": "declared.classes",
        "dataset.target": "target",
        "dataset.range": "range",
        "dataset.id": "ids",
        "dataset.unit": "units",
        "dataset.public": "public",
        "dataset.unit=COLUMN relation.unit_rows=NUMBER": "units=... and unit_rows=NUMBER",
        "dataset.numeric.": "columns.numeric.{}",
        "simulate": "seed",
        "unproved=refuse": 'accounting="rigorous"',
        "unproved=allow": 'accounting="paper"',
    }
    | {  # a setting with a value, for which Python has another argument
        "model=linear": "network=()",
        "certificate=stability model=linear": "network=()",
        "training.dtype=float64": 'dtype="float64"',
        "dataset.center=0.5 dataset.public_scaling=true": "x - 0.5 (of queries as well)",
        "dataset.center=KEY": "x - center (of queries as well)",
        "dataset.scale=NUMBER": "x * number (of queries as well)",
        "training.chosen_on=public": "agt.Declared(settings=True)",
        "kgrid=dense": "ks=K, one number",
        "compute=default": "the usual compute",
        "mechanism=release_weights": "agt.ReleaseWeights",
        "mechanism=objective_perturbation": "agt.ObjectivePerturbation",
        "mechanism=noisy_statistics": "agt.NoisyStatistics",
        "mechanism=randomized_response": "agt.RandomizedResponse",
        "mechanism=gaussian_margin": "agt.GaussianMargin",
        "mechanism=laplace_mean": "agt.LaplaceMean",
        "agt unlearn": "the command agt unlearn",
        "+dataset.csv.decimal=','": "convert this column to numbers",
    }
    | dict(LEDGER_ARGUMENTS.arguments)
)
"""Key of the command line -> what error messages of ``agt.fit`` and ``Fitted`` call the setting."""
