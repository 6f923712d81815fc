"""From the arguments of ``agt.fit`` to the records and settings of a training problem."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from agt import facts
from agt.data.dataset import Dataset
from agt.data.in_memory import Declared, dataset_from_arrays
from agt.data.table import Columns
from agt.data.target import NumericTarget
from agt.errors import ConfigError
from agt.facts import Fact
from agt.fit_settings import DataSettings, FitSettings
from agt.messages import Message, joined
from agt.models.heads import CustomNetwork, HeadBuilder, HeadConfig
from agt.models.kind import CertificateKind
from agt.models.kinds import certificate_config, default_certificate
from agt.models.votes_recipe import VotesRecipe, votes_recipe
from agt.problem import Problem, Settings
from agt.relations import RELATIONS
from agt.settings import (
    DEFAULT_FEATURE_COUNTS,
    ComputeConfig,
    FeaturesConfig,
    KGridConfig,
    RelationConfig,
    TrainingConfig,
    validate,
)
from agt.training.learners import Learner
from agt.training.settings import EnsembleConfig

NETWORK_FORM = {"epochs": 4, "lr": 1, "clip": 0.1}
"""Training settings without a default -> a number that shows the form (docs/from_python.md)."""


@dataclass(frozen=True)
class TrainingData:
    """The records that a model is trained on, and what was declared about them.

    Attributes:
        dataset: the records, with features [n, ...] and class indices.
        classes: [C] the label values, in the order of their indices.
        declared: the user's statements.
        columns: the rules by which columns of a data frame became features; None: there was no
            coding.
    """

    dataset: Dataset
    classes: np.ndarray
    declared: Declared
    columns: Columns | None

    @classmethod
    def from_arrays(
        cls,
        x: Any,
        y: np.ndarray,
        settings: DataSettings,
        relation: RelationConfig,
        ids: np.ndarray | None = None,
        units: np.ndarray | None = None,
        public: np.ndarray | None = None,
        numbers: NumericTarget | None = None,
    ) -> "TrainingData":
        """Build the training data from arrays or a data frame.

        Args:
            x: [n, ...] features, or a pandas data frame.
            y: [n] labels.
            settings: the declarations about the data, and the rules that code columns.
            relation: the neighbour relation.
            ids: [n] unique names of the records; None: hashes of their content.
            units: [n] the person (or other unit) that each record belongs to; None: each record is
                a unit.
            public: [n] bool, True for public records; None: no record is public.
            numbers: the range of labels that are numbers; None: labels are classes.

        Raises:
            ConfigError: ``declared`` is no ``agt.Declared``, or ``columns`` is wrong.
            DataError: the data cannot be used.
        """
        declared = Declared() if settings.declared is None else settings.declared
        if not isinstance(declared, Declared):
            raise ConfigError(
                f"declared={declared!r} is not of the type agt.Declared: give "
                "declared=agt.Declared(...)"
            )
        columns = None if settings.columns is None else Columns.of(settings.columns, units)
        # Where edits change labels, ids are hashed without the label, so that they stay.
        label_free_ids = RELATIONS[relation.name].label_free_ids
        coding_facts = () if columns is None else columns.facts
        features = x if columns is None else columns(x)
        dataset, classes = dataset_from_arrays(
            features,
            y,
            declared,
            ids=ids,
            units=units,
            public=public,
            label_free=label_free_ids,
            column_facts=coding_facts,
            numbers=numbers,
        )
        return cls(dataset, classes, declared, columns)

    def problem(
        self,
        relation: RelationConfig,
        certificate: CertificateKind,
        training: dict[str, Any],
        **parts: Any,
    ) -> Problem:
        """Return the training problem of these records.

        Args:
            relation: the neighbour relation.
            certificate: the settings of the certificate.
            training: the training settings that were given, by name.
            parts: further fields of ``Settings`` by name, which replace the defaults.

        Raises:
            ConfigError: a training setting is unknown or wrong, or no proof covers the settings.
        """
        defaults: dict[str, Any] = {
            "kgrid": KGridConfig(max=50),
            "compute": ComputeConfig(),
            "ensemble": EnsembleConfig(),
        }
        settings = Settings(
            training=_build_training(certificate, training),
            relation=relation,
            certificate=certificate,
            noise=None,
            choices=_choices_fact(self.declared.settings),
            **(defaults | parts),
        )
        return Problem(self.dataset, settings)


def check_network(
    settings: FitSettings, head: HeadBuilder, certificate: CertificateKind, data: TrainingData
) -> None:
    """Raise ConfigError if a network cannot be trained; the message names everything.

    These are settings without a default for a network, and layers that cannot be used. If there is
    such a reason, the message also says what a release would need.

    Args:
        settings: the arguments of ``fit``.
        head: the linear head or network to be trained.
        certificate: the kind of certificate, which knows what is needed.
        data: the records, of which the shape and the number of classes are read.
    """
    given = settings.given_training
    problems: list[str | Message] = []
    if isinstance(head, CustomNetwork) and certificate.takes_hidden_layers:
        try:
            head.check(
                _build_training(certificate, NETWORK_FORM | given),
                data.dataset.train.features.shape[1:],
                len(data.classes),
                _width_without_bins(data.columns),
            )
        except ConfigError as error:
            problems.append(error.message)
    missing = certificate.missing_training_settings(head, given)
    if missing:
        numbers = NETWORK_FORM | {name: given[name] for name in NETWORK_FORM if name in given}
        form = ", ".join(f"{name}={number!r}" for name, number in numbers.items())
        network = "network"
        if isinstance(head, HeadConfig):
            network = repr(head.hidden)
        problems.append(
            f"network: agt has no default training settings for a network, so {', '.join(missing)} "
            "are missing. First try a linear head, network=(), which has defaults. For a network, "
            f"write agt.fit(x, y, network={network}, {form}, ks=5), where the numbers show the "
            "form and are no recommendation: choose yours on public data"
        )
    if problems:
        undeclared = undeclared_network(settings)
        if undeclared:
            problems.append(undeclared)
        raise ConfigError(joined(problems, ". "))


def undeclared_network(settings: FitSettings) -> str:
    """Return a sentence if a release may be refused only because of the initial parameters.

    That is so if settings are declared to be chosen on public data, but ``Declared.network`` is
    missing. Empty: it is not so.

    Args:
        settings: the arguments of ``fit``.
    """
    declared = settings.declared
    is_own_network = isinstance(settings.network, nn.Module)
    if not is_own_network or not isinstance(declared, Declared):
        return ""
    if declared.network or not declared.settings:
        return ""
    return (
        "No private answer of this network can be released without declared.network=True: declare "
        "agt.Declared(..., network=True) if its initial parameters are public constants, such as "
        "random numbers that were not trained on private records"
    )


def _width_without_bins(columns: Columns | None) -> dict[int, str]:
    """Return how many features a record has if each number is one feature -> the setting for it.

    Args:
        columns: the rules that code columns; None: no columns are coded, and the result is empty.
    """
    if columns is None or not columns.bins:
        return {}
    return {replace(columns, bins=0).feature_count: "columns=agt.Columns(..., bins=0)"}


def build_certificate(
    settings: FitSettings, head: HeadBuilder
) -> tuple[CertificateKind, Learner | None]:
    """Return the certificate that arguments of ``fit`` name, with its features and learner.

    Args:
        settings: the arguments; ``certificate``, ``features`` and ``learner`` are read.
        head: the linear head or network to be trained, which decides the default.

    Returns:
        The settings of the certificate; and the learner if it is the user's own, else None.

    Raises:
        ConfigError: the certificate is unknown, or takes no features or no learner.
    """
    certificate: CertificateKind
    if settings.certificate or settings.learner is not None:
        certificate = _named_certificate(settings.certificate or "votes")
    else:
        certificate = default_certificate(head)
    if settings.features is not None:
        certificate = certificate.with_features(build_features(settings.features))
    own_learner = None
    if settings.learner is not None:
        certificate, own_learner = certificate.with_learner(settings.learner)
    return certificate, own_learner


def _named_certificate(certificate: str | CertificateKind | Mapping[str, Any]) -> CertificateKind:
    """Return the settings of a certificate given as an object, a name, or a mapping of settings.

    Raises:
        ConfigError: the name or a setting is unknown, or a value has the wrong type.
    """
    if isinstance(certificate, CertificateKind):
        return certificate
    if isinstance(certificate, str):
        return certificate_config({"name": certificate})
    return certificate_config(certificate)


def recipe_of_votes(
    settings: FitSettings, certificate: CertificateKind, data: TrainingData
) -> VotesRecipe:
    """Return the rule for the default settings of votes on the data, from public facts alone.

    Args:
        settings: the arguments of ``fit``; the relation is read.
        certificate: the kind of certificate, which knows the members' learner.
        data: the records, of which only their coding and the kind of labels are read.
    """
    return votes_recipe(
        coded_columns=data.columns is not None,
        ridge=certificate.trains_ridge_members,
        numeric=data.dataset.target.numeric is not None,
        counts_label_flips=RELATIONS[settings.relation].counts_label_flips,
    )


def build_ensemble(
    settings: FitSettings,
    certificate: CertificateKind,
    size: int | None,
    training: Mapping[str, Any],
    recipe: VotesRecipe,
) -> EnsembleConfig:
    """Return the settings of the ensemble that arguments of ``fit`` describe.

    Args:
        settings: the arguments; ``members``, ``vote`` and ``margin_clip`` are read.
        certificate: the kind of certificate, which has a default number of members.
        size: the declared number of records; None: no number was declared.
        training: the training settings that were given, by name; ``caution`` is read.
        recipe: the default settings of votes on these data.

    Raises:
        ConfigError: a setting is wrong, or an ensemble has no declared size.
    """
    given = settings.part("ensemble")
    if given.get("members") == 1 and size is not None:
        # 1 is the default of ``fit`` and means that the certificate decides.
        caution = training.get("caution", 1.0)
        given["members"] = certificate.default_members(
            size, settings.unit_rows, caution, settings.relation, recipe
        )
    ensemble = validate(EnsembleConfig, given, "ensemble")
    if certificate.has_member_models(ensemble) and size is None:
        raise ConfigError(
            "members: all members of an ensemble divide by the same number of records, which "
            "must be public: give declared=agt.Declared(size=...)"
        )
    return ensemble


def build_features(given: str | Mapping[str, Any]) -> FeaturesConfig:
    """Return the settings of a feature map given by its name or by a mapping of settings.

    The number of features is a default of the map unless ``count`` is given.

    Args:
        given: the name, or ``map`` and other settings by name.

    Raises:
        ConfigError: the map or a setting is unknown, or a value is wrong.
    """
    settings: object = {"map": given} if isinstance(given, str) else given
    if isinstance(settings, Mapping):
        default_count = DEFAULT_FEATURE_COUNTS.get(str(settings.get("map")))
        if default_count is not None:
            settings = {"count": default_count, **settings}
    return validate(FeaturesConfig, settings, "certificate.features")


def build_head(settings: FitSettings) -> HeadBuilder:
    """Return the builder of the linear head or network that ``network`` describes.

    Args:
        settings: the arguments of ``fit``; ``network``, ``activation`` and ``declared`` are read.

    Raises:
        ConfigError: ``network`` is neither a sequence of widths nor an ``nn.Module`` that can be
            copied; or it has layers, and an activation is given besides.
    """
    network = settings.network
    if isinstance(network, nn.Module):
        if settings.activation is not None:
            raise ConfigError(
                f"activation={settings.activation!r} is for hidden layers that are given by their "
                "widths: leave it out, and put the activation among the layers of your network"
            )
        # A ``declared`` of another type is refused with the data.
        declared = settings.declared
        public_start = isinstance(declared, Declared) and declared.network
        return CustomNetwork.from_network(network, public_start)
    if isinstance(network, str) or not isinstance(network, Iterable):
        remedy = "give the widths of hidden layers, such as (64, 64), or an nn.Module"
        if isinstance(network, int):
            remedy = f"give the widths of hidden layers in a tuple, network=({network},)"
        elif callable(network):
            name = getattr(network, "__name__", "")
            if not name.isidentifier():  # a lambda has no name
                name = "make_net"
            remedy = f"give the network itself, not what makes it, as in network={name}()"
        elif isinstance(network, str):
            remedy = "give the network itself, an nn.Module, and not its name"
        raise ConfigError(f"network={network!r}: {remedy}")
    widths = tuple(network)
    if any(isinstance(width, nn.Module) for width in widths):
        raise ConfigError(
            "network: these are layers, but agt needs one network: give nn.Sequential(*layers)"
        )
    return validate(HeadConfig, settings.part("model") | {"hidden": widths}, "model")


def _build_training(certificate: CertificateKind, given: dict[str, Any]) -> TrainingConfig:
    """Return the training settings: those given, and for the others defaults of the certificate.

    Args:
        certificate: the kind of certificate, which has the defaults.
        given: the training settings that were given, by name.

    Raises:
        ConfigError: a setting is unknown or wrong.
    """
    for key in ("chosen_on", "chosen_for"):
        if key in given:
            raise ConfigError(
                f"{key} is not an argument of agt.fit: if every setting was chosen on public "
                "data, declare that with declared=agt.Declared(settings=True)"
            )
    return validate(TrainingConfig, {**certificate.training_defaults, **given}, "training")


def _choices_fact(is_declared: bool) -> Fact:
    """Return the fact that all settings were chosen on public data, or that it was not declared.

    Args:
        is_declared: the user's ``Declared.settings``.
    """
    if is_declared:
        return facts.declared("settings_chosen_on_public", setting="declared.settings=True")
    return facts.not_held("settings_undeclared", setting="declared.settings=True")
