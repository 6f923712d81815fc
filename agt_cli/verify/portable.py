"""Compare a folder of released weights with itself and with the runs that it comes from.

Formal guarantees
    - Where the run that released the weights and its training run are there, every field of
      release.json, every array of weights.npz and the claim are derived from them again.
    - Without these runs, whatever follows from other fields of the folder is compared: the
      guarantee, the lattice, the constants and README.md. The rest is listed as not checked.
    - No code that is not part of agt is loaded.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agt import __version__
from agt.errors import ConfigError
from agt.mechanisms.claims import Claim, read_claim
from agt.mechanisms.output import Output
from agt.mechanisms.totals import total_of_weights
from agt.models.model import Model
from agt.models.portable import README, RELEASE, WEIGHTS, Portable
from agt.settings import plain_of
from agt.store.json_text import as_json
from agt.store.reading import MAX_TEXT_BYTES, Broken
from agt.targets import is_own_code
from agt_cli.report.finished import SOURCE_FILE
from agt_cli.runs.prepare import encoder_settings
from agt_cli.verify.comparison import check_entries, check_match, rendered_alike
from agt_cli.verify.folders import Record, model_of
from agt_cli.verify.pages import CLAIM_FILE
from agt_cli.verify.release import compare_claims, guarantee_from_parameters, requested_mechanism
from agt_cli.verify.weights import WEIGHTS_FILE, check_lattice, read_released_weight

RELEASES = "predict"
"""The command that releases weights."""
FROM_TRAINING = (
    "the fields 'name', 'classes', 'source', 'features', 'width', 'dtype', 'radius' and 'bias'"
)
"""Fields of release.json, and with them the matrices of weights.npz."""
RELEASING_RUN = "the run that released the weights"
FROM_RELEASE = f"{FROM_TRAINING}, the noise, the mechanism and the weights"


@dataclass(frozen=True)
class RunsBehind:
    """The runs that released weights come from, as far as they were found.

    Attributes:
        release: the run that drew the weights; None: it was not found.
        training: the training run, in the state that the weights were drawn from; None: it was not
            found in that state.
    """

    release: Record | None = None
    training: Record | None = None


@dataclass(frozen=True)
class DrawnWeights:
    """Weights as the record of their release has them, in the form of ``Portable.from_release``.

    Attributes:
        weight: [1 or classes, outputs] float64: the released weights.
        public_parameters: the guarantee's parameters and the noise, by name.
        simulated: whether they were drawn with a seed.
        mechanism: the name of the mechanism that drew them.
        slope: always None, because no record contains it.
    """

    weight: np.ndarray
    public_parameters: dict[str, float]
    simulated: bool
    mechanism: str
    slope: None = None

    @classmethod
    def of(cls, release: Record) -> "DrawnWeights":
        """Read weights and noise from a release's record, and the mechanism from its settings.

        Raises:
            Broken: a file of the release cannot be read.
        """
        public_parameters = dict(release.json(WEIGHTS_FILE))
        simulated = bool(public_parameters.pop("simulated", False))
        mechanism = requested_mechanism(release).kind.name
        return cls(read_released_weight(release), public_parameters, simulated, mechanism)


def check_portable(record: Record, runs: RunsBehind) -> Portable | None:
    """Check a folder of released weights, and note the results in ``record.findings``.

    Args:
        record: the record of the folder.
        runs: the runs that it comes from, as far as they were found.

    Returns:
        The content of the folder; None: release.json or weights.npz cannot be read.
    """
    findings = record.findings
    claimed: Claim | None = None
    with findings.recording_errors(CLAIM_FILE):
        claimed = read_claim(record.read(CLAIM_FILE, MAX_TEXT_BYTES))
        _compare_claim_with_release(claimed, runs.release)
    with findings.recording_errors(RELEASE):
        portable = Portable.read(record)
        findings.ok(
            RELEASE,
            f"{RELEASE} has the form that agt writes. Its answers are {portable.answers} of the "
            f"dataset {portable.name}",
        )
        target = str(portable.source.get("_target_"))
        if not is_own_code(target):
            findings.note(
                "code",
                f"queries to this release are read by the code {target}, which is not part of "
                "agt; `agt verify` did not import this code",
            )
        with findings.recording_errors("noise"):
            check_lattice(portable.weight, portable.noise, findings)
        if claimed is not None:
            record.run_check("budget", _check_portable_claim, portable, claimed)
        record.run_check("fields", _check_fields, portable, claimed)
        record.run_check("origin", _compare_with_runs, portable, runs)
        return portable
    return None


def _check_fields(record: Record, portable: Portable, claimed: Claim | None) -> str:
    """Check that release.json and README.md are what agt writes for the weights in the folder.

    Everything is compared if this version of agt wrote the folder, for a dataset of its own.
    Otherwise the fields that this version derives as well are compared, and README.md is not, which
    is noted.

    Args:
        record: the record of the folder; takes the note.
        portable: the content of the folder.
        claimed: the claim in claim.json, which names the version of agt; None: it cannot be read,
            so the version is taken to be another.

    Returns:
        A sentence with the number of fields that were compared.

    Raises:
        Broken: a field or the text of README.md differs.
    """
    recorded = record.json(RELEASE)
    derived = _json_of(portable.recorded_fields)
    other_maker = ""
    if claimed is None or claimed.agt != __version__:
        other_maker = "another version of agt"
        del derived["features"]  # another version may have had other settings
    if not is_own_code(str(portable.source.get("_target_"))):
        other_maker = "code from outside of agt"
    if other_maker:
        derived = {name: value for name, value in derived.items() if name in recorded}
        check_entries(RELEASE, recorded, "its other values", derived)
        fields = ", ".join(sorted(recorded.keys() - derived.keys()))
        record.findings.unchecked(
            "fields",
            f"the fields {fields} of {RELEASE} and the lines of code in {README} were not "
            f"compared, because {other_maker} wrote them",
        )
    else:
        derived = _json_of(portable.release_fields)
        check_match(RELEASE, recorded, "its other values", derived)
        if not rendered_alike(record.read(README, MAX_TEXT_BYTES).decode(), portable.readme()):
            raise Broken(
                f"the text of {README} does not match {RELEASE}, so one of the two was altered or "
                "damaged"
            )
    count = len(derived)
    return f"{count} fields of {RELEASE} were recomputed from its other fields and match"


def _compare_with_runs(record: Record, portable: Portable, runs: RunsBehind) -> str | None:
    """Check that a folder of weights is what its release wrote for the training run's model.

    What a missing run would be needed for is noted as not checked.

    Args:
        record: the record of the folder; takes the note.
        portable: the content of the folder.
        runs: the runs that it comes from, as far as they were found.

    Returns:
        A sentence that lists what was compared; None: the run that released the weights was not
        found, so nothing was compared.

    Raises:
        Broken: the folder differs, or agt writes no such folder for that run.
    """
    if runs.release is None or runs.release.command != RELEASES:
        sentence = f"{FROM_RELEASE} were not compared, because {RELEASING_RUN} is not present"
        record.findings.unchecked("origin", sentence)
        return None
    drawn = DrawnWeights.of(runs.release)
    derived: dict[str, Any] = {"noise": drawn.public_parameters, "mechanism": drawn.mechanism}
    arrays = {"weight": drawn.weight}
    model = model_of(runs.training)
    if runs.training is None or model is None:
        sentence = (
            f"{FROM_TRAINING} were not compared, because the training run could not be read "
            "in the state that the release used"
        )
        record.findings.unchecked("origin", sentence)
    else:
        made = _derive_portable(portable, drawn, model, runs.training)
        derived |= made.recorded_fields
        arrays |= made.features.matrices
    fields = {**portable.recorded_fields, "mechanism": portable.mechanism}
    check_entries(RELEASE, _json_of(fields), RELEASING_RUN, _json_of(derived))
    _compare_arrays({"weight": portable.weight, **portable.features.matrices}, arrays)
    names = ", ".join(derived)
    folder = runs.release.folder
    return (
        f"{names} in {RELEASE} and the numbers in {WEIGHTS} match the run that released the "
        f"weights, {folder}"
    )


def _derive_portable(
    portable: Portable, drawn: DrawnWeights, model: Model, training: Record
) -> Portable:
    """Return the content that a folder of weights which were drawn from this model must have.

    Args:
        portable: the content of the folder that is checked; its sentences are taken over.
        drawn: the weights as the run that released them has them.
        model: the model that they were drawn from.
        training: the training run.

    Raises:
        Broken: agt writes no such folder for this model, or for weights of a simulation.
    """
    head = model.release_head
    if head is None or encoder_settings(model.problem.settings) is not None or drawn.simulated:
        raise Broken(
            f"{RELEASE} cannot come from this run, because agt does not write this file for a "
            "simulation, a model that is not linear, or a model with an encoder"
        )
    source = training.json(SOURCE_FILE)["source"]
    return Portable.from_release(head, drawn, source, portable.words, portable.brief)


def _compare_arrays(recorded: Mapping[str, np.ndarray], derived: Mapping[str, np.ndarray]) -> None:
    """Raise Broken unless all derived arrays are in weights.npz, with exactly equal numbers.

    Args:
        recorded: name -> array of weights.npz.
        derived: name -> array that it should have; every name is in ``recorded``.
    """
    for name, array in derived.items():
        recorded_array = recorded[name]
        if recorded_array.shape != array.shape:
            raise Broken(
                f"{name} in {WEIGHTS} has the shape {recorded_array.shape}, but should have "
                f"{array.shape}"
            )
        differing = np.argwhere(recorded_array != array)
        if len(differing):
            index = tuple(differing[0].tolist())
            element = f"{name}{list(index)}"
            recorded_number = float(recorded_array[index])
            derived_number = float(array[index])
            raise Broken(
                f"{element} in {WEIGHTS} is {recorded_number!r}, but should be {derived_number!r}"
            )


def _json_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields as they are after writing them to a JSON file and reading it again."""
    value: dict[str, Any] = json.loads(as_json(fields))
    return value


def _compare_claim_with_release(claimed: Claim, release: Record | None) -> None:
    """Raise Broken unless released weights carry the privacy claim of the run that released them.

    Only the date of issue is missing in the folder of the weights. Nothing is compared if the
    run's claim is missing or cannot be read, because another check notes that.

    Args:
        claimed: the claim in the folder of weights.
        release: the run that released the weights; None: it was not found.
    """
    if release is None:
        return
    try:
        claim_of_run = read_claim(release.read(CLAIM_FILE, MAX_TEXT_BYTES))
    except (Broken, ConfigError):
        return
    derived = plain_of(replace(claim_of_run, issued=None))
    check_match(CLAIM_FILE, plain_of(claimed), RELEASING_RUN, derived)


def _check_portable_claim(record: Record, portable: Portable, claimed: Claim) -> str:
    """Check that the claim in a folder of weights follows from their recorded noise.

    The relation, the declarations and the ledger's account are taken from the claim itself, because
    only the training run and the ledger have them.

    Args:
        record: the record of the folder; takes further findings.
        portable: the content of the folder.
        claimed: the claim in claim.json.

    Returns:
        A sentence with the guarantee and the totals.

    Raises:
        Broken: the claim is not the recomputed one, or has a date of issue, or release.json has
            other sentences.
    """
    guarantee = guarantee_from_parameters(portable.noise)
    derived = replace(
        claimed,
        guarantee=guarantee,
        mechanism=portable.mechanism,
        output=Output.WEIGHTS,
        releases=1,
        answers=None,
        one_by_one=False,
        most=None,
        simulated=False,
        reasons=(),
        totals=tuple(total_of_weights(guarantee, total.delta) for total in claimed.totals),
    )
    if claimed.issued is not None:
        raise Broken(
            f"{CLAIM_FILE} contains a date of issue ({claimed.issued}), but agt writes no such "
            "date into a folder of released weights"
        )
    if not claimed.totals:
        raise Broken(
            f"the list 'totals' in {CLAIM_FILE} is empty, but should have an entry, because the "
            f"weights are {guarantee}"
        )
    compare_claims(claimed, derived, record.findings)
    if not rendered_alike(portable.words, claimed.words):
        raise Broken(
            f"the sentences of the claim in {CLAIM_FILE} and in {RELEASE} differ (field 'words')"
        )
    brief = claimed.lines(brief=True)
    if claimed.agt == __version__ and not rendered_alike(portable.brief, brief):
        raise Broken(f"the field 'brief' in {RELEASE} does not match the claim in {CLAIM_FILE}")
    record.findings.ok(
        CLAIM_FILE,
        f"the claim (format {claimed.schema}) states the same guarantee, and its totals and curve "
        "do not understate the privacy loss",
    )
    totals = "; ".join(derived.total_sentences)
    return f"the guarantee was recomputed: {guarantee}; {totals}"
