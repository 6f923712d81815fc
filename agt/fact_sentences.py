"""What facts of conditions say, a template for each code: this room has the words (agt/facts.py).

``TEMPLATES`` has a sentence for each code, and ``BROKEN_BY``, of each code that a declaration has,
what would make it false. ``setting`` is the setting by which something was declared, as typed.
"""

from agt.templates import IN_WORDS

DECLARED_IN_WORDS = "declared_in_words"
"""Code of a declaration that an earlier version recorded as text."""

_CHOSEN = "these settings were chosen on public data or constants ({setting})"
_RECIPE = (
    "the settings are the recipe's, unchanged, which depend on public constants alone and were "
    "chosen on other, public data; which columns enter, and how they are declared, was not chosen "
    "by results on these records"
)
_ON_ROWS = ": on {rows:rows}, digest {digest} (training.chosen_from)"
_MARKED = (
    "was read off the records, so one record can move it. Replace {key} by public values and "
    "remove its name from {setting}; or, if everything that {setting} names is public, declare "
    "that with {setting}=[]"
)
_COLUMNS = (
    "ranges and lists of values are public constants ({setting}), and so is which columns are used "
    "and what counts as a missing value"
)
_UNDECLARED_CENTER = (
    "is not declared public, and a mean of private records would reveal something about them. If "
    "it comes from public data, set {setting}=true"
)
_OWN_IDS = (
    "removing a record would then rename others and move them to other batches. Leave the names "
    "out (ids are then hashes of content), or declare that they belong to the records with "
    "{setting}"
)

TEMPLATES: dict[str, str] = {
    IN_WORDS: "{text}",
    DECLARED_IN_WORDS: "{text}",
    # In the words of whoever wrote a data set of their own (docs/extending.md).
    "own_words": "{text}",
    "declared_in_own_words": "{text}",
    # Nobody knows.
    "not_recorded": "the run's record does not say whether it is met",
    "not_assessed": "the run does not say whether it is met",
    # For which k there are certificates (a).
    "grid_dense": "the grid is every integer 0..{last}",
    "grid_sparse": (
        "the grid skips integers, so between neighbours only a query's index in the grid changes "
        "by at most 1, not its distance"
    ),
    "every_k_in_closed_form": "a closed form covers every integer k, whatever grid is shown",
    "every_k_counted": "an exact count covers every integer k, whatever grid is shown",
    # What names records and people, and what splits and selects them (b).
    "ids_by_content": "each record's id is a hash of its own content",
    "ids_by_content_of_classes": (
        "each record's id is a hash of its own content; a record is used if its class is one of "
        "{classes:listed}"
    ),
    "ids_by_content_thinned": (
        "each record's id is a hash of its own content; thinned at public rates by class "
        "({rates:listed}) by a hash of its own id under the public key '{key}'"
    ),
    "ids_by_content_of_classes_thinned": (
        "each record's id is a hash of its own content; a record is used if its class is one of "
        "{classes:listed}; thinned at public rates by class ({rates:listed}) by a hash of its own "
        "id under the public key '{key}'"
    ),
    "column_names_records": "column '{column}' names each record ({setting})",
    "column_names_records_for_good": (
        "column '{column}' names each record, for good ({setting}, dataset.id_permanent=true)"
    ),
    "column_names_units": "column '{column}' says whose record it is ({setting})",
    "column_names_units_for_good": (
        "column '{column}' says whose record it is, for good ({setting}, dataset.id_permanent=true)"
    ),
    "column_counts_rows": (
        "column '{column}' ({setting}) counts rows, because its whole numbers fill a tenth of "
        "their range or more. Removing a record would then rename others and move them to other "
        "batches. Leave the column out (ids are then hashes of content); or, if a record keeps its "
        "id when others are added or removed, declare that with dataset.id_permanent=true"
    ),
    "names_for_good": "the {names} given are for good ({setting})",
    "names_count_rows": f"the {{names}} given count rows: {_OWN_IDS}",
    "names_may_be_places": (
        f"the {{names}} given may be places in a table, such as an index: {_OWN_IDS}"
    ),
    "column_marks_public": "the records that column '{column}' marks are public ({setting})",
    "marked_public": "the records marked public are public",
    "given_names_free_of_labels": (
        "the ids, units, public flags and split that came with the records do not depend on labels"
    ),
    "names_made_from_features": (
        "ids and split are made from features alone, and copies are numbered in the order of the "
        "rows"
    ),
    "split_by_hash": (
        "a record is in the test set if a hash of its unit's id, under the public key '{key}', "
        "is below {test_fraction:g}, so adding or removing another record does not move it"
    ),
    "split_by_column": (
        "column '{column}' ({setting}) says which records are for testing, each on its own"
    ),
    "split_by_file": "file {file} ({setting}) says which records are for testing, each on its own",
    "split_of_medmnist": "MedMNIST's own split says which records are for testing, each on its own",
    "digits_used": "a record is used if its digit is one of {digits:listed}",
    "generated": "each record is generated as a training or a test record; none is left out",
    "rows_made_alone": (
        "each row of features was made from its own record alone, by public constants ({setting})"
    ),
    "columns_made_alone": (
        "the columns of features were made from each record alone, by public constants"
    ),
    "vectors_made_alone": (
        "the vectors ('{column}') were made from each record alone, by public constants"
    ),
    "features_undeclared": (
        "it is not declared how the features were made. If each row was computed from its own "
        "record only, by public constants (no scaler fitted on these records), declare that with "
        "{setting}"
    ),
    "prepared_alone": "{text}",
    "prepared_together": "{text}",
    "preparation_silent": "{file} does not say whether records were prepared each on its own",
    "batches_by_hash": "batches are assigned by a keyed hash of the unit's id",
    "shards_by_hash": (
        "shards are assigned to {members} members by a keyed hash of the unit's id, so one k can "
        "change one member"
    ),
    "shards_by_hash_several": (
        "shards are assigned to {members} members by a keyed hash of the unit's id, so one k can "
        "change {touches} members, which the vote counts"
    ),
    "learner_is_function": (
        "the learner {learner} ({setting}) is deterministic to the last bit, sees its own shard "
        "alone and labels each query alone; {members} members were trained again in a fresh "
        "process and gave the same labels, which does not prove it"
    ),
    # Constants of training (c).
    "normaliser_from_records": (
        "the normaliser {normaliser:g} was derived from the number of records, so certificates "
        "cover only retraining with that same number. Declare {config:dataset.declared_size} or "
        "{config:training.batch.normalizer}"
    ),
    "normaliser_public": "the normaliser {normaliser:g} ({setting}) is a public constant",
    "normaliser_of_public_size": (
        "the normaliser {normaliser:g} (each batch's share of {setting}) is a public constant"
    ),
    "size_public": "the size {size:g} ({setting}) is a public constant",
    "size_of_generator": "the generator's own constant",
    "size_measured": ("the size of the data set was measured with noise by agt measure ({claim})"),
    "steps_stated": (
        "normaliser {normaliser:g}, n_max {n_max} and {steps} steps are set in the configuration"
    ),
    "objective_stated": (
        "normaliser {normaliser:g}, n_max {n_max}, weight_decay {weight_decay:g} and tolerance "
        "{tolerance:g} are set in the configuration"
    ),
    "removal_objective_stated": (
        "normaliser {normaliser:g}, n_max {n_max}, weight_decay {weight_decay:g} and residuals up "
        "to {residual:g} are set in the configuration"
    ),
    "members_stated": (
        "the number of members, their key and strength are set in the configuration; there is no "
        "normaliser"
    ),
    "learner_stated": (
        "the number of members, their key, the learner and its settings are set in the "
        "configuration"
    ),
    "margins_clipped": "margins are clipped to {clip:g}; up to {edits} edits are considered",
    # Why bounds of neighbours lie within one another (d).
    "boxes_nest": (
        "every rule of interval arithmetic is inclusion-monotone: products, clamps, activations, "
        "the loss, integer sums, elementwise clipping of gradients"
    ),
    "boxes_do_not_nest": "{relation:unnested}",
    "given_the_draw": "the noise is one draw, which is the same for every dataset compared",
    "steps_do_not_expand": (
        "learning rates up to {rate:g}, within the limit of {limit:.5g}: no step moves two models "
        "further apart, so one record moves the {each_class:parameters} by at most {movement:.4g}"
    ),
    "minimiser_of_loss": (
        "the weights minimise a {strength:g}-strongly convex loss, up to a gradient of "
        "{gradient:g}, so one record moves the {each_class:parameters} by at most {movement:.4g}, "
        "whatever the steps"
    ),
    "minimiser_of_sum": (
        "the weights minimise a {strength:g}-strongly convex sum, up to a gradient of "
        "{gradient:g}, so one record moves the {each_class:parameters} by at most {movement:.4g}, "
        "whatever the steps"
    ),
    "vote_changes": "one k changes the vote of one member",
    "votes_change": "one k changes the votes of {touches} members, which the vote counts",
    "flips_counted": (
        "the number of label flips that change a member's answer is counted exactly, and one "
        "flipped label changes that number by at most 1"
    ),
    # What made features and chose settings (e).
    "classes_public": "the list of classes is public ({setting})",
    "classes_found": "the list of classes was read off the data: give the public list in {setting}",
    "classes_found_in_y": "the list of classes was read off y: give the public list in {setting}",
    "classes_read_off_records": (
        "the list of classes was read off the records. If it is public, remove 'classes' from "
        "{setting}, or declare everything that {setting} names public with {setting}=[]"
    ),
    "classes_measured": (
        "the classes of the data set were measured with noise by agt measure ({claim})"
    ),
    "classes_of_medmnist": "the list of classes is MedMNIST's own, as published",
    "classes_unknown_to_medmnist": (
        "the list of classes was found in the data: give it in {setting}, or install medmnist, "
        "which has it ({command})"
    ),
    "range_marked": f"the range of column '{{column}}' {_MARKED}",
    "range_and_more_marked": (
        f"the range of column '{{column}}' (and of {{more}} more: {{setting}} names them) {_MARKED}"
    ),
    "list_marked": f"the list of values of column '{{column}}' {_MARKED}",
    "list_and_more_marked": (
        f"the list of values of column '{{column}}' (and of {{more}} more: {{setting}} names them) "
        f"{_MARKED}"
    ),
    "range_found": (
        "the range of column '{column}' is its smallest and largest training value, so one record "
        "can move it, and with it every feature. Give a public range in {setting}"
    ),
    "columns_public": _COLUMNS,
    "columns_public_some_measured": (
        f"{_COLUMNS}; of these, {{measured:listed}} were measured from these records with noise "
        "by agt measure, which is a release of its own ({claim}); certificates and erasures treat "
        "the measured values as given"
    ),
    "kinds_of_columns_public": (
        "which columns there are, of which kind, what counts as a missing value, and what names "
        "records, people and test records is public"
    ),
    "nothing_subtracted": (
        "nothing is subtracted from a vector, and the scale is a constant of the configuration"
    ),
    "center_of_file_public": "the center (key '{key}' of {file}) is public ({setting}=true)",
    "center_given_public": "the center (given in the configuration) is public ({setting}=true)",
    "center_of_file_undeclared": f"the center (key '{{key}}' of {{file}}) {_UNDECLARED_CENTER}",
    "center_given_undeclared": f"the center (given in the configuration) {_UNDECLARED_CENTER}",
    "pixels_divided": (
        "pixels are divided by {levels:g} and shifted by {center:g}, constants of the image format"
    ),
    "pixels_scaled": "pixels are scaled by constants written in the configuration",
    "polynomials_fixed": "the six polynomial features are a fixed formula of one record",
    "norm_one": "each record is brought to norm 1 on its own",
    "relu_features": "{count} random relu features from the public seed {seed}",
    "landmarks_by_hash": (
        "the {count} landmarks are those whose content's hash is least, with seed {seed}"
    ),
    "scattering_features": (
        "scattering features: wavelets are public constants, and nothing is learnt"
    ),
    "whitening_rows_public": (
        "{public:rows}, whose covariance whitens the features, are public without their labels "
        "({setting}={public})"
    ),
    "landmark_rows_public": (
        "{public:rows}, some of which are landmarks and published with weights, are public "
        "without their labels ({setting}={public})"
    ),
    "whitening_and_landmark_rows_public": (
        "{public:rows}, whose covariance whitens the features and some of which are landmarks and "
        "published with weights, are public without their labels ({setting}={public})"
    ),
    "initial_parameters_public": "the initial parameters of {network} are public constants",
    "encoder_weights_public": "the encoder's weights ({file}) are public ({setting}=true)",
    "encoder_weights_undeclared": (
        "the encoder's weights ({file}) are not declared public, and features reveal something "
        "about private records that they were trained on. If there are none, set {setting}=true"
    ),
    "encoder_records_public": (
        "the records that the encoder was trained on are public ({setting}=true)"
    ),
    "encoder_records_undeclared": (
        "the encoder was trained on records that are not declared public, so features reveal "
        "something about them. If they are public, set {setting}=true"
    ),
    "encoder_of_record": "stated in the record of the run that stored this encoder",
    "encoder_saw_private": ("the encoder was also trained on private records, such as {record!r}"),
    "settings_undeclared": (
        "it is not declared what the training settings were chosen on. If they were chosen on "
        "public data, declare {setting}"
    ),
    "settings_chosen_on_results": (
        "the training settings were chosen by results on this data. Choose settings on public "
        "data, train again, and declare {config:training.chosen_on=public}"
    ),
    "settings_chosen_on_public": _CHOSEN,
    "settings_chosen_on_public_rows": f"{_CHOSEN}{_ON_ROWS}",
    "settings_of_recipe": _RECIPE,
    "settings_of_recipe_on_rows": f"{_RECIPE}{_ON_ROWS}",
    "declared_for_other_settings": (
        "{setting} was declared for other settings ({changed:listed} differ). If these settings "
        "were also chosen on public data only, declare {setting} on the command line of this run; "
        "its config.yaml then has the chosen_for that a settings file needs"
    ),
    "declared_for_no_settings": (
        "{setting} was declared without saying for which settings. If these settings were chosen "
        "on public data only, declare {setting} on the command line of this run; its config.yaml "
        "then has the chosen_for that a settings file needs"
    ),
    "differs_from_recipe": (
        "training.chosen_on=recipe is about the unchanged recipe, but this run changes "
        "{changed:listed}. If the changes were chosen on public data or constants only, declare "
        "{setting} on the command line"
    ),
    "chosen_on_other_rows": (
        "the settings were chosen on {rows:rows}, digest {digest} (training.chosen_from), but the "
        "digest is now {now}, so these are other rows. Choose again with agt tune; or, if these "
        "settings were chosen on public data only, declare {setting} on the command line of this "
        "run"
    ),
    # Arithmetic (f).
    "bounds_widened": (
        "{dtype} bounds are widened by 2(k+1) tau, which covers rounding, and gradients are summed "
        "as integers"
    ),
    "product_not_nested": (
        "Rump's product of scalars is widened so that it contains the exact product, but it is not "
        "proved to nest in its last digits. Use {config:training.product}=exact"
    ),
    "sums_in_float64": (
        "float64 sums: rounding adds at most {share:.1e} of what one record moves, and the bounds "
        "of margins and distances include their own rounding"
    ),
    "sums_of_integers": (
        "each member is a function of its shard, with roundings whose order its own records "
        "decide; scores of queries are exact sums of integers"
    ),
    "votes_are_integers": (
        "votes are integers; how the learner rounds is part of what is declared of it (condition b)"
    ),
    # The relation (g).
    "symmetric": "{relation}: {relation:ball}",
    "symmetric_within_radius": "{relation}: {relation:ball} (relation.radius={radius:g})",
    "one_sided": "{relation}: {relation:ball}; its certificates are about removals only",
    # Where nothing is trained.
    "nothing_trained": "records are counted; nothing is trained",
    # What a removal rests on.
    "no_record_left_out": "no record is left out",
    "features_read_off_records": (
        "constants that make the features of every record were read off records: {missing:facts}"
    ),
    "erased_decided_constants": (
        "the erased records decided a class or a range, so without them the features of every "
        "record change"
    ),
    "read_as_before": (
        "the features of every other record are as before, because the constants that make them "
        "are public or were compared"
    ),
    "read_as_before_as_declared": (
        "the features of every other record are as before, because the constants that make them "
        "are public or were compared: {declaration:fact}"
    ),
    "began_from_nothing": (
        "training started from its own initial parameters and used no earlier state of the run"
    ),
    "members_by_same_code": (
        "all members were trained by the same code, on machines of one kind, with as many threads"
    ),
    "members_of_same_shards": (
        "a member was kept only if its shard has the digest that it was trained on"
    ),
    "members_by_other_code": (
        "not bit-identical to a training of today: the members that were kept were trained before "
        "{changed:listed} changed. Each of them was trained only on records that remain"
    ),
    "near_minimiser_before_noise": (
        "the weights, before noise, are within {distance:upward} of the exact minimiser on the "
        "records that are left (l2, all outputs): a gradient of at most {gradient:upward}, "
        "rounding included, over a strong convexity of {strength:g}"
    ),
    "retraining_near_minimiser": (
        "training without the records, as this program computes it, is also within {distance:.2g} "
        "of that minimiser; the noise covers the sum of both distances"
    ),
    "residual_depends_on_noise": (
        "the published proof (Guo et al. 2020, theorem 2) assumes that the gradient that a step "
        "leaves is independent of the random term in the loss. It is not, because the weights were "
        "computed with that term. masking=output does not need the assumption"
    ),
    "noise_in_floating_point": (
        "the random term in the loss was added in floating point, but the published proof is about "
        "real numbers, so the last digits are not covered"
    ),
    "noise_exact": (
        "the noise has exactly the distribution of a real Gaussian that is rounded to a public "
        "lattice, so no digit of the published weights depends on floating-point noise"
    ),
    "noise_drawn_anew": (
        "new noise was drawn for this update by the operating system, independently of everything "
        "before"
    ),
    "noise_from_recorded_seed": (
        "the noise comes from certificate.seed, which is recorded, so this is a simulation that "
        "hides nothing"
    ),
}

NAMING_REMEDY = frozenset(
    {
        "column_counts_rows",
        "names_count_rows",
        "names_may_be_places",
        "features_undeclared",
        "normaliser_from_records",
        "classes_found",
        "classes_found_in_y",
        "classes_read_off_records",
        "classes_unknown_to_medmnist",
        "range_marked",
        "range_and_more_marked",
        "list_marked",
        "list_and_more_marked",
        "range_found",
        "center_of_file_undeclared",
        "center_given_undeclared",
        "encoder_weights_undeclared",
        "encoder_records_undeclared",
        "settings_undeclared",
        "settings_chosen_on_results",
        "declared_for_other_settings",
        "declared_for_no_settings",
        "differs_from_recipe",
        "chosen_on_other_rows",
        "product_not_nested",
    }
)
"""Codes of facts that do not hold whose sentence says what to do, by the key that failed."""

_NOT_PICKED = (
    "one of them was chosen by results on the private records, or on other data that is not public"
)
_NOT_OF_RECIPE = (
    "a column, range, list or split was chosen by results on these records, or they are among the "
    "data sets that the recipe was chosen on (docs/recipe.md)"
)
_PRIVATE_ROW = "; or one of those rows is private"
_RENAMED = "an id is a row number, or changes when another record is added or removed"
_FITTED = (
    "they depend on something that was fitted on the records: a mean, a scale, a rank, components, "
    "an encoder"
)
_MARKED_PRIVATE = "a marked record is private, or is marked because of other records"
_SPLIT_FROM_WHOLE = (
    "the split was drawn from the whole set (by position, rank or count), so that one more record "
    "would move others"
)
_COUNTED = (
    "it was counted from the records (for example, if it is their number), so that one more record "
    "would change it and every step"
)
_CHANGED_SINCE = "it was changed since, in the data set's file or by a setting"
_RANGE_READ_OFF = (
    "one of them was read off the records, such as a range that ends at the largest value"
)
_CENTER_PRIVATE = "it was computed from private records, such as their mean"
_ROWS_PRIVATE = "one of these rows is private, or was selected by looking at private records"

BROKEN_BY: dict[str, str] = {
    DECLARED_IN_WORDS: "{broken_by}",
    "declared_in_own_words": "{broken_by}",
    "column_names_records": _RENAMED,
    "column_names_records_for_good": _RENAMED,
    "column_names_units": _RENAMED,
    "column_names_units_for_good": _RENAMED,
    "names_for_good": "one is a row number, or changes when another record is added or removed",
    "column_marks_public": _MARKED_PRIVATE,
    "marked_public": _MARKED_PRIVATE,
    "given_names_free_of_labels": (
        "one was made from labels: a hash of the whole row, a split with the same share of each "
        "class"
    ),
    "split_by_column": _SPLIT_FROM_WHOLE,
    "split_by_file": _SPLIT_FROM_WHOLE,
    "split_of_medmnist": _SPLIT_FROM_WHOLE,
    "rows_made_alone": _FITTED,
    "columns_made_alone": _FITTED,
    "vectors_made_alone": _FITTED,
    "learner_is_function": (
        "it draws from anything but its random_state, reads a clock, a file, another shard or "
        "what it learnt before, or rounds differently from one call to the next"
    ),
    "normaliser_public": _COUNTED,
    "normaliser_of_public_size": _COUNTED,
    "size_public": _COUNTED,
    "size_measured": _CHANGED_SINCE,
    "classes_public": "it was read off the records",
    "classes_measured": _CHANGED_SINCE,
    "columns_public": _RANGE_READ_OFF,
    "columns_public_some_measured": _RANGE_READ_OFF,
    "kinds_of_columns_public": (
        "a column is present or left out because of the values of the records"
    ),
    "center_of_file_public": _CENTER_PRIVATE,
    "center_given_public": _CENTER_PRIVATE,
    "whitening_rows_public": _ROWS_PRIVATE,
    "landmark_rows_public": _ROWS_PRIVATE,
    "whitening_and_landmark_rows_public": _ROWS_PRIVATE,
    "initial_parameters_public": "they were trained on private records, as in pretraining",
    "encoder_weights_public": "they were trained on a private record",
    "encoder_records_public": "one of them is private",
    "settings_chosen_on_public": _NOT_PICKED,
    "settings_chosen_on_public_rows": f"{_NOT_PICKED}{_PRIVATE_ROW}",
    "settings_of_recipe": _NOT_OF_RECIPE,
    "settings_of_recipe_on_rows": f"{_NOT_OF_RECIPE}{_PRIVATE_ROW}",
    "read_as_before_as_declared": "{declaration:broken_by}",
}

PUBLIC_ROWS = {"test": "the test records", "train": "the training records marked public"}


def rows(named: str) -> str:
    """Return which public rows something was made or chosen on.

    Args:
        named: test or train, those of the data set; or the name of a file.
    """
    return PUBLIC_ROWS.get(named, f"the rows of {named}")


def declaration(sentence: str, broken_by: str) -> str:
    """Return what was declared, and what would break it."""
    return f"{sentence}; false if {broken_by}"


def declared(declaration: str) -> str:
    """Return a declaration that says that it is one."""
    return f"declared: {declaration}"
