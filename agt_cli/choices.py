"""What a run's settings were chosen on: a declaration that is tied to exactly those settings and
that data (condition e).

``training.chosen_on: public`` in a file says that somebody chose *these* settings, for *this* data,
by public data or constants alone. Copied to other settings it would say nothing, so the file names
what it was said about: ``chosen_for``, a short hash of each part of the configuration. A part that
differs voids the declaration. Typed on the command line it is about the run that this very line
starts, whatever else the line changes, and the run's record keeps the hashes.

What ``agt tune`` chose is tied to the public rows, too: ``declare_public_rows`` says which, by
digest; other rows in their place void the declaration once they are read. Public rows alone: they
are the same for every neighbour of the data.

``training.chosen_on: recipe`` says that the settings are the recipe's as it comes. That is checked,
not believed: the hashes that ``RECIPE_HASHES`` has are part of this code, so no file can claim to
be the recipe. What the recipe cannot know are the columns that enter and how they are declared:
these stay the owner's, and the fact says so.

The recipe of votes has versions (agt/models/votes_recipe.py). A new run is compared with the
current one only, or the better of two could be taken by results on the records. Its ``chosen_for``
says which that is, and ``agt train`` writes it whatever was typed. A run of an earlier version is
compared with the recipe that it names, and one without such an entry with the first.

The data enters by its configuration (which file, columns, constants), never by its content: a hash
of private records would make the claim itself depend on them, and a neighbour's data would lose it.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path, PurePath
from typing import Any, get_args

import numpy as np

from agt.certificates.settings import VotesConfig
from agt.data.dataset import Dataset, DataSource
from agt.data.embeddings import public_digest
from agt.data.records import Records
from agt.fact_sentences import rows as rows_in_words
from agt.facts import Fact, Standing, declared, not_held
from agt.models.kind import UnreadReason
from agt.models.kinds import certificate_config
from agt.models.votes import VotesKind
from agt.models.votes_recipe import (
    CURRENT_VERSION,
    FIRST_VERSION,
    VOTES_ON_TABLES,
    VotesRecipe,
    votes_recipe,
)
from agt.relations import RELATIONS
from agt.settings import RECIPE as STRENGTH_BY_RECIPE, ChosenFrom, PublicRows
from agt.store.atomic import write_atomic
from agt.targets import TABLE, is_own_code
from agt_cli.command_settings.tune import CONFIGURATION_PARTS
from agt_cli.composing import compose_command
from agt_cli.configuration import chosen_options
from agt_cli.renamed import with_new_name
from agt_cli.report.record import to_yaml

RECIPE_HASHES = {
    "model": "h1c17e495c19",
    "training": "h38031a2e0a3",
    "relation": "h54fcc73cef0",
    "ensemble": "h4ef5b9b82ca",
    "noise": "hc9d1cf4f970",
}
"""The recipe as conf/dataset/table.yaml and embeddings.yaml choose it; a version that changes it
must change this.
"""
CERTIFICATE_HASHES = {"stability": "hdba1ef0be08", "erm": "hfa284e529b3", "votes": "h8b79987844b"}
"""The same of the certificates that the recipe has numbers for, in front of which images may
have scattering features. Of votes it is the hash with ``strength: recipe``.
"""
VERSION_ENTRY = "recipe"
"""The entry of ``training.chosen_for`` that says about which version of the recipe of votes
``chosen_on: recipe`` is; without it, it is about the first.
"""
RECIPE_CODING = {"bins": 20, "crosses": 0}
"""How the recipe codes the columns of a table (conf/dataset/table.yaml)."""
CHOSEN_ON_KEY = "training.chosen_on"
# by part, settings that came later, at values that are as before there were any
_LATER_SETTINGS: dict[str, dict[str, Any]] = {
    "ensemble": {"vote": "labels", "margin_clip": None},
    "features": {"root": 1.0},
    "certificate": {"learner": "ridge"},
    "relation": {"radius": None},
}
_UNDECLARED_SETTINGS = {
    "training": ("chosen_on", "chosen_for", "chosen_from"),
    "dataset": ("data_dir", "subgroups"),
}
"""By part, settings that no declaration covers: the declaration itself, folders, what is unread."""
_ON_PUBLIC = f"{CHOSEN_ON_KEY}=public"
_ON_ROWS = {
    "settings_chosen_on_public": "settings_chosen_on_public_rows",
    "settings_of_recipe": "settings_of_recipe_on_rows",
}
"""Code of a declaration -> that of the same one which names the public rows."""


def hash_parts(config: Mapping[str, Any]) -> dict[str, str]:
    """Return a short hash of each part of a configuration to which a declaration can be tied.

    Where files lie, and settings that only affect speed, are not part of the hashes.

    Args:
        config: a resolved training configuration, as plain containers.

    Returns:
        Part (one of ``CONFIGURATION_PARTS``) -> hash.
    """
    return {part: _hash(_declared_settings(part, config.get(part))) for part in CONFIGURATION_PARTS}


def with_votes_recipe(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of a new training with the numbers of the recipe of votes.

    ``ensemble.members`` is replaced where it is 1, and ``certificate.strength`` where it is
    ``recipe``. If the settings are declared to be the recipe's, they are compared with this
    version of it. Other certificates have no such numbers, and nothing changes.

    Args:
        config: composed, as plain containers. What is no mapping is left for later checks.
    """
    recipe = _recipe_of_votes(config, CURRENT_VERSION)
    if recipe is None:
        return config
    certificate = config["certificate"]
    if certificate.get("strength") == STRENGTH_BY_RECIPE:
        config = {**config, "certificate": {**certificate, "strength": recipe.strength}}
    ensemble = config.get("ensemble")
    if isinstance(ensemble, Mapping) and ensemble.get("members") == 1:
        members = _recipe_members(config, recipe)
        config = {**config, "ensemble": {**ensemble, "members": members}}
    training = config.get("training")
    if isinstance(training, Mapping) and training.get("chosen_on") == "recipe":
        config = bind_to_settings(config, {VERSION_ENTRY: CURRENT_VERSION})
    return config


def _recipe_of_votes(config: Mapping[str, Any], version: str) -> VotesRecipe | None:
    """Return the recipe's numbers for votes on a configuration's data.

    None is returned for other certificates, for settings that are refused anyway, and for a
    version of the recipe that this version of agt does not know.

    Args:
        config: a training configuration, as plain containers.
        version: the version of the recipe.
    """
    dataset = config.get("dataset")
    certificate = config.get("certificate")
    relation = config.get("relation")
    if not isinstance(dataset, Mapping) or not isinstance(certificate, Mapping):
        return None
    if not isinstance(relation, Mapping) or relation.get("name") not in RELATIONS:
        return None
    if certificate.get("name") != VotesConfig.name:
        return None
    if version not in VOTES_ON_TABLES:
        return None
    return votes_recipe(
        coded_columns=str(dataset.get("_target_")) == TABLE,
        ridge=certificate.get("learner", "ridge") == "ridge",
        numeric=dataset.get("target") == "numeric",
        counts_label_flips=RELATIONS[relation["name"]].counts_label_flips,
        version=version,
    )


def _recipe_members(config: Mapping[str, Any], recipe: VotesRecipe) -> int:
    """Return the recipe's number of members; 1 without a declared number of records.

    Args:
        config: the configuration of votes, with a known relation.
        recipe: the numbers for its data.
    """
    size = config["dataset"].get("declared_size")
    if not isinstance(size, int | float):
        return 1
    training = config.get("training")
    caution = training.get("caution") if isinstance(training, Mapping) else None
    if not isinstance(caution, int | float):
        caution = 1.0
    relation = config["relation"]
    unit_rows = relation.get("unit_rows")
    if not isinstance(unit_rows, int):
        unit_rows = 1
    return VotesKind.default_members(size, unit_rows, caution, relation["name"], recipe)


def bind_declaration(config: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return a configuration whose declaration, if the command line made it, is tied to it.

    A declaration from a file is left unchanged.

    Args:
        config: resolved, as plain containers.
        overrides: the settings that were typed on the command line.
    """
    if not declares_public_choices(overrides):
        return config
    return bind_to_settings({**config, "training": {**config["training"], "chosen_from": None}})


def declares_public_choices(overrides: Sequence[str]) -> bool:
    """Return whether a command line declares that its settings were chosen on public data.

    The last override of ``training.chosen_on`` decides.
    """
    values = [
        word.partition("=")[2].strip("'\"")
        for word in overrides
        if word.partition("=")[0].lstrip("+") == CHOSEN_ON_KEY
    ]
    return values[-1:] == ["public"]


def bind_to_settings(
    config: dict[str, Any], chosen_for_hashes: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return a configuration whose declaration is tied to settings by their hashes.

    Args:
        config: a resolved training configuration, as plain containers; it is not changed.
        chosen_for_hashes: what the declaration is about: part -> hash. None: the configuration's
            own settings.
    """
    chosen_for = dict(chosen_for_hashes or hash_parts(config))
    return {**config, "training": {**config["training"], "chosen_for": chosen_for}}


def choices_fact(config: Mapping[str, Any]) -> Fact:
    """Return the fact whether settings were chosen without results on the training records.

    Condition e of a privacy guarantee (preprocessing and settings are public) needs it.

    Only the settings are compared. ``compare_public_rows`` compares the public rows that they name.

    Args:
        config: a resolved training configuration, as plain containers.
    """
    training = config.get("training") or {}
    chosen_on = training.get("chosen_on")
    chosen_for = training.get("chosen_for")
    if chosen_on is None:
        return not_held("settings_undeclared", setting=_ON_PUBLIC)
    if chosen_on == "recipe":
        return _recipe_fact(config)
    if chosen_on != "public":
        return not_held("settings_chosen_on_results")
    present = hash_parts(config)
    if chosen_for == present:
        return declared("settings_chosen_on_public", setting=_ON_PUBLIC)
    declared_for = chosen_for or present
    changed = tuple(part for part in CONFIGURATION_PARTS if declared_for.get(part) != present[part])
    if changed:
        return not_held("declared_for_other_settings", changed=changed, setting=_ON_PUBLIC)
    return not_held("declared_for_no_settings", setting=_ON_PUBLIC)


def declare_public_rows(rows_name: str, dataset: Dataset, source: DataSource) -> ChosenFrom:
    """Return the declaration that settings were chosen on public rows, with their present digest.

    Args:
        rows_name: ``test`` or ``train``: the public records of that split; else the path of a file.
        dataset: the training run's data.
        source: the data source, from which rows are read.
    """
    return ChosenFrom(
        rows_name, public_digest(public_rows(rows_name, dataset, source), np.empty(0))
    )


def public_rows(rows_name: str, dataset: Dataset, source: DataSource) -> Records:
    """Return public rows of a dataset, or of a file.

    Args:
        rows_name: ``test`` or ``train``: the public records of that split; else the path of a file.
        dataset: the training run's data.
        source: reads the file.
    """
    if rows_name in ("test", "train"):
        return dataset.public_rows("test" if rows_name == "test" else "train")
    return source.load_queries(Path(rows_name))


def describe_public_rows(rows_name: str) -> str:
    """Return the phrase by which claims name public rows, such as "the public test rows".

    Args:
        rows_name: ``test`` or ``train``: the public records of that split; else the path of a file,
            of which only the name is returned, without its folder.
    """
    return rows_in_words(_name_of_rows(rows_name))


def _name_of_rows(rows_name: str) -> str:
    """Return ``test``, ``train`` or the name of a file, without its folder, which stays private.

    A file whose name is ``test`` or ``train`` is returned as ``./test`` or ``./train``.
    """
    if rows_name in get_args(PublicRows):
        return rows_name
    name = PurePath(rows_name).name
    return f"./{name}" if name in get_args(PublicRows) else name


def compare_public_rows(
    fact: Fact, about: ChosenFrom | None, dataset: Dataset, source: DataSource
) -> Fact:
    """Return the fact about choices after comparing the public rows that it is about.

    It no longer holds if these rows have changed. A file of rows that is not there cannot be
    compared, so what was declared of it stays declared.

    Args:
        fact: the result of ``choices_fact``.
        about: the public rows that the declaration names; None: none, and ``fact`` is returned.
        dataset: the training run's data.
        source: the data source, from which rows are read.
    """
    if about is None or fact.standing is not Standing.DECLARED:
        return fact
    if about.rows in get_args(PublicRows) or Path(about.rows).is_file():
        present_digest = declare_public_rows(about.rows, dataset, source).digest
        if present_digest != about.digest:
            return not_held(
                "chosen_on_other_rows",
                rows=_name_of_rows(about.rows),
                digest=about.digest,
                now=present_digest,
                setting=_ON_PUBLIC,
            )
    return with_public_rows(fact, about)


def with_public_rows(fact: Fact, about: ChosenFrom | None) -> Fact:
    """Return a declared fact together with the public rows that it is about, for claims.

    Args:
        fact: the result of ``choices_fact``; if it is not a declaration, it is returned.
        about: the public rows; None: the declaration names none, and ``fact`` is returned.
    """
    if about is None or fact.standing is not Standing.DECLARED:
        return fact
    return declared(
        _ON_ROWS[fact.code],
        **fact.values,
        rows=_name_of_rows(about.rows),
        digest=about.digest,
    )


def _recipe_fact(config: Mapping[str, Any]) -> Fact:
    """Return the fact about settings that are declared to be the recipe's, after comparing them.

    The grid of k is not compared, because a closed form covers every k; nor is the cap on a unit's
    rows, which is a declaration about the data.

    Args:
        config: a resolved training configuration, as plain containers.
    """
    dataset = dict(config.get("dataset") or {})
    certificate = dict(config.get("certificate") or {})
    version = str((config["training"].get("chosen_for") or {}).get(VERSION_ENTRY, FIRST_VERSION))
    recipe = _recipe_of_votes(config, version)
    present = hash_parts(_with_recipe_placeholders(config, recipe))
    certificate_hash = CERTIFICATE_HASHES.get(str(certificate.get("name")))
    expected = {**RECIPE_HASHES, "certificate": certificate_hash}
    changed = [part for part, recipe_hash in expected.items() if present[part] != recipe_hash]
    changed += [
        f"dataset.{key}" for key, value in RECIPE_CODING.items() if dataset.get(key, value) != value
    ]
    if recipe is not None and version != FIRST_VERSION and not _is_known_kind(dataset):
        changed.append("dataset._target_")
    if changed:
        return not_held("differs_from_recipe", changed=tuple(changed), setting=_ON_PUBLIC)
    return declared("settings_of_recipe")


def _with_recipe_placeholders(
    config: Mapping[str, Any], recipe: VotesRecipe | None
) -> dict[str, Any]:
    """Return a configuration as ``RECIPE_HASHES`` and ``CERTIFICATE_HASHES`` were computed from it.

    The recipe's numbers for votes are replaced by the settings that stand for them, and scattering
    features, which the recipe allows, by none.

    Args:
        config: a resolved training configuration, as plain containers.
        recipe: the recipe's numbers for votes on its data; None: the recipe has no numbers for it.
    """
    relation = dict(config.get("relation") or {})
    ensemble = dict(config.get("ensemble") or {})
    certificate = dict(config.get("certificate") or {})
    relation.pop("unit_rows", None)
    if recipe is not None:
        if ensemble.get("members") == _recipe_members(config, recipe):
            ensemble["members"] = 1
        if certificate.get("strength") == recipe.strength:
            certificate["strength"] = STRENGTH_BY_RECIPE
    features = certificate.get("features")
    if isinstance(features, Mapping) and features.get("map") == "scattering":
        certificate["features"] = {**features, "map": "none"}
    return {**config, "relation": relation, "ensemble": ensemble, "certificate": certificate}


def _is_known_kind(dataset: Mapping[str, Any]) -> bool:
    """Return whether the class of a dataset is named as agt names its own.

    The recipe of votes has other numbers for tables than for other data. A class of the user's own,
    or a second name of one of agt's, could be given to get the other numbers, after both were
    tried.

    Args:
        dataset: the dataset's part of a training configuration.
    """
    target = dataset.get("_target_")
    return isinstance(target, str) and is_own_code(target)


def _declared_settings(part: str, settings: Any) -> Any:
    """Return the settings of one part of a configuration that a declaration covers.

    Not covered are the declaration itself, the locations of files, and settings that training does
    not read.

    Args:
        part: one of ``CONFIGURATION_PARTS``.
        settings: the value of the part. If it is no mapping, it is returned unchanged.
    """
    if not isinstance(settings, Mapping):
        return settings
    declared_about = {str(key): value for key, value in settings.items()}
    for key in _UNDECLARED_SETTINGS.get(part, ()):
        declared_about.pop(key, None)
    if part == "dataset":
        for key in ("path", "test"):
            if declared_about.get(key) is not None:
                declared_about[key] = PurePath(str(declared_about[key])).name
    if part in _LATER_SETTINGS:
        declared_about = _without_later_settings(part, declared_about)
    features = declared_about.get("features")
    if part == "certificate" and isinstance(features, Mapping):
        declared_about["features"] = _without_later_settings("features", features)
    encoder = declared_about.get("encoder")
    if part == "model" and isinstance(encoder, Mapping):
        declared_about["encoder"] = {
            key: value for key, value in encoder.items() if key != "cache_dir"
        }
    return declared_about


def _hash(settings: Any) -> str:
    """Return a short hash: a letter and 11 hexadecimal digits.

    The letter is there because YAML reads some texts of hexadecimal digits as numbers.
    """
    text = json.dumps(settings, sort_keys=True, default=str)
    return "h" + blake2b(text.encode(), digest_size=6).hexdigest()[:11]


def _without_later_settings(part: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without newer ones whose value gives the results of earlier versions.

    So the hash of settings stays the same when a version of agt adds a setting.

    Args:
        part: a key of ``_LATER_SETTINGS``.
        settings: the settings of this part.
    """
    return {
        key: value
        for key, value in settings.items()
        if value != _LATER_SETTINGS[part].get(key, ...)
    }


# -- settings that have no effect: a user who gives one is warned
# -----------------------------------------------

_REASONS: dict[UnreadReason, str] = {
    "minimum": (
        "this setting has no effect, because certificate={name} finds the minimum of its loss "
        "from any starting point"
    ),
    "own loss": (
        "this setting has no effect, because certificate={name} uses the loss in the setting "
        "certificate.loss"
    ),
    "no clamp": "this setting has no effect, because certificate={name} does not clamp gradients",
    "own strength": (
        "this setting has no effect, because the members of certificate={name} are trained "
        "with one setting only, the strength of their regularisation (certificate.strength)"
    ),
    "own learner": (
        "this setting has no effect, because the members of the ensemble are trained by your "
        "own learner: use its settings certificate.learner.*"
    ),
    "no boxes": (
        "this setting has no effect, because certificate={name} does not compute bounds on "
        "intervals (boxes)"
    ),
    "no random start": (
        "this setting has no effect, because certificate={name} is computed in closed form, "
        "without random initial parameters"
    ),
    "every k": (
        "this setting only selects which values of k the tables show, because "
        "certificate={name} covers every k"
    ),
}


def ineffective_settings(config: Mapping[str, Any], overrides: Sequence[str]) -> list[str]:
    """Return a warning for each setting that was typed although training does not read it.

    Args:
        config: a resolved training configuration, as plain containers.
        overrides: the settings that were typed on the command line.
    """
    reasons = _reasons_without_effect(config)
    warnings = []
    for override in overrides:
        key = override.partition("=")[0].lstrip("+")
        if key in reasons:
            warnings.append(f"note: {with_new_name('train', key)}: {reasons[key]}")
    return warnings


def _reasons_without_effect(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that have no effect in a configuration: setting -> the reason.

    Args:
        config: a resolved training configuration, as plain containers.
    """
    features = (config.get("certificate") or {}).get("features") or {}
    feature_map = features.get("map")
    whitened = features.get("whiten") or (feature_map == "landmarks" and features.get("root"))
    reasons: dict[str, str] = {}
    if not (config.get("model") or {}).get("hidden"):
        reasons["model.activation"] = (
            "this setting has no effect, because the model has no hidden layer (model.hidden)"
        )
    if feature_map == "none":
        reasons["certificate.features.seed"] = (
            "this setting has no effect, because random features are not used "
            "(certificate.features.map=none)"
        )
    if feature_map != "landmarks":
        for key in ("certificate.features.bandwidth", "certificate.features.root"):
            reasons[key] = (
                "this setting has no effect, because it only applies to "
                "certificate.features.map=landmarks"
            )
    if not whitened:
        reasons["certificate.features.ridge"] = (
            "this setting has no effect, because the features are not whitened "
            "(certificate.features.whiten)"
        )
    if (config.get("ensemble") or {}).get("members", 1) == 1:
        for key in ("ensemble.key", "ensemble.vote", "ensemble.margin_clip"):
            reasons[key] = (
                "this setting has no effect, because the ensemble has only one member "
                "(ensemble.members=1)"
            )
    certificate = certificate_config(config.get("certificate"))
    for key, reason in certificate.unread_settings.items():
        reasons[key] = _REASONS[reason].format(name=certificate.name)
    return reasons


# -- conf/experiment/NAME.yaml: settings that agt tune chose, for agt train experiment=NAME
# -------------


def write_experiment(path: Path, config: Mapping[str, Any], comment: str) -> None:
    """Write a training configuration as an experiment file, for agt train experiment=NAME.

    The file names the options of Hydra's configuration groups that the present command line chose,
    such as dataset=table, and the settings that differ from those of these options. The folder of
    the data (dataset.data_dir) is left out.

    Args:
        path: the path of the file. Its folder is made; a file that is there is replaced.
        config: the training configuration, resolved, as plain containers.
        comment: the text of the comment with which the file begins, without line breaks.
    """
    options = {
        group: option
        for group, option in chosen_options().items()
        if group.partition("/")[0] in CONFIGURATION_PARTS
    }
    overrides = [f"{group}={option}" for group, option in options.items()]
    defaults = [{f"override /{group}": option} for group, option in options.items()]
    body: dict[str, Any] = {"defaults": [*defaults, "_self_"]}
    option_settings = compose_command("train", overrides, complete=False)
    for part in CONFIGURATION_PARTS:
        changed_settings = _changed_settings(option_settings.get(part), config[part])
        if part == "dataset":
            changed_settings.pop("data_dir", None)
        if changed_settings:
            body[part] = changed_settings
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, f"# @package _global_\n# {comment}\n{to_yaml(body)}".encode())


def _changed_settings(before: Any, after: Any) -> Any:
    """Return the settings that change the configuration ``before`` into ``after``.

    Of two mappings these are the entries of ``after`` that are not in ``before``, or have another
    value there; an entry that only ``before`` has is not among them. If one of the two is no
    mapping, it is ``after``.
    """
    if not (isinstance(before, Mapping) and isinstance(after, Mapping)):
        return after
    return {
        key: _changed_settings(before.get(key), value)
        for key, value in after.items()
        if before.get(key, ...) != value
    }
