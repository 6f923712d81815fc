"""What a run's settings were chosen on: a declaration that is tied to exactly those settings and
that data (condition e).

``training.chosen_on: public`` in a file says that somebody chose *these* settings, for *this* data,
by public data or constants alone. Copied to other settings it would say nothing, so the file names
what it was said about: ``chosen_for``, a short hash of each part of the configuration. A part that
differs voids the declaration. Typed on the command line it is about the run that this very line
starts, whatever else the line changes, and the run's record keeps the hashes.

What ``agt tune`` chose is tied to the public rows, too: ``chosen_from`` says which, by digest;
other rows in their place void the declaration once they are read. Public rows alone: they are the
same for every neighbour of the data.

``training.chosen_on: recipe`` says that the settings are the recipe's as it comes. That is checked,
not believed: the hashes that ``RECIPE`` has are part of this code, so no file can claim to be the
recipe. What the recipe cannot know are the columns that enter and how they are declared: these stay
the owner's, and the fact says so.

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
from agt.errors import ConfigError
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
from agt.targets import current_name, is_own_code
from agt_cli.composing import composed
from agt_cli.configuration import chosen_options
from agt_cli.places import TABLE
from agt_cli.renamed import with_new_name
from agt_cli.report.record import to_yaml

PARTS = ("dataset", "model", "training", "relation", "kgrid", "certificate", "ensemble", "noise")
RECIPE = {
    "model": "h1c17e495c19",
    "training": "h38031a2e0a3",
    "relation": "h54fcc73cef0",
    "ensemble": "h4ef5b9b82ca",
    "noise": "hc9d1cf4f970",
}
"""The recipe as conf/dataset/table.yaml and embeddings.yaml choose it; a version that changes it
must change this.
"""
CERTIFICATES = {"stability": "hdba1ef0be08", "erm": "hfa284e529b3", "votes": "h8b79987844b"}
"""The same of the certificates that the recipe has numbers for, in front of which images may
have scattering features. Of votes it is the hash with ``strength: recipe``.
"""
VERSION = "recipe"
"""The entry of ``training.chosen_for`` that says about which version of the recipe of votes
``chosen_on: recipe`` is; without it, it is about the first.
"""
CODES = {"bins": 20, "crosses": 0}
"""How the recipe codes the columns of a table (conf/dataset/table.yaml)."""
KEY = "training.chosen_on"
# by part, settings that came later, at values that are as before there were any
_LATER: dict[str, dict[str, Any]] = {
    "ensemble": {"slices": 1, "vote": "labels", "margin_clip": None},
    # order, weight: of records of earlier versions
    "features": {"root": 1.0, "order": 2, "weight": 1.0},
    "certificate": {"learner": "ridge"},
    "relation": {"radius": None},
}
_SAYS = ("chosen_on", "chosen_for", "chosen_from")
_ON_PUBLIC = f"{KEY}=public"
_ON_ROWS = {
    "settings_chosen_on_public": "settings_chosen_on_public_rows",
    "settings_of_recipe": "settings_of_recipe_on_rows",
}
"""Code of a declaration -> that of the same one which names the public rows."""


def hashes(config: Mapping[str, Any]) -> dict[str, str]:
    """Part of the configuration -> a short hash of it; where files lie, and speed, do not enter.

    Args:
        config: a resolved training configuration, as plain containers.
    """
    return {part: _hash(_said_about(part, config.get(part))) for part in PARTS}


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
        members = _usual_members(config, recipe)
        config = {**config, "ensemble": {**ensemble, "members": members}}
    training = config.get("training")
    if isinstance(training, Mapping) and training.get("chosen_on") == "recipe":
        config = bound(config, {VERSION: CURRENT_VERSION})
    return config


def _recipe_of_votes(config: Mapping[str, Any], version: str) -> VotesRecipe | None:
    """Return the recipe's numbers for votes on a configuration's data.

    None is returned for other certificates, for settings that are refused anyway, and for a
    version of the recipe that this version of agt does not know.

    Args:
        config: a training configuration, as plain containers.
        version: which version of the recipe.
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
        coded_columns=current_name(str(dataset.get("_target_"))) == TABLE,
        ridge=certificate.get("learner", "ridge") == "ridge",
        numeric=dataset.get("target") == "numeric",
        counts_label_flips=RELATIONS[relation["name"]].counts_label_flips,
        version=version,
    )


def _usual_members(config: Mapping[str, Any], recipe: VotesRecipe) -> int:
    """Return the recipe's number of members; 1 without a declared number of records.

    Args:
        config: of votes, with a known relation.
        recipe: the numbers for its data.
    """
    size = config["dataset"].get("declared_size")
    if not isinstance(size, int | float):
        return 1
    training = config.get("training")
    caution = training.get("caution") if isinstance(training, Mapping) else None
    if not isinstance(caution, int | float):
        caution = 1.0
    return VotesKind.usual_members(size, caution, config["relation"]["name"], recipe)


def bind_declaration(config: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration of a command line: if that line itself declares what its settings were
    chosen on, bound to them.

    Args:
        config: resolved, as plain containers.
        overrides: the command line's own.
    """
    if not declares(overrides):
        return config
    return bound({**config, "training": {**config["training"], "chosen_from": None}})


def declares(overrides: Sequence[str]) -> bool:
    """Whether the last of the overrides that say what settings were chosen on says: on public
    data.
    """
    values = [
        word.partition("=")[2].strip("'\"")
        for word in overrides
        if word.partition("=")[0].lstrip("+") == KEY
    ]
    return bool(values) and values[-1] == "public"


def bound(config: dict[str, Any], about: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The same configuration, its declaration bound to the settings with these hashes; None: to
    its own as they stand.
    """
    return {
        **config,
        "training": {**config["training"], "chosen_for": dict(about or hashes(config))},
    }


def choices_fact(config: Mapping[str, Any]) -> Fact:
    """Condition e, as far as the settings go.

    Args:
        config: a resolved training configuration, as plain containers.
    """
    training = config.get("training") or {}
    chosen_on, chosen_for = training.get("chosen_on"), training.get("chosen_for")
    if chosen_on is None:
        return not_held("settings_undeclared", setting=_ON_PUBLIC)
    if chosen_on == "recipe":
        return _recipe_fact(config)
    if chosen_on != "public":
        return not_held("settings_chosen_on_results")
    now = hashes(config)
    if chosen_for == now:
        return declared("settings_chosen_on_public", setting=_ON_PUBLIC)
    changed = (
        tuple(part for part in PARTS if chosen_for.get(part) != now[part]) if chosen_for else ()
    )
    if changed:
        return not_held("declared_for_other_settings", changed=changed, setting=_ON_PUBLIC)
    return not_held("declared_for_no_settings", setting=_ON_PUBLIC)


def chosen_from(which: str, dataset: Dataset, source: DataSource) -> ChosenFrom:
    """The declaration about public rows as they are now."""
    return ChosenFrom(which, public_digest(public_rows(which, dataset, source), np.empty(0)))


def public_rows(which: str, dataset: Dataset, source: DataSource) -> Records:
    """The rows that ``ChosenFrom.rows`` names."""
    if which in ("test", "train"):
        return dataset.public_rows("test" if which == "test" else "train")
    return source.load_queries(Path(which))


def words_of(which: str) -> str:
    """The same rows in words, which go into claims: of a file its name, and not where it lies."""
    return rows_in_words(_rows_named(which))


def _rows_named(which: str) -> str:
    """Return ``test`` or ``train``, or a file's name, without where it lies: it goes into
    claims.
    """
    if which in get_args(PublicRows):
        return which
    name = PurePath(which).name
    return f"./{name}" if name in get_args(PublicRows) else name


def still_chosen(
    fact: Fact, about: ChosenFrom | None, dataset: Dataset, source: DataSource
) -> Fact:
    """Condition e's fact about choices, void where the public rows that it names are others now.

    A file that is not here cannot be compared: what was declared of it stays declared.
    """
    if about is None or fact.standing is not Standing.DECLARED:
        return fact
    if about.rows in get_args(PublicRows) or Path(about.rows).is_file():
        now = chosen_from(about.rows, dataset, source).digest
        if now != about.digest:
            named = {"rows": _rows_named(about.rows), "digest": about.digest}
            return not_held("chosen_on_other_rows", **named, now=now, setting=_ON_PUBLIC)
    return naming(fact, about)


def naming(fact: Fact, about: ChosenFrom | None) -> Fact:
    """The same fact, a declaration with the public rows that it names: every claim says which
    they are.
    """
    if about is None or fact.standing is not Standing.DECLARED:
        return fact
    named = {"rows": _rows_named(about.rows), "digest": about.digest}
    return declared(_ON_ROWS[fact.code], **fact.values, **named)


def _recipe_fact(config: Mapping[str, Any]) -> Fact:
    """Whether the settings are the recipe's.

    Its grid is free, as a closed form has every k, and so is a unit's cap.
    """
    relation, dataset = dict(config.get("relation") or {}), dict(config.get("dataset") or {})
    relation.pop("unit_rows", None)  # a declaration about the data, like its size
    ensemble, certificate = (
        dict(config.get("ensemble") or {}),
        dict(config.get("certificate") or {}),
    )
    version = str((config["training"].get("chosen_for") or {}).get(VERSION, FIRST_VERSION))
    recipe = _recipe_of_votes(config, version)
    if recipe is not None:
        # Numbers of the recipe are compared as if they had not been replaced.
        if ensemble.get("members") == _usual_members(config, recipe):
            ensemble["members"] = 1
        if certificate.get("strength") == recipe.strength:
            certificate["strength"] = STRENGTH_BY_RECIPE
    features = certificate.get("features")
    if isinstance(features, Mapping) and features.get("map") == "scattering":
        certificate["features"] = {**features, "map": "none"}
    now = hashes({**config, "relation": relation, "ensemble": ensemble, "certificate": certificate})
    known_as = RECIPE | {"certificate": CERTIFICATES.get(str(certificate.get("name")))}
    changed = [part for part, known in known_as.items() if now[part] != known]
    changed += [
        f"dataset.{key}" for key, known in CODES.items() if dataset.get(key, known) != known
    ]
    if recipe is not None and version != FIRST_VERSION and not _is_known_kind(dataset):
        changed.append("dataset._target_")
    if changed:
        return not_held("differs_from_recipe", changed=tuple(changed), setting=_ON_PUBLIC)
    return declared("settings_of_recipe")


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


def _said_about(part: str, node: Any) -> Any:
    """What of a part a declaration is about."""
    if not isinstance(node, Mapping):
        return node
    kept = {str(key): value for key, value in node.items()}
    if part == "training":
        return {key: value for key, value in kept.items() if key not in _SAYS}
    if part == "dataset":
        kept.pop("data_dir", None)  # where it lies, not what it is
        kept.pop("subgroups", None)  # training sees nothing of them
        for key in ("path", "test"):
            if kept.get(key) is not None:
                kept[key] = PurePath(str(kept[key])).name
    if part in _LATER:
        kept = _earlier(part, kept)
    if part == "certificate" and isinstance(kept.get("features"), Mapping):
        kept["features"] = _earlier("features", kept["features"])
    if part == "model" and isinstance(kept.get("encoder"), Mapping):
        kept["encoder"] = {
            key: value for key, value in kept["encoder"].items() if key != "cache_dir"
        }
    return kept


def _hash(node: Any) -> str:
    """Hexadecimal digits behind a letter, so that no yaml reader takes them for a number."""
    text = json.dumps(node, sort_keys=True, default=str)
    return "h" + blake2b(text.encode(), digest_size=6).hexdigest()[:11]


def _earlier(part: str, node: Mapping[str, Any]) -> dict[str, Any]:
    """Without what came later and is as before there was any."""
    return {key: value for key, value in node.items() if value != _LATER[part].get(key, ...)}


# -- settings that have no effect: whoever gives one expects that it has
# -----------------------------------------------

_LANDMARKS_ONLY = ("bandwidth", "root")


_UNREAD: dict[UnreadReason, str] = {
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
    """A line for each of the line's own settings that training does not read, though a
    configuration has it.

    Args:
        config: a resolved training configuration, as plain containers.
        overrides: the command line's own.
    """
    given = [word.partition("=")[0].lstrip("+") for word in overrides]
    reasons = _reasons(config)
    return [
        f"note: {with_new_name('train', key)}: {reasons[key]}" for key in given if key in reasons
    ]


def _reasons(config: Mapping[str, Any]) -> dict[str, str]:
    """Setting -> why it has no effect here."""
    certificate, hidden = config.get("certificate") or {}, (config.get("model") or {}).get("hidden")
    features = certificate.get("features") or {}
    kind, alone = features.get("map"), (config.get("ensemble") or {}).get("members", 1) == 1
    whitened = features.get("whiten") or (kind == "landmarks" and features.get("root"))
    table = (  # whether it is so here, the settings that then have no effect, why
        (
            not hidden,
            "model.activation",
            "this setting has no effect, because the model has no hidden layer (model.hidden)",
        ),
        (
            kind == "none",
            "certificate.features.seed",
            "this setting has no effect, because random features are not used "
            "(certificate.features.map=none)",
        ),
        *(
            (
                kind != "landmarks",
                f"certificate.features.{key}",
                "this setting has no effect, because it only applies to "
                "certificate.features.map=landmarks",
            )
            for key in _LANDMARKS_ONLY
        ),
        (
            not whitened,
            "certificate.features.ridge",
            "this setting has no effect, because the features are not whitened "
            "(certificate.features.whiten)",
        ),
        (
            alone,
            "ensemble.key ensemble.vote ensemble.margin_clip",
            "this setting has no effect, because the ensemble has only one member "
            "(ensemble.members=1)",
        ),
    )
    reasons = {key: why for holds, keys, why in table if holds for key in keys.split()}
    own = certificate_config(config.get("certificate"))
    return reasons | {
        key: _UNREAD[why].format(name=own.name) for key, why in own.unread_settings.items()
    }


# -- conf/experiment/NAME.yaml: settings that were chosen, kept where agt train experiment=NAME
# finds them -------------

EXPERIMENTS = Path("conf/experiment")  # of the working directory


def free_path(name: str) -> Path:
    """Where the experiment of this name goes.

    Raises:
        ConfigError: there is one.
    """
    path = EXPERIMENTS / f"{name}.yaml"
    if path.exists():
        raise ConfigError(
            f"{path} already exists: give another name with tune.name=NAME, or move the file away"
        )
    return path


def write_experiment(path: Path, config: Mapping[str, Any], comment: str) -> None:
    """Write a training configuration as an experiment: which options its command line composed, and
    what differs.

    Args:
        config: resolved, as plain containers.
        comment: for people, a line.
    """
    options = {
        group: option
        for group, option in chosen_options().items()
        if group.partition("/")[0] in PARTS
    }
    plain = composed(
        "train", [f"{group}={option}" for group, option in options.items()], complete=False
    )
    content = {part: _difference(plain.get(part), config[part]) for part in PARTS}
    content["dataset"].pop("data_dir", None)  # where files lie is no setting
    defaults = [*({f"override /{group}": option} for group, option in options.items()), "_self_"]
    body = {"defaults": defaults, **{part: node for part, node in content.items() if node}}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, f"# @package _global_\n# {comment}\n{to_yaml(body)}".encode())


def _difference(plain: Any, wanted: Any) -> Any:
    """What must be said beside ``plain`` to have ``wanted``."""
    if not (isinstance(plain, Mapping) and isinstance(wanted, Mapping)):
        return wanted
    return {
        key: _difference(plain.get(key), value)
        for key, value in wanted.items()
        if plain.get(key, ...) != value
    }
