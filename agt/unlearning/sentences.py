"""Sentences about removals: a record holds a code and its values, and a reader sees what is made of
them here.

``TEMPLATES`` has one sentence for each code. A sentence is made when it is shown, and is never
compared, searched or stored: ``agt verify`` compares codes and values.
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
        "the model is what training without the erased records gives: trained from scratch on "
        "those that remain, bit for bit what the same program makes of them on this machine"
    ),
    "retrained_with_noise": (
        "the model is what training without the erased records gives: trained from scratch on "
        "those that remain, with noise drawn anew: its distribution is the same"
    ),
    "keys_recorded": (
        "its seed and keys are those that the run recorded, so that requests may have followed "
        "from what they did"
    ),
    "keys_drawn_anew": (
        "its seed and keys were drawn anew by the operating system after the last request (Gupta "
        "et al. 2021)"
    ),
    "draws_nothing": "it draws nothing, neither a seed nor keys of hashes: it is a function of the "
    "records that remain",
    "draws_only_noise": "it draws nothing but its noise, anew and by the operating system: no seed "
    "and no keys of hashes",
    "members_kept": (
        "the model is what training without the erased records gives: members whose shard lost "
        "none were kept, the others were trained again"
    ),
    "shards_by_recorded_key": (
        "shards are keyed hashes of ids, by the key that the run recorded: whoever knows it, or "
        "saw answers, may have chosen whom to erase by shard; fresh=true deals everybody anew"
    ),
    # What is promised while a request waits.
    "answers_as_retrained": (
        "every label that is given is the one that training again without them gives, with the "
        "same settings, seeds and public constants: its stable distance says so of every set of "
        "so many people at once, whoever chose them and after whichever answers"
    ),
    "others_abstain": (
        "other queries abstain until the next update. Which ones do depends on the records, those "
        "that are to go among them, and whoever asks sees it: abstaining itself is not private, "
        "and private releases are refused until then"
    ),
    "state_still_holds": (
        "the model, its certificates and figures still hold what is to be erased: they stay with "
        "the data owner, and the next update replaces them"
    ),
    # What is promised of a Newton step.
    "near_retrained": (
        "the weights are within {within:upward} (l2, all outputs) of those that training without "
        "the erased records gives: exact up to that distance, and not bit for bit"
    ),
    "near_minimiser": (
        "least squares: they are within {distance:upward} of the exact minimiser on the records "
        "that are left, and training stops within {retrained:upward} of it"
    ),
    "near_minimiser_as_recorded": "the weights are within their recorded bound of the minimiser "
    "without the records",
    "close": (
        "the model is ({eps:upward}, {delta:g})-close to one trained without the erased records: "
        "whatever is computed from either is nearly as likely from the other"
    ),
    "close_as_published": (
        "not proved: as published, the model is ({eps:upward}, {delta:g})-close to one trained "
        "without the erased records: whatever is computed from either is nearly as likely from "
        "the other"
    ),
    "close_without_seed": (
        "not proved, as a recorded seed makes the noise: with noise that nobody can predict the "
        "model would be ({eps:upward}, {delta:g})-close to one trained without the erased "
        "records: whatever is computed from either is nearly as likely from the other"
    ),
    "proof_has_gap": "its proof has a gap: an assumption that it needs does not hold",
    "noise_of_training": (
        "it is of this state alone, and for requests chosen without looking at the model: the "
        "random term in the loss was drawn once, in training, and whoever has an earlier state "
        "sees in the difference what was removed"
    ),
    "noise_after_request": (
        "that is of the weights that are served, with noise that was drawn after the request: "
        "also for requests that followed from what the model gave out"
    ),
    "at_most": (
        "it is of what this removal left, for these records and requests, and tells of them; "
        "whatever they are, it is at most ({eps:g}, {delta:g})"
    ),
    "states_together": (
        "states served after later updates add up: {states} of them together are ({eps:upward}, "
        "{delta:g})-close. States served before are not covered: they were made with the records"
    ),
    "weights_before_noise": (
        "the weights without noise stay in the run's folder, for later removals: of these only the "
        "distance is promised"
    ),
    # What was done.
    "trained_from_scratch": "trained from scratch on the {records:,} records that remain",
    "request_noted": (
        "noted, and nothing was computed: {units:people} wait; a query is answered where its "
        "stable distance under relation={relation} is {units} or more, and abstains elsewhere"
    ),
    "request_noted_of_mean": (
        "noted, and nothing was computed: {units:people} wait; a query is answered where its "
        "stable distance under relation={relation} is {units} or more, by the published rule (the "
        "mean over the records that are left), and abstains elsewhere"
    ),
    "request_noted_none_answered": (
        "noted, and nothing was computed: {units:people} wait, and no stable distance of this run "
        "is beyond {farthest} (kgrid.max): every query abstains until an update"
    ),
    "members_trained_again": "{trained} of {members} members were trained again",
    "step": "one Newton step took {records} records out",
    "polish": "Newton steps from the gradient of all records that remain",
    "refresh": "Newton steps from that gradient, with the Hessian formed anew",
    "rows_gone": "the data no longer has the {records} records: what remains was fitted from where "
    "the model was",
    "gradient_left": (
        "the gradient that is left is at most {residual:.3g}, so the weights are within "
        "{distance:.3g} of the exact minimiser on the {records:,} records that remain"
    ),
    "matrices_formed_anew": (
        "Hessian and products were then formed anew over these records, at these weights: no "
        "matrix that the erased ones were part of, and no earlier weights, are kept"
    ),
    "served_noise_drawn_anew": "noise on the weights that are served was drawn anew",
    # Why no Newton step was taken.
    "no_step_with_fresh_loss": (
        "no step was taken: fresh=true asks for another random term in the loss, and the state "
        "was made with the one there is"
    ),
    "no_step_from_other_records": "no step was taken: the other records are not what the state was "
    "made with: {fact:fact}",
    "no_step_to_other_classes": (
        "no step was taken: classes: the run has {before}, and the records that remain have {after}"
    ),
    "no_step_within_budget": (
        "no step was taken: {stages:listed} would bring the removal budget to {spent:.3g}, of "
        "{total:.3g}"
    ),
    "nothing_to_start_from": "certificate={certificate} keeps nothing that a removal starts from",
    # Why certificates do not cover a removal.
    "certificate_given_noise": (
        "certificates of certificate={certificate} are given the noise of that training, and say "
        "nothing of removals"
    ),
    "noise_drawn_again": "training again draws other noise than this run met (noise.epsilon)",
    "public_not_counted": "relation={relation} counts private records alone, and a public one is "
    "to go",
    "public_features": (
        "the features are made from public rows, one of which is to go "
        "(certificate.features.public=train)"
    ),
    "condition_not_held": "{fact:fact}",
    # What became of an earlier answer.
    "record_not_whole": "its record is not whole, so nothing can be said of it: {error}",
    "answers_not_covered": "{given} answers, whose certificates do not cover the removal",
    "answers_stand": (
        "{stable} of {given} answers are what training without them gives: stable for "
        "{units:people} or more"
    ),
    "answers_lost": "{lost} of {given} answers are not certified to stay without {units:people}",
    "nothing_new": "nothing new was released: what it repeats stands or not where it was first "
    "released",
    "claim_missing": "its claim is not there",
    "simulated": "drawn with a seed: a simulation",
    "not_proved": "nothing is proved of it, as its claim says",
    "relation_two_sided": "relation={relation} says nothing about a unit that is erased where no "
    "other comes",
    "no_bound_for_group": "what {mechanism} guarantees for one unit bounds nothing for "
    "{units:people}",
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
    "all_pure": "all of it {eps:.6g}-differentially private for them",
    "all_approximate": "all of it ({eps:.6g}, {delta:.6g})-differentially private for them",
    # The search for traces.
    "other_runs": "other training runs, by their records.bin",
    "trained_on_erased": "still trained on erased records: {runs:few}: erase them there, too",
    "none_trained_on_erased": "none has an erased record",
    "key_gone": "{runs} cannot be asked, as their key is gone",
    "training_stopped": (
        "a training that was stopped: {folders:few}; nothing tells whether the erased records are "
        "in it: resume and erase, or delete it"
    ),
    "files_beside_runs": "files beside runs were not searched",
    "other_folders": "folders other than these",
    "erased_forgotten": "{forgotten} of {erased} erased records, of which nothing but keyed hashes "
    "is kept",
    "rows_in_own_data": (
        "the run's own data, which is its owner's to change: {rows} of the erased records still "
        "have rows in it, unread from now on"
    ),
    "no_rows_in_own_data": "the run's own data: none of the erased records has a row in it any "
    "more",
    "file_of_ids": "the file that the ids came in: delete it when it is not needed",
    "shadow_models": (
        "shadow models of membership audits, kept in output_dir, each trained on half of such "
        "records: remove them"
    ),
    # What no account shows.
    "not_for_publication": (
        "anything that may be published: it is for the owner and an auditor. Budget, counts and "
        "times depend on the records, those that went among them, and no guarantee is about that"
    ),
    "earlier_answers_remain": "what was answered and published before: it stays with whoever has "
    "it",
    "copies_not_reached": (
        "copies that somebody took: backups, exports, the table that the run was trained on, other "
        "runs on the same people"
    ),
    "askers_not_checked": (
        "that those who asked were who they said, and that every record of theirs has the id or "
        "unit that was given"
    ),
    "others_tell": (
        "what the records that stay say about those that went: relatives, duplicates under other "
        "ids, what all have in common"
    ),
    "below_files": "traces below files: freed blocks of a disk, snapshots of a file system, memory",
    "choice_of_requests": (
        "what the choice of requests tells by itself: where somebody asked because of what the "
        "model showed of others, that they asked is seen in who is left; no method undoes that"
    ),
    "guesses_can_be_tested": (
        "guesses: digests of earlier states stay, here and in earlier records, and whoever has "
        "every other record can test a guess of an erased one against them; whoever has "
        "unlearning/key of the run can ask whether an id was erased"
    ),
    # What an audit tests.
    "as_promised": "as agt unlearn promises",
}


@schema
class Remark:
    """Something that a removal or an account says, as fields.

    Attributes:
        code: which sentence it is, a key of ``TEMPLATES``.
        values: what that sentence takes, by name.

    Raises:
        ConfigError: no sentence has this code, or it takes other values.
    """

    code: str
    values: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.code not in TEMPLATES:
            raise ConfigError(f"{self.code}: no sentence has this code")
        try:
            check_values(self.code, (TEMPLATES[self.code],), self.values)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    @property
    def sentence(self) -> str:
        """What a reader sees."""
        return fill(TEMPLATES[self.code], self.values)


def add_templates(templates: Mapping[str, str]) -> None:
    """Add the sentences of a method of erasure that a kind of certificate brings, in the kind's own
    file.

    Raises:
        ValueError: there is a sentence of that code already.
    """
    add_new(templates, TEMPLATES)


def sentences(remarks: tuple[Remark, ...]) -> tuple[str, ...]:
    """Return what a reader sees of several remarks, in their order."""
    return tuple(remark.sentence for remark in remarks)


def in_words(text: str) -> dict[str, Any]:
    """Return the JSON value of a remark that an earlier version recorded as text."""
    return {"code": IN_WORDS, "values": {"text": text}}


def with_fact(remark: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON value of a remark as this version has it: what does not hold was text.

    Raises:
        KeyError, TypeError: it is no remark.
    """
    values = dict(remark["values"])
    if "why" in values:
        values["fact"] = with_code({"standing": Standing.VOID, "why": values.pop("why")})
    return {"code": remark["code"], "values": values}


def without_words(remarks: tuple[Remark, ...]) -> tuple[Remark, ...]:
    """Return those remarks that are fields, without what an earlier version recorded as text."""
    return tuple(remark for remark in remarks if remark.code != IN_WORDS)
