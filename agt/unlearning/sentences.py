"""Sentences about removals, which are made from a code and its values when they are shown.

``TEMPLATES`` has the template of one sentence for each code. Records store codes and values, which
``agt verify`` compares. A sentence is never compared, searched or stored.
"""

from collections.abc import Mapping
from dataclasses import field

from agt.errors import ConfigError
from agt.facts import Fact
from agt.settings import schema
from agt.templates import add_new, check_values, fill

Value = bool | int | float | str | tuple[str, ...] | Fact

TEMPLATES: dict[str, str] = {
    # What is promised of training again.
    "retrained": (
        "the model is the result of training without the erased records: it was trained from "
        "scratch on the remaining records, and is bit-identical to what the same program "
        "computes from them on this machine"
    ),
    "retrained_with_noise": (
        "the model is a result of training without the erased records: it was trained from "
        "scratch on the remaining records with newly drawn noise, so its distribution is that of "
        "a model that never saw the erased records"
    ),
    "keys_recorded": (
        "training reused the seed and the hash keys that the run had recorded before. So people "
        "may have chosen their erasure requests after seeing something that depends on the seed or "
        "the keys (for example, answers of the earlier model). The guarantee does not cover such "
        "requests"
    ),
    "keys_drawn_anew": (
        "the model's seed and hash keys were newly drawn from the operating system's random "
        "numbers after the last erasure request. So the requests cannot depend on the seed and "
        "the keys (Gupta et al. 2021)"
    ),
    "draws_nothing": (
        "training uses no randomness (neither a seed nor hash keys), so the model depends only on "
        "the remaining records"
    ),
    "draws_only_noise": (
        "the only randomness in training is its noise, which was newly drawn from the operating "
        "system's random numbers; training uses neither a seed nor hash keys"
    ),
    "members_kept": (
        "the model is the result of training without the erased records: ensemble members whose "
        "shard of the records lost no record were kept, and the other members were trained again"
    ),
    "shards_by_recorded_key": (
        "a keyed hash of a record's id decides its shard (which member is trained on it), and "
        "the run recorded the key. So somebody who knows this key, or who saw answers of the "
        "model, may have chosen erasure requests that hit certain shards. To rule this out, give "
        "new_seeds=true, which divides all records into new shards"
    ),
    # What is promised while a request waits.
    "answers_as_retrained": (
        "until the requested erasure is carried out, each label that is given equals that of a "
        "model trained without the people who requested erasure (with the same settings, seeds and "
        "public constants). The label's stable distance guarantees this for any set of that many "
        "people, even if the set was chosen after seeing answers"
    ),
    "others_abstain": (
        "queries whose label might change through the requested erasure are not answered until agt "
        "unlearn carries it out. Everyone who asks can see which queries these are. This depends "
        "on the records, including those to be erased, so it is not private. Private releases are "
        "refused until the erasure is carried out"
    ),
    "state_still_holds": (
        "the model, its certificates and its figures still depend on the records that are to be "
        "erased, so the data owner must not pass them on; the next update (agt unlearn) replaces "
        "them"
    ),
    # What is promised of a Newton step.
    "near_retrained": (
        "the weights are within {within:upward} (l2 norm over all outputs) of the weights that "
        "training without the erased records would give, so they are exact up to this distance, "
        "but not bit-identical"
    ),
    "near_minimiser": (
        "the weights of this least-squares model are within {distance:upward} of the exact "
        "minimiser on the remaining records, and training again would stop within "
        "{retrained:upward} of this minimiser"
    ),
    "near_minimiser_as_recorded": (
        "the distance between the weights and the exact minimiser on the remaining records is at "
        "most the bound that is recorded with the weights"
    ),
    "close": (
        "the model is ({eps:upward}, {delta:g})-close to one trained without the erased "
        "records, so any result computed from one of the two models is nearly as likely with "
        "the other"
    ),
    "close_as_published": (
        "the paper on this method (Guo et al. 2020) claims, but agt does not prove, that the "
        "model is ({eps:upward}, {delta:g})-close to one trained without the erased records, so "
        "any result computed from one of the two models is nearly as likely with the other"
    ),
    "close_without_seed": (
        "nothing is proved, because the noise comes from a recorded seed. With unpredictable "
        "noise, the model would be ({eps:upward}, {delta:g})-close to one trained without the "
        "erased records, so any result computed from one of the two models is nearly as likely "
        "with the other"
    ),
    "proof_has_gap": (
        "the guarantee is not proved, because the proof of this erasure method needs an assumption "
        "that this run does not meet"
    ),
    "noise_of_training": (
        "the guarantee covers only the present state, and only requests that were chosen without "
        "looking at the model. The random term in the loss was drawn once, in training, so "
        "anyone who has an earlier state can see from the difference what was removed"
    ),
    "noise_after_request": (
        "the guarantee covers the weights that are used for answers. Their noise was drawn after "
        "the request, so the guarantee also holds for requests that depend on outputs of the "
        "model"
    ),
    "at_most": (
        "the guarantee's epsilon and delta are computed from these records and requests, so the "
        "two numbers reveal something about the records. For any records and requests, epsilon "
        "is at most {eps:g} and delta at most {delta:g}"
    ),
    "states_together": (
        "each update gives a new state of the model, and the privacy losses of these states add "
        "up: {states} such states together are ({eps:upward}, {delta:g})-close to training "
        "without the erased records. States before the erasure are not covered, because they were "
        "computed with the erased records"
    ),
    "weights_before_noise": (
        "a copy of the weights without noise stays in the run's folder, because later removals "
        "need it. For this copy, only the distance to retrained weights is guaranteed"
    ),
    # What was done.
    "trained_from_scratch": (
        "the model was trained from scratch on the {records:,} remaining records"
    ),
    "request_noted": (
        "the requests were noted, but nothing has been removed yet: the erasure of {units:people} "
        "is pending until the next update (agt unlearn). Until then, a query is answered only if "
        "its label is certified to stay the same when that many people are removed (stable "
        "distance of at least {units} under relation={relation})"
    ),
    "request_noted_of_mean": (
        "the requests were noted, but nothing has been removed yet: the erasure of {units:people} "
        "is pending until the next update (agt unlearn). Until then, a query is answered only if "
        "its label is certified to stay the same when that many people are removed (stable "
        "distance of at least {units} under relation={relation}). Under this relation, training "
        "averages over the remaining records"
    ),
    "request_noted_none_answered": (
        "the requests were noted, but nothing has been removed yet: the erasure of {units:people} "
        "is pending until the next update (agt unlearn). Until then, no query is answered, because "
        "no stable distance of this run can exceed {farthest} (kgrid.max), so no label is "
        "certified to stay the same when that many people are removed"
    ),
    "members_trained_again": "ensemble members that were trained again: {trained} of {members}",
    "step": "one Newton step removed {records:records} from the weights",
    "polish": (
        "the weights were improved by Newton steps with the gradient over all remaining records"
    ),
    "refresh": (
        "the weights were improved by Newton steps with the gradient over all remaining "
        "records and a newly computed Hessian"
    ),
    "rows_gone": (
        "the data no longer contain the {records} erased records, so no Newton step could remove "
        "them. Instead, the model was fitted to the remaining records, starting from its earlier "
        "weights"
    ),
    "gradient_left": (
        "the gradient over the remaining records has at most norm {residual:.3g}, so the "
        "weights are within {distance:.3g} of the exact minimiser on the {records:,} "
        "remaining records"
    ),
    "matrices_formed_anew": (
        "the Hessian and the products of features were recomputed from the remaining records at "
        "the new weights. No earlier weights, and no matrix that includes erased records, are "
        "kept"
    ),
    "served_noise_drawn_anew": "new noise was drawn for the weights that are used for answers",
    # Why no Newton step was taken.
    "no_step_with_fresh_loss": (
        "no Newton step was computed: new_seeds=true asks for a new random term in the loss, but "
        "the stored state was computed with the previous term"
    ),
    "no_step_from_other_records": (
        "no Newton step was computed, because the remaining records differ from those from which "
        "the stored state was computed: {fact:fact}"
    ),
    "no_step_to_other_classes": (
        "no Newton step was computed, because the run has the classes {before}, but the "
        "remaining records only have the classes {after}"
    ),
    "no_step_within_budget": (
        "the Newton steps ({stages:listed}) were computed but not used: after them, the gradient "
        "can have a norm of up to {spent:.3g}, but the removal budget only allows {total:.3g}"
    ),
    "nothing_to_start_from": (
        "no Newton step was computed, because a run with certificate={certificate} does not store "
        "the intermediate results that such a step needs"
    ),
    # Why certificates do not cover a removal.
    "certificate_given_noise": (
        "certificates with certificate={certificate} only hold for the noise that was drawn when "
        "this run was trained. Training without a record would draw other noise, so these "
        "certificates say nothing about removals"
    ),
    "noise_drawn_again": (
        "this run was trained with noise (noise.epsilon). Training again would draw other noise "
        "and give another model, so certificates of this run do not cover removals"
    ),
    "public_not_counted": (
        "relation={relation} only covers removals of private records, but a public record is to "
        "be erased"
    ),
    "public_features": (
        "the features are computed from public rows (certificate.features.public=train), but one "
        "of these rows is to be erased, so the features of all records may change"
    ),
    "condition_not_held": "{fact:fact}",
    # What became of an earlier answer.
    "record_not_whole": (
        "the folder of an earlier result is incomplete, so its answers cannot be checked: {error}"
    ),
    "answers_not_covered": (
        "the certificates do not cover the requested removal, so it is not guaranteed that the "
        "{given} earlier answers stay the same without the erased records"
    ),
    "answers_stand": (
        "{stable} of the {given} earlier answers equal those of a model trained without the "
        "erased records, because these answers are certified to stay the same without the records "
        "of any {units:people}"
    ),
    "answers_lost": (
        "{lost} of the {given} earlier answers are not certified to stay the same without the "
        "records of {units:people}"
    ),
    "nothing_new": (
        "this result released nothing new: its answers repeat those of earlier releases, and are "
        "counted only there"
    ),
    "claim_missing": (
        "this earlier release has no claim (the file that states its guarantee), so no "
        "guarantee is known"
    ),
    "simulated": (
        "the random draws of this release come from a seed, so the release is only a simulation"
    ),
    "not_proved": "the guarantee of this release is not proved (its claim says so)",
    "relation_two_sided": (
        "relation={relation} does not cover people who are erased without being replaced by others"
    ),
    "no_bound_for_group": (
        "the guarantee of mechanism={mechanism} is for one unit (person), and gives no bound for "
        "{units:people} together"
    ),
    "group_pure": (
        "released earlier: {releases} {output} by {mechanism}, each of which is "
        "{eps:.6g}-differentially private for {units:people} together, by group privacy"
    ),
    "group_approximate": (
        "released earlier: {releases} {output} by {mechanism}, each of which is ({eps:.6g}, "
        "{delta:.6g})-differentially private for {units:people} together, by group privacy"
    ),
    "group_gaussian": (
        "released earlier: {releases} {output} by {mechanism}, each of which is {mu:.6g}-Gaussian "
        "differentially private for {units:people} together, by group privacy"
    ),
    "all_pure": (
        "all releases listed here together are {eps:.6g}-differentially private for the erased "
        "people"
    ),
    "all_approximate": (
        "all releases listed here together are ({eps:.6g}, {delta:.6g})-differentially private "
        "for the erased people"
    ),
    "weights_stand": (
        "these weights were trained on the erased records, too, and their guarantee bounds what "
        "they reveal about them. Whether to go on using and publishing them (`agt predict "
        "release=...`), or to release weights of the updated run instead, is for the owner to "
        "decide"
    ),
    "made_from_release": (
        "these {given} answers were computed from the weights that {release} released, so they "
        "stand or are void as those weights are"
    ),
    # The search for traces.
    "other_runs": "other training runs (their files records.bin)",
    "trained_on_erased": (
        "other runs are still trained on erased records ({runs:few}): erase the records there too"
    ),
    "learner_trained_on_erased": (
        "other runs with a learner of your own are still trained on erased records ({runs:few}), "
        "but agt cannot erase records from such runs: for each, train a new run after the rows are "
        "deleted from the table, and delete the folder of the old run"
    ),
    "no_other_runs": "no other training run was found there",
    "no_trace_in_runs": (
        "{runs} of the other runs were asked for all records and people of the request, and were "
        "trained on none of them"
    ),
    "runs_gone": (
        "{runs} runs that were trained on erased records when these were erased here are no longer "
        "there, so agt cannot tell whether they were deleted or moved"
    ),
    "named_by_content": (
        "these runs were NOT SEARCHED ({runs:few}), because their data name each record by a hash "
        "of its content (dataset.id=null), so no id of the request can be found in them, and they "
        "may still be trained on erased records: train each again with {settings}, erase in the "
        "new run, and delete the folder of the old one"
    ),
    "of_other_tables": (
        "these runs were NOT SEARCHED ({runs:few}), because they were trained on other data "
        "({tables:few}) in which other columns name records and people: if the people of this "
        "request are in them, too, erase there with the ids that they have there"
    ),
    "training_unfinished": (
        "training has not ended in {runs:few}, so agt cannot tell whether these runs contain the "
        "erased records: wait until it has ended, or resume each run that has a checkpoint, and "
        "erase the records there, or delete the folder"
    ),
    "searched_in_part": (
        "these runs were NOT SEARCHED for all records of all people of the request ({runs:few}), "
        "so they may still be trained on some of them: the data no longer contain rows of these "
        "people, or the data of the other run do not name people (dataset.unit), and agt stores "
        "only keyed hashes of ids, under another key in each run"
    ),
    "named_by_other_columns": (
        "these runs were NOT SEARCHED ({runs:few}), because their data name records and people by "
        "other columns (dataset.id and dataset.unit; with dataset.id=null, all columns of a "
        "record) than the data of this run, so they may still be trained on erased records"
    ),
    "key_missing": (
        "these runs were NOT SEARCHED ({runs:few}), because their key file (unlearning/key) is "
        "missing or is not theirs"
    ),
    "index_not_readable": (
        "these runs were NOT SEARCHED ({runs:few}), because their file records.bin is not the one "
        "that the run was finished with, or the run is not finished"
    ),
    "index_missing": (
        "these folders with a trained model were NOT SEARCHED ({runs:few}), because they have no "
        "file records.bin (saved models, and runs of very old versions of agt)"
    ),
    "folder_not_listed": (
        "these folders were NOT SEARCHED ({runs:few}), because agt may not list their files"
    ),
    # The search for traces, as accounts of versions before 0.22 state it.
    "trained_on_erased_earlier": (
        "other runs are still trained on records that earlier erasures removed from this run "
        "({runs:few}): erase those records there too (the other counts are about the records of "
        "this erasure only)"
    ),
    "traces_cleared": (
        "of these, {runs} had traces when the records were erased here, and have none any more"
    ),
    "runs_not_searched": (
        "{runs} of the other runs were NOT SEARCHED for {forgotten} of the {erased} erased "
        "records, so they may still be trained on them. The data no longer contain the rows of "
        "these records, and agt stores only keyed hashes of their ids, under another key in each "
        "run"
    ),
    "runs_not_searched_for_people": (
        "{runs} of the other runs were NOT SEARCHED for all records of {units:people}, so they may "
        "still be trained on some of these records. Either their data do not name these people as "
        "the data of this run do (dataset.unit), or this run had no training records of these "
        "people, and their ids are stored nowhere"
    ),
    "named_otherwise": (
        "{runs} of the other runs were NOT SEARCHED, because their data name records and people by "
        "other columns (dataset.id and dataset.unit; with dataset.id=null, all columns of a "
        "record) than the data of this run, so they may still be trained on erased records"
    ),
    "index_unreadable": (
        "{runs} of the other runs were NOT SEARCHED, because their file records.bin is not the one "
        "that the run was finished with, or the run is not finished"
    ),
    "no_index": (
        "{runs} folders with a trained model were NOT SEARCHED, because they have no file "
        "records.bin (saved models, and runs of very old versions of agt)"
    ),
    "training_running": (
        "a training is running in {folders:few}, so agt cannot tell whether it uses the erased "
        "records: when it has ended, erase the records there too"
    ),
    "folders_not_listed": (
        "{count} folders were NOT SEARCHED, because agt may not list their files"
    ),
    "key_gone": (
        "{runs} of the other runs were NOT SEARCHED, because their key file (unlearning/key) is "
        "missing or is not theirs"
    ),
    "training_stopped": (
        "training was stopped before its end in {folders:few}, so agt cannot tell whether these "
        "runs contain the erased records: resume each run that has a checkpoint and erase the "
        "records there, or delete the folder"
    ),
    # What was not searched.
    "files_beside_runs": (
        "files next to the folders of the runs were not searched for erased records"
    ),
    "other_folders": (
        "folders outside of output_dir (of this command and of the run) were not searched for "
        "erased records"
    ),
    "rows_in_own_data": (
        "the run's own data files still contain {rows} of the erased records. Only the owner of "
        "the data may change these files; agt no longer reads the rows of these records"
    ),
    "no_rows_in_own_data": (
        "the run's own data do not contain a row of any erased record any more"
    ),
    "test_rows_in_own_data": (
        "the run's own data files still contain {rows} test records of the people who requested "
        "erasure, which training did not use. Only the owner of the data may delete these rows"
    ),
    "test_rows_not_looked_for": (
        "the run's own data files were not searched for rows of {units:people} of whom they had "
        "test records only, because ids of such people are stored nowhere"
    ),
    "releases_handed_on": (
        "labels that were computed from released weights (`agt predict release=...`) are listed "
        "among the earlier results only if their record lies in output_dir and the weights lie "
        "where they were read"
    ),
    "file_of_ids": (
        "the file that lists the ids to erase was not deleted: delete it when it is no longer "
        "needed"
    ),
    "shadow_models": (
        "the shadow models of membership audits in output_dir were each trained on half of "
        "the records, including erased ones: delete them"
    ),
    # What no account shows.
    "not_for_publication": (
        "this erasure report must not be published: it is only for the owner and an auditor. Its "
        "budget, counts and times depend on the records, including the erased ones, and no "
        "guarantee covers this dependence"
    ),
    "earlier_answers_remain": (
        "answers that were given or published earlier stay with whoever has them"
    ),
    "copies_not_reached": (
        "copies are not erased, such as backups, exports, the table that the run was trained on, "
        "or other runs about the same people"
    ),
    "askers_not_checked": (
        "agt cannot check whether the people who requested erasure were who they said they "
        "were, nor whether all of their records have the given id or unit"
    ),
    "others_tell": (
        "the remaining records may reveal something about the erased people, through "
        "relatives, duplicates under other ids, or common properties"
    ),
    "below_files": (
        "traces below the level of files are not erased, such as freed blocks of a disk, "
        "snapshots of a file system, or memory"
    ),
    "choice_of_requests": (
        "the choice of the requests may itself reveal something: if people requested erasure "
        "because of what the model showed about others, the remaining records still reflect what "
        "the model showed, and no method can undo this"
    ),
    "guesses_can_be_tested": (
        "guesses about erased records can be tested. Digests of earlier states remain in this "
        "report and in earlier files of the run. Anyone who has all other records can compare a "
        "guess with these digests. Anyone who has the run's unlearning/key can test whether a "
        "given id was erased"
    ),
    # What an audit tests.
    "as_promised": (
        "the guarantee of this erasure method is the one that the report of `agt unlearn` states"
    ),
}


@schema
class Remark:
    """A statement about a removal, stored as a code and values from which its sentence is made.

    Attributes:
        code: the code of the sentence, a key of ``TEMPLATES``.
        values: the values that the sentence's template takes, by name.

    Raises:
        ConfigError: no sentence has this code, or its template takes other values.
    """

    code: str
    values: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ConfigError unless the code has a template that takes exactly these values."""
        if self.code not in TEMPLATES:
            raise ConfigError(f"{self.code}: there is no template for a sentence with this code")
        try:
            check_values(self.code, (TEMPLATES[self.code],), self.values)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    @property
    def sentence(self) -> str:
        """The sentence, with its values filled in."""
        return fill(TEMPLATES[self.code], self.values)


def add_templates(templates: Mapping[str, str]) -> None:
    """Add the templates of sentences about a removal method that another package defines.

    Args:
        templates: templates by new codes; ``TEMPLATES`` is changed.

    Raises:
        ValueError: there is already a sentence for one of the codes.
    """
    add_new(templates, TEMPLATES)


def sentences(remarks: tuple[Remark, ...]) -> tuple[str, ...]:
    """Return the sentences of several remarks, in their order."""
    return tuple(remark.sentence for remark in remarks)
