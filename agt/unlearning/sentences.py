"""Sentences about removals, made from a code and its values when they are shown.

``TEMPLATES`` has one sentence for each code. Records store codes and values, which ``agt verify``
compares. A sentence is never compared, searched or stored.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from agt.errors import ConfigError
from agt.facts import Fact, Standing, with_code
from agt.settings import schema
from agt.templates import IN_WORDS, add_new, check_values, fill

Value = bool | int | float | str | tuple[str, ...] | Fact

TEMPLATES: dict[str, str] = {
    IN_WORDS: "{text}",
    # What is promised of training again.
    "retrained": (
        "the model is the result of training without the erased records: it was trained from "
        "scratch on the remaining records, and is bit-identical to what the same program "
        "computes from them on this machine"
    ),
    "retrained_with_noise": (
        "the model is a result of training without the erased records: it was trained from "
        "scratch on the remaining records with newly drawn noise, so it has the same "
        "distribution"
    ),
    "keys_recorded": (
        "its seed and keys are those that the run recorded, so requests may depend on what "
        "these seeds and keys led to"
    ),
    "keys_drawn_anew": (
        "its seed and keys were newly drawn by the operating system after the last request "
        "(Gupta et al. 2021)"
    ),
    "draws_nothing": (
        "training uses no randomness, neither a seed nor keys of hashes, so it is a "
        "function of the remaining records"
    ),
    "draws_only_noise": (
        "training uses no randomness except its noise, which was newly drawn by the "
        "operating system: no seed and no keys of hashes"
    ),
    "members_kept": (
        "the model is the result of training without the erased records: members whose shard "
        "lost no record were kept, and the others were trained again"
    ),
    "shards_by_recorded_key": (
        "shards are keyed hashes of ids, under the key that the run recorded: anyone who "
        "knows the key, or saw answers, may have chosen by shard whom to erase; fresh=true "
        "assigns all records to shards again"
    ),
    # What is promised while a request waits.
    "answers_as_retrained": (
        "every label that is given is the one that training again without them gives, with "
        "the same settings, seeds and public constants: its stable distance guarantees this "
        "for every set of so many people at once, whoever chose them, even after seeing "
        "answers"
    ),
    "others_abstain": (
        "other queries are not answered until the next update. Which queries these are "
        "depends on the records, including those to be erased, and everyone who asks can see "
        "it, so leaving queries unanswered is not private; private releases are refused "
        "until then"
    ),
    "state_still_holds": (
        "the model, its certificates and its figures still contain what is to be erased, so "
        "they must stay with the data owner; the next update replaces them"
    ),
    # What is promised of a Newton step.
    "near_retrained": (
        "the weights are within {within:upward} (l2, all outputs) of those of training "
        "without the erased records, so they are exact up to that distance, but not "
        "bit-identical"
    ),
    "near_minimiser": (
        "least squares: they are within {distance:upward} of the exact minimiser on the "
        "remaining records, and training again would stop within {retrained:upward} of it"
    ),
    "near_minimiser_as_recorded": (
        "the weights are within their recorded bound of the minimiser without the erased records"
    ),
    "close": (
        "the model is ({eps:upward}, {delta:g})-close to one trained without the erased "
        "records, so any result computed from one of the two models is nearly as likely with "
        "the other"
    ),
    "close_as_published": (
        "not proved here; the paper claims that the model is ({eps:upward}, {delta:g})-close "
        "to one trained without the erased records, so any result computed from one of the "
        "two models is nearly as likely with the other"
    ),
    "close_without_seed": (
        "not proved, because the noise comes from a recorded seed; with unpredictable noise "
        "the model would be ({eps:upward}, {delta:g})-close to one trained without the "
        "erased records, so any result computed from one of the two models is nearly as "
        "likely with the other"
    ),
    "proof_has_gap": "its proof has a gap, because an assumption that it needs is not met",
    "noise_of_training": (
        "the guarantee covers only this state, and only requests chosen without looking at "
        "the model: the random term in the loss was drawn once, in training, so anyone who "
        "has an earlier state can see from the difference what was removed"
    ),
    "noise_after_request": (
        "the guarantee covers the weights that are used for answers, whose noise was drawn "
        "after the request, so it also holds for requests that depend on outputs of the model"
    ),
    "at_most": (
        "the guarantee is computed from what this removal left, for these records and "
        "requests, and reveals something about them; in any case it is at most ({eps:g}, "
        "{delta:g})"
    ),
    "states_together": (
        "the losses of states after later updates add up: {states} of them together are "
        "({eps:upward}, {delta:g})-close. Earlier states are not covered, because they were "
        "made with the records"
    ),
    "weights_before_noise": (
        "the weights without noise stay in the run's folder for later removals, and for them "
        "only the distance is guaranteed"
    ),
    # What was done.
    "trained_from_scratch": "trained from scratch on the {records:,} remaining records",
    "request_noted": (
        "requests noted, and nothing was computed: {units:people} wait; a query is answered "
        "if its stable distance under relation={relation} is at least {units}; other queries "
        "are not"
    ),
    "request_noted_of_mean": (
        "requests noted, and nothing was computed: {units:people} wait; a query is answered "
        "if its stable distance under relation={relation} is at least {units}, by the "
        "published rule (the mean over the remaining records); other queries are not"
    ),
    "request_noted_none_answered": (
        "requests noted, and nothing was computed: {units:people} wait, but no stable "
        "distance of this run is larger than {farthest} (kgrid.max), so no query is answered "
        "until the next update"
    ),
    "members_trained_again": "{trained} of {members} members were trained again",
    "step": "one Newton step removed {records} records",
    "polish": "Newton steps from the gradient over all remaining records",
    "refresh": "Newton steps from that gradient, with a newly computed Hessian",
    "rows_gone": (
        "the data no longer have the {records} records: the model was fitted to the "
        "remaining records, starting from its earlier weights"
    ),
    "gradient_left": (
        "the remaining gradient has a norm of at most {residual:.3g}, so the weights are "
        "within {distance:.3g} of the exact minimiser on the {records:,} remaining records"
    ),
    "matrices_formed_anew": (
        "the Hessian and the products were then computed again over these records, at these "
        "weights, so no matrix that includes erased records, and no earlier weights, are kept"
    ),
    "served_noise_drawn_anew": "the noise on the weights that are used for answers was newly drawn",
    # Why no Newton step was taken.
    "no_step_with_fresh_loss": (
        "no step was computed: fresh=true asks for another random term in the loss, but the "
        "state was made with the present one"
    ),
    "no_step_from_other_records": (
        "no step was computed, because the other records differ from those that the "
        "state was made with: {fact:fact}"
    ),
    "no_step_to_other_classes": (
        "no step was computed, because the run has the classes {before}, but the remaining "
        "records have the classes {after}"
    ),
    "no_step_within_budget": (
        "no step was computed, because {stages:listed} would bring the removal budget to "
        "{spent:.3g}, of {total:.3g}"
    ),
    "nothing_to_start_from": "certificate={certificate} does not store what a removal starts from",
    # Why certificates do not cover a removal.
    "certificate_given_noise": (
        "certificates of certificate={certificate} hold for the noise of that training, and "
        "say nothing about removals"
    ),
    "noise_drawn_again": "training again draws other noise than this run had (noise.epsilon)",
    "public_not_counted": (
        "relation={relation} only counts private records, but a public one is to be erased"
    ),
    "public_features": (
        "the features are computed from public rows, one of which is to be erased "
        "(certificate.features.public=train)"
    ),
    "condition_not_held": "{fact:fact}",
    # What became of an earlier answer.
    "record_not_whole": "its record is incomplete, so its answers cannot be checked: {error}",
    "answers_not_covered": "{given} answers, whose certificates do not cover the removal",
    "answers_stand": (
        "{stable} of {given} answers equal those of training without them, because they are "
        "stable for at least {units:people}"
    ),
    "answers_lost": (
        "{lost} of {given} answers are not certified to stay the same without {units:people}"
    ),
    "nothing_new": (
        "nothing new was released: the answers that it repeats are covered where they "
        "were first released"
    ),
    "claim_missing": "its claim is missing",
    "simulated": "drawn with a seed: a simulation",
    "not_proved": "its guarantee is not proved, as its claim says",
    "relation_two_sided": (
        "relation={relation} does not cover a unit that is erased without being replaced"
    ),
    "no_bound_for_group": (
        "the guarantee of {mechanism} for one unit does not give a bound for {units:people}"
    ),
    "group_pure": (
        "{releases} {output} by {mechanism}, each {eps:.6g}-differentially private for "
        "{units:people} together, by group privacy"
    ),
    "group_approximate": (
        "{releases} {output} by {mechanism}, each ({eps:.6g}, {delta:.6g})-differentially private "
        "for {units:people} together, by group privacy"
    ),
    "group_gaussian": (
        "{releases} {output} by {mechanism}, each {mu:.6g}-Gaussian differentially private for "
        "{units:people} together, by group privacy"
    ),
    "all_pure": "all of it together is {eps:.6g}-differentially private for them",
    "all_approximate": (
        "all of it together is ({eps:.6g}, {delta:.6g})-differentially private for them"
    ),
    # The search for traces.
    "other_runs": "other training runs, by their records.bin",
    "trained_on_erased": "still trained on erased records: {runs:few}: erase the records there too",
    "none_trained_on_erased": "none of them has an erased record",
    "key_gone": "{runs} cannot be checked, because their key is missing",
    "training_stopped": (
        "a training run that was stopped: {folders:few}; agt cannot tell whether it has the "
        "erased records: resume it and erase them, or delete it"
    ),
    "files_beside_runs": "files next to runs were not searched",
    "other_folders": "folders other than these",
    "erased_forgotten": (
        "{forgotten} of {erased} erased records, of which only keyed hashes are stored"
    ),
    "rows_in_own_data": (
        "the run's own data, which only its owner may change: {rows} of the erased records "
        "still have rows there, which are no longer read"
    ),
    "no_rows_in_own_data": (
        "the run's own data, where none of the erased records has a row any more"
    ),
    "file_of_ids": "the file with the requested ids: delete it when it is not needed any more",
    "shadow_models": (
        "shadow models of membership audits, stored in output_dir, each of which was trained "
        "on half of such records: delete them"
    ),
    # What no account shows.
    "not_for_publication": (
        "anything that may be published: this account is only for the owner and an auditor. "
        "Budget, counts and times depend on the records, including the erased ones, and no "
        "guarantee covers that"
    ),
    "earlier_answers_remain": (
        "answers that were given and published earlier: they stay with whoever has them"
    ),
    "copies_not_reached": (
        "copies that somebody made: backups, exports, the table that the run was trained on, "
        "other runs on the same people"
    ),
    "askers_not_checked": (
        "whether the people who requested erasure were who they said they were, and whether "
        "all of their records have the id or unit that was given"
    ),
    "others_tell": (
        "what the remaining records reveal about the erased ones: relatives, duplicates "
        "under other ids, common properties"
    ),
    "below_files": (
        "traces below the level of files: freed blocks of a disk, snapshots of a file "
        "system, memory"
    ),
    "choice_of_requests": (
        "what the choice of requests itself reveals: if people requested erasure because of "
        "what the model showed about others, the remaining records show that they did; no "
        "method can undo this"
    ),
    "guesses_can_be_tested": (
        "guesses about erased records: digests of earlier states remain, here and in earlier "
        "records, so anyone who has all other records can test a guess of an erased one "
        "against them; anyone who has unlearning/key of the run can test whether an id was "
        "erased"
    ),
    # What an audit tests.
    "as_promised": "as agt unlearn promises",
}


@schema
class Remark:
    """A statement about a removal, stored as a code and values from which its sentence is made.

    Attributes:
        code: which sentence it is, a key of ``TEMPLATES``.
        values: the values that the sentence's template takes, by name.

    Raises:
        ConfigError: no sentence has this code, or its template takes other values.
    """

    code: str
    values: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ConfigError unless the code has a template that takes exactly these values."""
        if self.code not in TEMPLATES:
            raise ConfigError(f"{self.code}: there is no sentence for this code")
        try:
            check_values(self.code, (TEMPLATES[self.code],), self.values)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    @property
    def sentence(self) -> str:
        """The sentence, with its values filled in."""
        return fill(TEMPLATES[self.code], self.values)


def add_templates(templates: Mapping[str, str]) -> None:
    """Add the sentences of an erasure method that another package's kind of certificate brings.

    Args:
        templates: the new sentences' templates by code.

    Raises:
        ValueError: there is already a sentence for one of the codes.
    """
    add_new(templates, TEMPLATES)


def sentences(remarks: tuple[Remark, ...]) -> tuple[str, ...]:
    """Return the sentences of several remarks, in their order."""
    return tuple(remark.sentence for remark in remarks)


def in_words(text: str) -> dict[str, Any]:
    """Return the JSON value of a remark that an earlier version stored as text."""
    return {"code": IN_WORDS, "values": {"text": text}}


def with_fact(remark: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON value of a remark in the format of this version.

    Earlier versions stored an assumption that does not hold as a text ``why``. It becomes a fact
    with a code.

    Args:
        remark: the JSON value, with ``code`` and ``values``.

    Raises:
        KeyError, TypeError: the value does not describe a remark.
    """
    values = dict(remark["values"])
    if "why" in values:
        values["fact"] = with_code({"standing": Standing.VOID, "why": values.pop("why")})
    return {"code": remark["code"], "values": values}


def without_words(remarks: tuple[Remark, ...]) -> tuple[Remark, ...]:
    """Return the remarks that have a code, without those that an earlier version stored as text."""
    return tuple(remark for remark in remarks if remark.code != IN_WORDS)
