"""What facts of conditions say, a template for each code: this room has the words (agt/facts.py).

``TEMPLATES`` has a sentence for each code, and ``BROKEN_BY``, of each code that a declaration has,
what would make it false. ``setting`` is the setting by which something was declared, as typed.
"""

_CHOSEN = (
    "the model, the ids, the features and the training settings were chosen on public data or "
    "constants ({setting})"
)
_RECIPE = (
    "the training settings are those of agt's recipe, unchanged. The recipe depends only on "
    "public constants, and was chosen on other, public data. The model, the ids, the features and "
    "how columns are declared were not chosen by results on these records"
)
_ON_ROWS = ". To choose the settings, {rows:rows} were used (training.chosen_from, digest {digest})"
_IF_PUBLIC = (
    "and remove '{column}' from {setting}. If everything that {setting} names is public, "
    "{setting}=[] is enough"
)
_MARKED = (
    "was read off the records ({setting} names this column), so a single record can change it."
)
_SEVERAL_MARKED = (
    "were read off the records ({setting} names these columns), so a single record can change them."
)
_COLUMNS = (
    "ranges and lists of values are public constants ({setting}), and so are the choice of "
    "columns and the definition of a missing value"
)
_PROPOSED_CLAUSE = (
    "agt proposed {proposed:constants} from these records (with rounded ends, and values that "
    "occur), which the owner then declared public (dataset.proposed_from_rows). The guarantee "
    "treats them as fixed"
)
_SOME_MEASURED = (
    "Some of these constants ({measured:listed}) were measured from these records with noise by "
    "agt measure, which is a private release of its own ({claim}). Certificates and erasures "
    "treat the measured values as fixed"
)
_UNDECLARED_CENTER = (
    "is not declared public. A center that is the mean of private records would reveal "
    "something about them. If the center comes from public data, set {setting}=true"
)
_OWN_IDS = (
    "removing a record would give other records new {names} and move them to other "
    "batches. Leave the {names} out; each record's id is then a hash of its content. "
    "If the {names} never change, declare that with {setting} instead"
)

TEMPLATES: dict[str, str] = {
    # In the words of whoever wrote a data set of their own (docs/extending.md).
    "own_words": "{text}",
    "declared_in_own_words": "{text}",
    # Nobody knows.
    "not_recorded": "the run does not record whether this condition is met",
    "not_assessed": "whether this condition is met was not assessed for this run",
    # For which k there are certificates (a).
    "grid_dense": "certificates are computed for every integer k from 0 to {last}",
    "grid_sparse": (
        "certificates are computed only for some values of k (the grid of k has gaps). So a "
        "query's stable distance can differ by more than 1 between neighbouring datasets. Its "
        "position in the list of these values of k differs by at most 1"
    ),
    "every_k_in_closed_form": (
        "certificates hold for every integer k, because a closed formula computes them (tables "
        "may show only some values of k)"
    ),
    "every_k_counted": (
        "certificates hold for every integer k, because agt counts exactly how many edits would "
        "change each label (tables may show only some values of k)"
    ),
    "sums_need_no_grid": (
        "a closed formula scales the noise so that it covers one edit of the data, so no grid of k "
        "is needed"
    ),
    # What names records and people, and what splits and selects them (b).
    "ids_by_content": "each record's id is a hash of its own content",
    "ids_by_content_of_classes": (
        "each record's id is a hash of its own content. Only records of the classes "
        "{classes:listed} are used"
    ),
    "ids_by_content_thinned": (
        "each record's id is a hash of its own content. Only a public share of each class is "
        "used ({rates:listed}): a hash of the id under the public key '{key}' selects the records"
    ),
    "ids_by_content_of_classes_thinned": (
        "each record's id is a hash of its own content. Only records of the classes "
        "{classes:listed} are used, and of each class only a public share ({rates:listed}): a "
        "hash of the id under the public key '{key}' selects the records"
    ),
    "column_names_records": "column '{column}' gives the id of each record ({setting})",
    "column_names_records_for_good": (
        "column '{column}' gives the permanent id of each record ({setting}, "
        "dataset.id_permanent=true)"
    ),
    "column_names_units": (
        "column '{column}' gives the id of the person (unit) to whom each record belongs "
        "({setting})"
    ),
    "column_names_units_for_good": (
        "column '{column}' gives the permanent id of the person (unit) to whom each record "
        "belongs ({setting}, dataset.id_permanent=true)"
    ),
    "column_counts_rows": (
        "column '{column}' ({setting}) looks like row numbers: it holds whole numbers that use at "
        "least a tenth of the numbers in their range. Row numbers change when a record is removed, "
        "so other records would move to other batches. Leave out {setting}, so that each record's "
        "id is a hash of its content. If the ids never change, declare dataset.id_permanent=true "
        "instead"
    ),
    "names_for_good": (
        "the {names} that were given do not change when other records are added or removed "
        "({setting})"
    ),
    "names_count_rows": f"the {{names}} that were given are row numbers, so {_OWN_IDS}",
    "names_may_be_places": (
        f"the {{names}} that were given may be positions in a table, such as the index of a "
        f"data frame, in which case {_OWN_IDS}"
    ),
    "column_marks_public": (
        "the records that column '{column}' marks as public are indeed public ({setting})"
    ),
    "marked_public": "the records that are marked as public are indeed public",
    "given_names_free_of_labels": (
        "the ids, units, public flags and split that were given with the records do not "
        "depend on labels"
    ),
    "names_made_from_features": (
        "a record's features alone determine its id and whether it is a test record; records with "
        "identical features are numbered in the order of their rows"
    ),
    "split_by_hash": (
        "a record is a test record if a hash of the id of its unit (person), scaled to 0..1, is "
        "below {test_fraction:g}. The key of this hash is public ('{key}'), and no other record "
        "matters"
    ),
    "split_by_column": (
        "column '{column}' ({setting}) marks the test records, and whether a record is marked "
        "does not depend on other records"
    ),
    "split_by_file": (
        "file {file} ({setting}) contains the test records, and whether a record is in it "
        "does not depend on other records"
    ),
    "split_of_medmnist": (
        "MedMNIST's own split decides which records are test records, for each record "
        "independently of the others"
    ),
    "unlabelled_rows_left_out": (
        "a row without a label is no record and is left out ({setting}), and whether a row has a "
        "label does not depend on other rows"
    ),
    "digits_used": "a record is used if its digit is one of {digits:listed}",
    "generated": (
        "the data are synthetic: their generator makes each record either as a training record or "
        "as a test record, and every record is used"
    ),
    "rows_made_alone": (
        "each row of features was computed from its own record only, with public constants "
        "({setting})"
    ),
    "columns_made_alone": (
        "each record's features were computed from that record only, with public constants"
    ),
    "vectors_made_alone": (
        "each vector (column '{column}') was computed from its own record only, with public "
        "constants"
    ),
    "features_undeclared": (
        "it is not declared how the features were computed. If each row was computed only from "
        "its own record and public constants (no scaler fitted on these records), declare that "
        "with {setting}"
    ),
    "prepared_alone": "{text}",
    "prepared_together": "{text}",
    "preparation_silent": (
        "{file} does not say whether each of its records was prepared independently of the others"
    ),
    "batches_by_hash": "a keyed hash of the id of a record's unit (person) decides its batch",
    "shards_by_hash": (
        "a keyed hash of the id of a record's unit (person) decides which of the ensemble's "
        "{members} members is trained on the record. So each further edit of the data (k raised "
        "by one) changes at most one further member"
    ),
    "shards_by_hash_several": (
        "a keyed hash of the id of a record's unit (person) decides which of the ensemble's "
        "{members} members is trained on the record. Each further edit of the data (k raised by "
        "one) changes up to {touches} further members, and the certificates of the vote count "
        "all of these"
    ),
    "learner_is_function": (
        "the learner {learner} ({setting}) is deterministic to the last bit, uses only its own "
        "shard (part) of the records, and labels each query independently of other queries. As a "
        "test, which is not a proof, {members} members were trained again in a fresh process and "
        "gave the same labels"
    ),
    # Constants of training (c).
    "normaliser_from_records": (
        "sums over records are divided by {normaliser:g}, which was computed from the number of "
        "records. So certificates only cover retraining that divides by the same number. Give a "
        "public constant instead: {config:dataset.declared_size} or "
        "{config:training.batch.normalizer}"
    ),
    "normaliser_public": (
        "sums over records are divided by {normaliser:g} ({setting}), which is a public constant"
    ),
    "normaliser_of_public_size": (
        "sums over the records of a batch are divided by {normaliser:g}, which is a public "
        "constant (each batch's share of {setting})"
    ),
    "size_public": "the declared size of the data set, {size:g} ({setting}), is a public constant",
    "size_public_proposed": (
        "the declared size of the data set, {size:g} ({setting}), is a public constant. It is the "
        "size that agt computes from the number of these records, and the owner declared it "
        "public (dataset.proposed_from_rows). The guarantee treats it as fixed"
    ),
    "size_of_generator": (
        "the size of the data set is a public constant of the generator that makes the data"
    ),
    "size_measured": ("the size of the data set was measured with noise, by agt measure ({claim})"),
    "steps_stated": (
        "these numbers are set in the configuration: the number by which sums over records are "
        "divided ({normaliser:g}), the largest allowed batch (n_max = {n_max} records) and the "
        "number of training steps ({steps})"
    ),
    "objective_stated": (
        "these numbers are set in the configuration: the number by which sums over records are "
        "divided ({normaliser:g}), the largest allowed number of records (n_max = {n_max}), "
        "weight_decay ({weight_decay:g}) and the solver's tolerance ({tolerance:g})"
    ),
    "removal_objective_stated": (
        "these numbers are set in the configuration: the number by which sums over records are "
        "divided ({normaliser:g}), the largest allowed number of records (n_max = {n_max}), "
        "weight_decay ({weight_decay:g}) and the largest gradient norm at which the solver may "
        "stop ({residual:g})"
    ),
    "sums_stated": (
        "these numbers are set in the configuration: the size of the data set by which the centre "
        "of the features is computed ({normaliser:g}), and the largest allowed number of records "
        "(n_max = {n_max})"
    ),
    "members_stated": (
        "the configuration sets the number of ensemble members, the hash key that divides the "
        "records among them, and the strength of regularisation. No member divides by a number "
        "that could depend on the records"
    ),
    "learner_stated": (
        "the configuration sets the number of ensemble members, the hash key that divides the "
        "records among them, the learner, and the learner's settings"
    ),
    "margins_clipped": (
        "the margin of each ensemble member (how much its score prefers one class) is clipped to "
        "at most {clip:g} in size. The certificates cover up to {edits} edited records in total "
        "over all members. Both limits are constants"
    ),
    # Why bounds of neighbours lie within one another (d).
    "boxes_nest": (
        "every rule of interval arithmetic in use is inclusion-monotone: narrower inputs never "
        "give wider results (products, clamps, activations, the loss, integer sums, elementwise "
        "clipping of gradients). So the bounds of one dataset at k - 1 lie within the bounds of a "
        "neighbouring dataset at k"
    ),
    "boxes_do_not_nest": "{relation:unnested}",
    "given_the_draw": (
        "certificates compare models that are trained with the same training noise, because the "
        "noise was drawn once and is treated as a constant"
    ),
    "steps_do_not_expand": (
        "learning rates are at most {rate:g}, within the limit of {limit:.5g}. So a training "
        "step on the same records never moves two models further apart, and one record moves the "
        "{each_class:parameters} by at most {movement:.4g}"
    ),
    "minimiser_of_loss": (
        "the weights minimise a {strength:g}-strongly convex loss, up to a gradient of norm "
        "{gradient:g}. So one record moves the {each_class:parameters} by at most "
        "{movement:.4g}, whatever steps the solver took"
    ),
    "minimiser_of_sum": (
        "the weights minimise a {strength:g}-strongly convex sum of losses, up to a gradient of "
        "norm {gradient:g}. So one record moves the {each_class:parameters} by at most "
        "{movement:.4g}, whatever steps the solver took"
    ),
    "sums_bounded": (
        "each record adds to each released sum a matrix of norm at most 1, and one unit has at "
        "most {rows:records}. So one edit moves the sums by no more than the noise is scaled to"
    ),
    "vote_changes": (
        "one more edit of the data (k raised by one) changes the vote of at most one more "
        "ensemble member"
    ),
    "votes_change": (
        "one more edit of the data (k raised by one) changes the votes of at most {touches} more "
        "ensemble members, and the certificates of the vote count all of these"
    ),
    "flips_counted": (
        "agt counts exactly how many label flips it takes to change an ensemble member's answer. "
        "Flipping one label changes this number by at most 1"
    ),
    # What made features and chose settings (e).
    "classes_public": "the list of classes is public ({setting})",
    "classes_public_proposed": (
        "the list of classes is public ({setting}). agt proposed this list from these records, and "
        "the owner then declared it public (dataset.proposed_from_rows). The guarantee treats it "
        "as fixed"
    ),
    "label_range_public": "the range of labels [{low:g}, {high:g}] is public ({setting})",
    "classes_found": (
        "the list of classes was read off the records, so a single record can change it: give the "
        "public list in {setting}"
    ),
    "classes_found_in_y": (
        "the list of classes was read off the labels y, so a single record can change it: give "
        "the public list in {setting}"
    ),
    "classes_read_off_records": (
        "the list of classes was read off the records ({setting} names 'classes'). If this list is "
        "public, remove 'classes' from {setting}. If everything that {setting} names is public, "
        "{setting}=[] is enough"
    ),
    "classes_measured": (
        "the classes of the data set were measured with noise, by agt measure ({claim})"
    ),
    "classes_of_medmnist": "the list of classes is the one that MedMNIST publishes",
    "classes_unknown_to_medmnist": (
        "the list of classes was read off the records, so a single record can change it: give the "
        "public list in {setting}, or install the package medmnist, which contains the list "
        "({command})"
    ),
    "range_marked": (
        f"the range of column '{{column}}' {_MARKED} Give a public range in {{key}}, {_IF_PUBLIC}"
    ),
    "range_and_more_marked": (
        f"the range of column '{{column}}', and the ranges or lists of {{more:more_columns}}, "
        f"{_SEVERAL_MARKED} Give a public range in {{key}}, {_IF_PUBLIC}"
    ),
    "list_marked": (
        f"the list of values of column '{{column}}' {_MARKED} Give a public list in {{key}}, "
        f"{_IF_PUBLIC}"
    ),
    "list_and_more_marked": (
        f"the list of values of column '{{column}}', and the ranges or lists of "
        f"{{more:more_columns}}, {_SEVERAL_MARKED} Give a public list in {{key}}, {_IF_PUBLIC}"
    ),
    "range_found": (
        "the range of column '{column}' is its smallest and largest training value, so a "
        "single record can change it, and with it every feature. Give a public range in "
        "{setting}"
    ),
    "columns_public": _COLUMNS,
    "columns_public_some_proposed": f"{_COLUMNS}. Of these constants, {_PROPOSED_CLAUSE}",
    "columns_public_some_measured": f"{_COLUMNS}. {_SOME_MEASURED}",
    "columns_public_some_measured_some_proposed": (
        f"{_COLUMNS}. {_SOME_MEASURED}. Of the others, {_PROPOSED_CLAUSE}"
    ),
    "kinds_of_columns_public": (
        "the following are public: which columns exist, the kind of each column, what counts as a "
        "missing value, and which columns give the ids, the people and the test records"
    ),
    "nothing_subtracted": (
        "vectors are not centred, and they are scaled by a constant from the configuration, "
        "so this preprocessing does not depend on the records"
    ),
    "center_of_file_public": (
        "the center that is subtracted from every vector (key '{key}' of {file}) is public "
        "({setting}=true)"
    ),
    "center_given_public": (
        "the center that is subtracted from every vector (given in the configuration) is "
        "public ({setting}=true)"
    ),
    "center_of_file_undeclared": (
        f"the center that is subtracted from every vector (key '{{key}}' of {{file}}) "
        f"{_UNDECLARED_CENTER}"
    ),
    "center_given_undeclared": (
        "the center that is subtracted from every vector (given in the configuration) "
        f"{_UNDECLARED_CENTER}"
    ),
    "pixels_divided": (
        "pixels are divided by {levels:g} and shifted by {center:g}, both of which are constants "
        "of the image format"
    ),
    "pixels_scaled": "pixels are scaled by constants from the configuration",
    "polynomials_fixed": (
        "the six polynomial features of a record are computed from that record only, by a fixed "
        "formula"
    ),
    "norm_one": "each record is scaled to norm 1, independently of the others",
    "relu_features": (
        "the weights of the {count} random ReLU features are drawn from the public seed {seed}"
    ),
    "landmarks_by_hash": (
        "the {count} landmarks (public rows with which the kernel features compare each record) "
        "are the rows whose contents have the smallest hashes (seed {seed})"
    ),
    "scattering_features": (
        "the wavelets of the scattering features are public constants, and nothing about the "
        "features is learnt from data"
    ),
    "whitening_rows_public": (
        "the features of {public:rows} are public ({setting}={public}), though their labels need "
        "not be. The covariance of these features whitens the features of all records"
    ),
    "centering_rows_public": (
        "the features of {public:rows} are public ({setting}={public}), though their labels need "
        "not be. The mean of the scattering features of these rows is subtracted from the "
        "scattering features of every record, and is published with the weights"
    ),
    "landmark_rows_public": (
        "the features of {public:rows} are public ({setting}={public}), though their labels need "
        "not be. Some of these rows are the landmarks of the kernel features, and are published "
        "with the weights"
    ),
    "whitening_and_landmark_rows_public": (
        "the features of {public:rows} are public ({setting}={public}), though their labels need "
        "not be. The covariance of these features whitens the features of all records. Some of "
        "these rows are the landmarks of the kernel features, and are published with the weights"
    ),
    # As earlier versions recorded it, though nobody had declared it.
    "initial_parameters_public": "the initial parameters of {network} are public constants",
    "initial_parameters_declared": (
        "the initial parameters of {network} are public constants ({setting})"
    ),
    "initial_parameters_undeclared": (
        "it is not declared that the initial parameters of {network} are public constants. If "
        "they were drawn at random, and not trained on private records, declare {setting}"
    ),
    "encoder_weights_public": "the encoder's weights ({file}) are public ({setting}=true)",
    "encoder_weights_undeclared": (
        "the encoder's weights ({file}) are not declared public. If the encoder was trained on "
        "private records, the features reveal something about these records. If it was trained "
        "on public records only, set {setting}=true"
    ),
    "encoder_records_public": (
        "the records that the encoder was trained on are public ({setting}=true)"
    ),
    "encoder_records_undeclared": (
        "the encoder was trained on records that are not declared public, so the features "
        "reveal something about these records. If they are public, set {setting}=true"
    ),
    "encoder_of_record": (
        "the run that stored the encoder also recorded which data the encoder was trained on"
    ),
    "encoder_saw_private": (
        "the encoder was also trained on private records, such as {record!r}, so the features "
        "reveal something about these records"
    ),
    "settings_undeclared": (
        "it is not declared on which data the training settings were chosen. If they were "
        "chosen on public data, declare {setting}"
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
        "{setting} was declared for other training settings than those of this run "
        "({changed:listed}). If the present settings were also chosen on public data only, give "
        "{setting} on the command line. config.yaml then records the present settings in the entry "
        "'chosen_for'. If a settings file declares {setting}, it needs an entry 'chosen_for' too"
    ),
    "declared_for_no_settings": (
        "the declaration {setting} does not say for which training settings it was made. If the "
        "present settings were chosen on public data only, give {setting} on the command line. "
        "config.yaml then records the present settings in the entry 'chosen_for'. If a settings "
        "file declares {setting}, it needs an entry 'chosen_for' too"
    ),
    "differs_from_recipe": (
        "training.chosen_on=recipe only covers the unchanged recipe, but this run changes "
        "{changed:listed}. If the changes were chosen on public data or constants only, "
        "declare {setting} on the command line"
    ),
    "chosen_on_other_rows": (
        "the training settings were chosen on {rows:rows} with the digest {digest} "
        "(training.chosen_from), but these rows have changed since (their digest is {now}). "
        "Choose the settings again with agt tune. If they were chosen on public data only, "
        "declare {setting} on the command line instead"
    ),
    # Arithmetic (f).
    "bounds_widened": (
        "bounds are computed in {dtype} and widened by 2(k+1) times tau, where tau bounds the "
        "rounding error of one training step; this covers all rounding. Gradients are summed as "
        "integers"
    ),
    "product_not_nested": (
        "product=rump (Rump's interval product) gives bounds that contain the exact result. But "
        "because of rounding in the last digits, it is not proved that the bounds of one dataset "
        "lie within those of a neighbouring dataset. Use {config:training.product}=exact"
    ),
    "sums_in_float64": (
        "sums are computed in float64, with rounding errors of at most {share:.1e} times the "
        "effect of one record. The bounds of margins and stable distances also cover the "
        "rounding of their own computation"
    ),
    "sums_of_integers": (
        "each ensemble member depends only on its own shard (part) of the records, even in its "
        "last digits, because these records alone decide the order of its floating-point "
        "operations. The scores of queries are exact sums of integers"
    ),
    "sums_exact": (
        "features and labels are rounded towards 0 to multiples of 2^-14 before they are summed, "
        "so the sums have no rounding error and no record counts for more than its bound"
    ),
    "votes_are_integers": (
        "votes are integers, so they are counted without rounding. How the learner rounds is "
        "part of the declaration about the learner (condition b)"
    ),
    # The relation (g).
    "symmetric": (
        "relation={relation} is symmetric (an edit can be undone by an edit), and covers "
        "{relation:ball}"
    ),
    "symmetric_within_radius": (
        "relation={relation} is symmetric (an edit can be undone by an edit), and covers "
        "{relation:ball} (relation.radius={radius:g})"
    ),
    "one_sided": (
        "relation={relation} covers {relation:ball}, so its certificates are about removals only"
    ),
    # Where nothing is trained.
    "nothing_trained": "nothing is trained: records are only counted",
    # What a removal rests on.
    "no_record_left_out": "every record is used; none is left out",
    "features_read_off_records": (
        "constants that determine the features of every record were read off the records: "
        "{missing:facts}"
    ),
    "erased_decided_constants": (
        "without the erased records, the list of classes or a range would be different, so the "
        "features of every record would change"
    ),
    "read_as_before": (
        "the features of all remaining records are unchanged. The constants that determine these "
        "features are either public, or equal with and without the erased records (this was "
        "checked)"
    ),
    "read_as_before_as_declared": (
        "the features of all remaining records are unchanged. The constants that determine these "
        "features are either public, or equal with and without the erased records (this was "
        "checked). This relies on a declaration: {declaration:fact}"
    ),
    "began_from_nothing": (
        "training started from its own initial parameters and did not use any earlier state "
        "of the run"
    ),
    "members_by_same_code": (
        "all ensemble members were trained by the same code, on machines of the same kind, with "
        "the same number of threads"
    ),
    "members_of_same_shards": (
        "an ensemble member was kept only if its shard of the records still has the digest that "
        "was recorded when the member was trained"
    ),
    "members_by_other_code": (
        "the model is not bit-identical to one that is trained today, because {changed:listed} "
        "changed after the kept ensemble members were trained. Each of these members was trained "
        "only on records that remain"
    ),
    "near_minimiser_before_noise": (
        "before noise is added, the weights are within {distance:upward} (l2 norm over all "
        "outputs) of the exact minimiser on the remaining records. The norm of the gradient is "
        "at most {gradient:upward}, rounding included, and the objective is "
        "{strength:g}-strongly convex"
    ),
    "retraining_near_minimiser": (
        "training again without the erased records would give weights within {distance:.2g} of the "
        "exact minimiser. The noise covers this distance plus the distance of the present weights "
        "from the same minimiser"
    ),
    "residual_depends_on_noise": (
        "the published proof (Guo et al. 2020, theorem 2) assumes that the gradient after a "
        "Newton step is independent of the random term in the loss. It is not independent, "
        "because the weights were computed with that term. certificate.masking=output does not "
        "need this assumption"
    ),
    "noise_in_floating_point": (
        "the random term was added to the loss in floating point, but the published proof is "
        "about real numbers, so the proof does not cover the last digits"
    ),
    "noise_exact": (
        "the noise has exactly the distribution of a real Gaussian that is rounded to a "
        "public lattice, so no digit of the published weights depends on floating-point "
        "rounding of the noise"
    ),
    "noise_drawn_anew": (
        "new noise was drawn for this update from the operating system's random numbers, "
        "independently of everything before"
    ),
    "noise_from_recorded_seed": (
        "the noise comes from certificate.seed, which is recorded, so anyone can subtract it: "
        "this is a simulation that hides nothing"
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
        "initial_parameters_undeclared",
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

_RESULTS = (
    "results on these records, such as an accuracy, a stable distance or agt's advice after a "
    "training on them"
)
_NOT_PICKED = (
    "the model, the ids, a feature or a training setting was chosen by "
    f"{_RESULTS}, or on other data that is not public"
)
_NOT_OF_RECIPE = (
    "the model, the ids, a feature, or a column, range, list, center, scale or split was chosen by "
    f"{_RESULTS}; or if these records are among the data sets that the recipe was chosen on "
    "(docs/recipe.md)"
)
_PRIVATE_ROW = ", or a row on which the settings were chosen is private"
_RENAMED = (
    "the ids are not permanent, because one is a row number or changes when another record "
    "is added or removed"
)
_FITTED = (
    "the features depend on something that was fitted on the records (such as a mean, a scale, a "
    "rank, principal components or an encoder)"
)
_MARKED_PRIVATE = (
    "a record is marked as public although it is private, or its mark depends on other records"
)
_SPLIT_FROM_WHOLE = (
    "the split was drawn from the whole data set (by position, rank or count), so that adding a "
    "record would move other records"
)
_COUNTED = (
    "the declared constant was computed from the records (for example, as their number), so "
    "that one more record would change the constant and every training step"
)
_CHANGED_SINCE = (
    "a value that agt measure published was changed afterwards, in the data set's file or "
    "by a setting"
)
_RANGE_READ_OFF = (
    "a constant that is declared public was read off the records, such as a range that ends at "
    "the largest value"
)
_PROPOSED_UNKNOWN = (
    "a constant that is declared public depends on these records, such as a proposed range or list "
    "that its owner would have declared otherwise if the table had other records"
)
_TRAINED_BEFORE = (
    "the initial parameters were trained on private records (for example, by pretraining), or "
    "chosen by results on them"
)
_CENTER_PRIVATE = "the center was computed from private records (for example, as their mean)"
_ROWS_PRIVATE = (
    "a row that is declared public is private, or was selected by looking at private records"
)

BROKEN_BY: dict[str, str] = {
    "declared_in_own_words": "{broken_by}",
    "column_names_records": _RENAMED,
    "column_names_records_for_good": _RENAMED,
    "column_names_units": _RENAMED,
    "column_names_units_for_good": _RENAMED,
    "names_for_good": (
        "the ids or units are not permanent, because one is a row number or changes when "
        "another record is added or removed"
    ),
    "column_marks_public": _MARKED_PRIVATE,
    "marked_public": _MARKED_PRIVATE,
    "given_names_free_of_labels": (
        "an id, a unit, a public flag or the split was computed from labels (for example, an id "
        "that is a hash of the whole row, or a split stratified by class)"
    ),
    "unlabelled_rows_left_out": (
        "whether the label of a row is known depends on other rows (for example, because only the "
        "first rows were labelled, or those of the most frequent class)"
    ),
    "split_by_column": _SPLIT_FROM_WHOLE,
    "split_by_file": _SPLIT_FROM_WHOLE,
    "split_of_medmnist": _SPLIT_FROM_WHOLE,
    "rows_made_alone": _FITTED,
    "columns_made_alone": _FITTED,
    "vectors_made_alone": _FITTED,
    "learner_is_function": (
        "the learner uses randomness other than its random_state, reads something other than its "
        "shard (a clock, a file, another shard, what it learnt before), or rounds differently "
        "from one call to the next"
    ),
    "normaliser_public": _COUNTED,
    "normaliser_of_public_size": _COUNTED,
    "size_public": _COUNTED,
    "size_public_proposed": (
        "the owner would have declared another size if the table had other records"
    ),
    "size_measured": _CHANGED_SINCE,
    "label_range_public": "the range of labels was read off the records",
    "classes_public": "the list of classes was read off the records",
    "classes_public_proposed": (
        "the owner would have declared another list of classes if the table had other records"
    ),
    "classes_measured": _CHANGED_SINCE,
    "columns_public": _RANGE_READ_OFF,
    "columns_public_some_proposed": _PROPOSED_UNKNOWN,
    "columns_public_some_measured": _RANGE_READ_OFF,
    "columns_public_some_measured_some_proposed": _PROPOSED_UNKNOWN,
    "kinds_of_columns_public": (
        "whether a column is present was decided by looking at the values of the records"
    ),
    "center_of_file_public": _CENTER_PRIVATE,
    "center_given_public": _CENTER_PRIVATE,
    "whitening_rows_public": _ROWS_PRIVATE,
    "centering_rows_public": _ROWS_PRIVATE,
    "landmark_rows_public": _ROWS_PRIVATE,
    "whitening_and_landmark_rows_public": _ROWS_PRIVATE,
    "initial_parameters_public": _TRAINED_BEFORE,
    "initial_parameters_declared": _TRAINED_BEFORE,
    "encoder_weights_public": "the encoder was trained on a private record",
    "encoder_records_public": "a record that the encoder was trained on is private",
    "settings_chosen_on_public": _NOT_PICKED,
    "settings_chosen_on_public_rows": f"{_NOT_PICKED}{_PRIVATE_ROW}",
    "settings_of_recipe": _NOT_OF_RECIPE,
    "settings_of_recipe_on_rows": f"{_NOT_OF_RECIPE}{_PRIVATE_ROW}",
    "read_as_before_as_declared": "{declaration:broken_by}",
}

PUBLIC_ROWS = {"test": "the test records", "train": "the training records marked public"}


def rows(source: str) -> str:
    """Return what sentences call the public rows that something was made or chosen on.

    Args:
        source: "test" or "train", for rows of the data set; or the name of a file.
    """
    return PUBLIC_ROWS.get(source, f"the rows of {source}")


def declaration(sentence: str, broken_by: str) -> str:
    """Return a sentence with a declaration, and the clause that would make it false."""
    return f"{sentence}; false if {broken_by}"


def declared(declaration: str) -> str:
    """Return the sentence of a declaration behind the word "declared"."""
    return f"declared: {declaration}"


def proposed_words(proposed: int, total: int, *, classes: bool, size: bool) -> str:
    """Return a phrase on which public constants agt proposed after reading the private rows.

    Args:
        proposed: the number of columns of which agt proposed the range or the list.
        total: the number of columns that have a public range or list.
        classes: whether agt proposed the list of classes.
        size: whether agt proposed the declared size.
    """
    words = [f"{proposed} of {total} ranges and lists"] if proposed else []
    words += ["the classes"] if classes else []
    words += ["the size"] if size else []
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
