"""What the record of a finished run tells of its answers, and whether a command can use them.

The record's small files tell it, so a command that cannot use the run is refused before NumPy or
PyTorch is loaded. Their hashes are compared later, by whoever opens the run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from agt.certificates.requirements import judge_requirements
from agt.certificates.settings import CERTIFICATES, CertificateConfig, read_certificate
from agt.errors import ConfigError
from agt.mechanism_settings import (
    OWN_MECHANISMS,
    LabelSettings,
    MechanismSettings,
    WeightsSettings,
)
from agt.release_settings import (
    BUDGET_KEYS,
    MIN_BUDGET,
    classes_for_numbers,
    distances_of_numbers,
    no_linear_head,
    no_votes,
    numbers_for_classes,
    weights_for_classes,
)
from agt.settings import RelationConfig, TotalConfig, validate
from agt.store.folder import Folder
from agt.targets import OWN_SETTINGS, own_settings
from agt.training.settings import EnsembleConfig
from agt_cli.command_settings.certify import check_certify
from agt_cli.command_settings.on_run import STANDARD_INPUT
from agt_cli.command_settings.predict import PredictSettings, check_mechanism, check_private_answers
from agt_cli.networks import NETWORK_CERTIFICATE
from agt_cli.report.finished import SOURCE_FILE, Run, has_pending_commit
from agt_cli.report.recorded_conditions import conditions_of


@dataclass(frozen=True)
class RecordedFacts:
    """What decides which answers of a run may be released.

    Attributes:
        has_numbers: whether the run answers with numbers; None: its data are of the user's own
            kind.
        classes: the number of classes; None: not recorded, or there are none.
        certificate: the settings of its certificate.
        ensemble: the settings of its ensemble.
        relation: the neighbour relation.
    """

    has_numbers: bool | None
    classes: int | None
    certificate: CertificateConfig
    ensemble: EnsembleConfig
    relation: RelationConfig

    @classmethod
    def read(cls, run: Run) -> Self | None:
        """Return the facts that a run recorded; None: its settings are not those of this version.

        Args:
            run: the training run. Its files are read without comparing their hashes.
        """
        config = run.config
        try:
            certificate = read_certificate(config.get("certificate"), CERTIFICATES)
            ensemble = validate(EnsembleConfig, config.get("ensemble", {}), "ensemble")
            relation = validate(RelationConfig, config.get("relation"), "relation")
        except ConfigError:
            return None  # whoever opens the run says what is wrong with the file
        return cls(
            _answers_with_numbers(config.get("dataset")),
            _count_classes(run),
            certificate,
            ensemble,
            relation,
        )

    def check_mechanism(self, kind: type[MechanismSettings]) -> None:
        """Raise ConfigError if a run has settings from which a mechanism cannot release.

        The mechanism itself checks the same, and more, when the model is there.

        Args:
            kind: the class of the mechanism's settings.
        """
        has_numbers = self.has_numbers
        if has_numbers is not None and kind.releases == "labels" and kind.of_numbers != has_numbers:
            raise classes_for_numbers(kind.name) if has_numbers else numbers_for_classes()
        if has_numbers and kind.releases == "a number":
            raise distances_of_numbers(kind.name)
        if kind.needs == "votes" and self.ensemble.members == 1:
            raise no_votes(kind.name)
        if issubclass(kind, WeightsSettings):
            self._check_weights(kind)

    def _check_weights(self, kind: type[WeightsSettings]) -> None:
        """Raise ConfigError if the run has no linear head that a mechanism can release.

        Args:
            kind: the class of the mechanism's settings.
        """
        if self.has_numbers:
            if not kind.releases_numbers:
                raise weights_for_classes(kind.name)
            return  # the mechanism itself says which models of numbers it takes
        is_network = self.certificate.name == NETWORK_CERTIFICATE
        if is_network or (self.ensemble.members > 1 and not kind.reads_records):
            raise no_linear_head(kind.name, kind.reads_records)
        kind.check_training(self.certificate, self.relation)

    def check_classes(self, node: Mapping[str, Any], total: TotalConfig) -> None:
        """Raise ConfigError if a mechanism of agt does not take as many classes as the run has.

        Args:
            node: the value of the key ``mechanism``, whose settings were checked.
            total: the budget of the whole call.
        """
        kind = own_settings(node)
        if self.classes is None or kind is None or not issubclass(kind, LabelSettings):
            return
        given = {key: value for key, value in node.items() if value is not None}
        check_mechanism({"classes": self.classes, **given}, total)

    def check_conditions(
        self, run: Run, kind: type[MechanismSettings], settings: PredictSettings
    ) -> None:
        """Raise ConfigError if a release requires a condition that the run recorded as not met.

        A condition that was not met then is not met now (``weaker_conditions``).

        Args:
            run: the training run. If the files with its settings or conditions are not those that
                it wrote, or while an erasure replaces them, nothing is checked.
            kind: the class of the mechanism's settings.
            settings: the other settings of the release.
        """
        if has_pending_commit(run.folder):
            return
        try:
            written = Folder.open(run.folder, "train", None, "run", verify=False)
            for name in ("config.yaml", "conditions.json"):
                written.read(name)  # called because it raises if the file was changed
            conditions = conditions_of(run)
        except ConfigError:
            return  # whoever opens the run says what is wrong with the file
        # Called because it raises if a required condition was not met; the rest is judged later.
        judge_requirements(
            conditions,
            self.relation.name,
            kind,
            settings.accounting,
            settings.counting,
            releases_weights=kind.releases == "weights",
        )


def check_answers(command: str, config: Mapping[str, Any], run: Run) -> None:
    """Raise ConfigError if the record of a run shows that a command cannot use its answers.

    Args:
        command: ``certify``, ``plan`` or ``predict``.
        config: the settings of the command, which were checked without the run.
        run: the training run. Its files are read without comparing their hashes.
    """
    facts = RecordedFacts.read(run)
    if facts is None:
        return
    if command == "certify" and facts.has_numbers is not None:
        check_certify(config).check_target(facts.has_numbers)
    if command == "plan":
        for name in config.get("mechanisms") or ():
            facts.check_mechanism(OWN_MECHANISMS[name])
    if command == "predict" and config.get("release") is None:
        kind = own_settings(config.get("mechanism"))
        settings, total = check_private_answers(config)
        if kind is not None:
            facts.check_mechanism(kind)
            facts.check_classes(config["mechanism"], total)
            facts.check_conditions(run, kind, settings)
        if settings.seed is None:
            check_ledger(config, run, kind, total)


def check_ledger(
    config: Mapping[str, Any], run: Run, kind: type[MechanismSettings] | None, total: TotalConfig
) -> None:
    """Raise AgtError if no ledger can pay for a release from a run.

    Args:
        config: the settings of ``agt predict``, which were checked without the run.
        run: the training run.
        kind: the class of the mechanism's settings; None: it is the user's own.
        total: the budget of the whole call.
    """
    # Imported only for releases, because it loads NumPy and SciPy.
    from agt.mechanisms.guarantees import guarantee_of_budget
    from agt_cli.releasing.payer import check_payer

    guarantee = None
    reads_lines = str(config.get("inputs")) == str(STANDARD_INPUT)
    budget = {} if kind is None else _least_budget(kind, config["mechanism"], total)
    if budget and not reads_lines:
        guarantee = guarantee_of_budget(budget)
    check_payer(
        config.get("ledger"),
        run,
        Path(str(config.get("output_dir") or ".")),
        guarantee,
        kind.name if kind is not None and kind.releases == "labels" else None,
    )


def _least_budget(
    kind: type[MechanismSettings], node: Mapping[str, Any], total: TotalConfig
) -> dict[str, float]:
    """Return the budget of one release, or a smaller one if the total is to be divided.

    Args:
        kind: the class of the mechanism's settings.
        node: the mechanism's settings, which were checked.
        total: the budget of the whole call.

    Returns:
        The settings that are a budget; none: the least delta of a release is not known.
    """
    if total.eps is None:
        return {key: node[key] for key in BUDGET_KEYS if node.get(key) is not None}
    keys = kind.budget_keys()
    return {} if "delta" in keys else dict.fromkeys(keys, MIN_BUDGET)


def _answers_with_numbers(dataset: object) -> bool | None:
    """Return whether labels are numbers; None: the data are of the user's own kind.

    Args:
        dataset: the recorded value of the key ``dataset``.
    """
    if not isinstance(dataset, Mapping):
        return None
    if str(dataset.get("_target_")) not in OWN_SETTINGS:
        return None
    return dataset.get("range") is not None


def _count_classes(run: Run) -> int | None:
    """Return the number of classes that a run recorded; None: it recorded none."""
    try:
        names = run.json(SOURCE_FILE).get("names")
    except ConfigError:
        return None
    return len(names) if isinstance(names, list) else None
