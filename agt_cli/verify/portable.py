"""A folder of released weights, compared with itself and with the runs that it comes from.

Formal guarantees
    - Where the run that released the weights and its training run are there, every field of
      release.json, every array of weights.npz and the claim are derived from them again.
    - Of a folder alone, what follows from its other fields is compared: the guarantee, the lattice,
      the constants and the page of its formula. What it was made from is listed as not checked.
    - Nothing of somebody else's code is loaded.
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
from agt_cli.runs.prepare import SOURCE_FILE, encoder_of
from agt_cli.verify.folders import Record, check_match, rendered_alike
from agt_cli.verify.pages import CLAIM_FILE, WEIGHTS_FILE
from agt_cli.verify.release import (
    asked_of,
    check_lattice,
    compare_claims,
    guarantee_among,
    read_released_weight,
)

RELEASES = "predict"
"""The command that releases weights; private tuning of earlier versions did, which nothing
derives again.
"""
FROM_TRAINING = (
    "the fields 'name', 'classes', 'source', 'features', 'width', 'dtype', 'radius' and 'bias'"
)
"""Fields of release.json, and with them the matrices of weights.npz."""
RELEASING_RUN = "the run that released the weights"
FROM_RELEASE = f"{FROM_TRAINING}, the noise, the mechanism and the weights"


@dataclass(frozen=True)
class RunsBehind:
    """The runs that released weights come from, as far as they are there.

    Attributes:
        release: that drew the weights; None: not there.
        training: in the state that they were drawn from; None: not there.
    """

    release: Record | None = None
    training: Record | None = None


@dataclass(frozen=True)
class DrawnWeights:
    """Weights as the record of their release has them.

    Attributes:
        weight: [1 or classes, outputs] float64.
        public_parameters: the guarantee's parameters and the noise, by name.
        simulated: drawn with a seed.
        mechanism: the name of what drew them.
        slope: no record has it.
    """

    weight: np.ndarray
    public_parameters: dict[str, float]
    simulated: bool
    mechanism: str
    slope: None = None

    @classmethod
    def of(cls, release: Record) -> "DrawnWeights":
        """Read them from a release's record, and their mechanism's name from its settings."""
        public_parameters = dict(release.json(WEIGHTS_FILE))
        simulated = bool(public_parameters.pop("simulated", False))
        mechanism = asked_of(release).kind.name
        return cls(read_released_weight(release), public_parameters, simulated, mechanism)


def check_portable(record: Record, runs: RunsBehind) -> Portable | None:
    """Read a folder of released weights, and derive again what can be.

    Args:
        record: the folder.
        runs: that it comes from.

    Returns:
        None if it is not readable.
    """
    findings = record.findings
    claimed: Claim | None = None
    with findings.looking(CLAIM_FILE):
        claimed = (
            read_claim(record.read(CLAIM_FILE, MAX_TEXT_BYTES))
            if record.holds(CLAIM_FILE)
            else None
        )
        _compare_claim_with_release(claimed, runs.release)
    with findings.looking(RELEASE):
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
        with findings.looking("noise"):
            check_lattice(portable.weight, portable.noise, findings)
        record.look("budget", _check_portable_claim, portable, claimed)
        record.look("fields", _check_fields, portable, claimed)
        record.look("origin", _compare_with_runs, portable, runs)
        return portable
    return None


def _check_fields(record: Record, portable: Portable, claimed: Claim | None) -> str:
    """Raise Broken unless release.json is what agt writes of its own fields, and README.md is their
    page.

    Of another version's files, those constants are compared that this version writes too.
    """
    recorded = record.json(RELEASE)
    own_code = is_own_code(str(portable.source.get("_target_")))
    own_version = claimed is not None and claimed.agt == __version__ and not claimed.of_earlier_form
    derived = _json_of(
        portable.release_fields if own_version and own_code else portable.recorded_fields
    )
    if not own_version:
        del derived["features"]  # another version may have had other settings
    compared = (
        set(derived) | set(recorded) if own_version and own_code else set(derived) & set(recorded)
    )
    left = sorted(set(recorded) - compared)
    check_match(
        RELEASE,
        _only(recorded, compared),
        "its other values",
        _only(derived, compared),
    )
    if not (own_version and own_code):
        maker = "another version of agt"
        if not own_code:
            maker = "code from outside of agt"
        fields = ", ".join(left)
        record.findings.unchecked(
            "fields",
            f"the fields {fields} of {RELEASE} and the lines of code in {README} were not "
            f"compared, because {maker} wrote them",
        )
    elif not rendered_alike(record.read(README, MAX_TEXT_BYTES).decode(), portable.readme()):
        raise Broken(
            f"the text of {README} does not match {RELEASE}, so one of the two was altered or "
            "damaged"
        )
    count = len(compared)
    return f"{count} fields of {RELEASE} were recomputed from its other fields and match"


def _compare_with_runs(record: Record, portable: Portable, runs: RunsBehind) -> str | None:
    """Raise Broken unless the folder is what its release makes of the training run's model."""
    if runs.release is None or runs.release.command != RELEASES:
        words = f"{FROM_RELEASE} were not compared, because {RELEASING_RUN} is not present"
        record.findings.unchecked("origin", words)
        return None
    drawn = DrawnWeights.of(runs.release)
    derived: dict[str, Any] = {"noise": drawn.public_parameters, "mechanism": drawn.mechanism}
    arrays = {"weight": drawn.weight}
    model = None if runs.training is None else runs.training.rebuilt_model
    if runs.training is None or model is None:
        words = (
            f"{FROM_TRAINING} were not compared, because the training run could not be read "
            "in the state that the release used"
        )
        record.findings.unchecked("origin", words)
    else:
        made = _derive_portable(portable, drawn, model, runs.training)
        derived |= made.recorded_fields
        arrays |= made.features.matrices
    fields = {**portable.recorded_fields, "mechanism": portable.mechanism}
    recorded = _json_of(_only(fields, set(derived)))
    check_match(RELEASE, recorded, RELEASING_RUN, _json_of(derived))
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
    """Return the folder that a release from this model makes, with the words of the one that is
    there.

    Raises:
        Broken: agt makes none of such a run.
    """
    head = model.release_head
    if head is None or encoder_of(model.problem.settings) is not None or drawn.simulated:
        raise Broken(
            f"{RELEASE} cannot come from this run, because agt does not write this file for a "
            "simulation, a model that is not linear, or a model with an encoder"
        )
    source = training.json(SOURCE_FILE)["source"]
    return Portable.from_release(head, drawn, source, portable.words, portable.brief)


def _compare_arrays(recorded: Mapping[str, np.ndarray], derived: Mapping[str, np.ndarray]) -> None:
    """Raise Broken where arrays of weights.npz are not the derived ones, number by number."""
    for name, array in derived.items():
        then = recorded[name]
        if then.shape != array.shape:
            raise Broken(
                f"{name} in {WEIGHTS} has the shape {then.shape}, but should have {array.shape}"
            )
        places = np.argwhere(then != array)
        if len(places):
            place = tuple(places[0].tolist())
            element = f"{name}{list(place)}"
            recorded_number = float(then[place])
            derived_number = float(array[place])
            raise Broken(
                f"{element} in {WEIGHTS} is {recorded_number!r}, but should be {derived_number!r}"
            )


def _json_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a JSON file has of these fields."""
    value: dict[str, Any] = json.loads(as_json(fields))
    return value


def _only(fields: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name in names}


def _compare_claim_with_release(claimed: Claim | None, release: Record | None) -> None:
    """Raise Broken unless a folder of weights has the claim of the run that released them, apart
    from its day.

    A claim of that run that cannot be read is a problem of that run.
    """
    owner_claim = None if release is None else _claim_in(release)
    if claimed is None or owner_claim is None:
        return
    derived = plain_of(replace(owner_claim, issued=None))
    check_match(CLAIM_FILE, plain_of(claimed), RELEASING_RUN, derived)


def _claim_in(release: Record) -> Claim | None:
    try:
        return read_claim(release.read(CLAIM_FILE, MAX_TEXT_BYTES))
    except (Broken, ConfigError):
        return None


def _check_portable_claim(record: Record, portable: Portable, claimed: Claim | None) -> str:
    """The guarantee of the weights is that of their noise, and the claim, made again from it, is
    the one that is there.

    Relation, declarations and account are the claim's own: no training run is there to make them
    from.
    """
    guarantee = guarantee_among(portable.noise)
    if claimed is None:
        record.findings.unchecked(
            "words",
            f"there is no {CLAIM_FILE}, because an earlier version of agt wrote the release. The "
            f"claim in {RELEASE} was not compared, because this file contains it only as text",
        )
        return f"the guarantee was recomputed: {guarantee}"
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
        totals=tuple(total_of_weights(guarantee, each.delta) for each in claimed.totals),
    )
    if claimed.issued is not None:
        raise Broken(
            f"{CLAIM_FILE} contains a date of issue ({claimed.issued}), but agt writes no such "
            "date into a folder of released weights"
        )
    if not claimed.totals and not claimed.of_earlier_form:
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
    if portable.brief and claimed.agt == __version__ and not rendered_alike(portable.brief, brief):
        raise Broken(f"the field 'brief' in {RELEASE} does not match the claim in {CLAIM_FILE}")
    record.findings.ok(
        CLAIM_FILE,
        f"the claim (format {claimed.schema}) states the same guarantee, and its totals and curve "
        "do not understate the privacy loss",
    )
    totals = "; ".join(derived.total_sentences)
    return f"the guarantee was recomputed: {guarantee}; {totals}"
