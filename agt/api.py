"""The Python interface: train on arrays or data frames, certify, release, save and load.

    model = agt.fit(x, y)
    model.certify(queries).stable_distance

``import agt`` offers all of it. The command line builds the same problems (problem.py) and trains
the same models (models/fitting.py), so bounds, conditions and refusals agree.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from torch import nn

from agt.account import DataOwner
from agt.arrays import Labels, PublicFlags, RecordIds, UnitIds
from agt.certificates.conditions import Condition
from agt.data.frames import Features, as_pandas
from agt.data.in_memory import Declared
from agt.data.table import Columns
from agt.data.target import NumericTarget, declared_numbers
from agt.distributed import group
from agt.errors import ConfigError, Doubtful, naming_settings, warn_user
from agt.fit_doubts import doubts_of
from agt.fit_problem import (
    TrainingData,
    build_certificate,
    build_ensemble,
    build_features,
    build_head,
    check_network,
    recipe_of_votes,
    undeclared_network,
)
from agt.fit_settings import FIT_ARGUMENTS, FIT_PARAMETERS, DataSettings, FitSettings
from agt.fitted import COMMAND, DESCRIPTION, Fitted
from agt.models.description import describe, read_problem
from agt.models.ensemble import training_environment
from agt.models.erm import ErmKind
from agt.models.fitting import fit as fit_model, load as load_model
from agt.models.heads import HeadConfig
from agt.models.kind import CertificateKind
from agt.models.model import Model
from agt.models.number_head import NumberHeadKind
from agt.parameters import check_parameters
from agt.problem import Problem
from agt.settings import (
    ComputeConfig,
    KGridConfig,
    RelationConfig,
    RelationName,
    validate,
)
from agt.store.folder import Folder
from agt.store.manifest import read_digest
from agt.training.checkpoint import NO_CHECKPOINTS, checkpoint_folder
from agt.training.loop import OnProgress, ignore_progress


def fit(
    x: Features,
    y: Labels,
    *,
    target: Literal["classes", "numeric"] = "classes",
    range: Sequence[float] | None = None,
    ids: RecordIds | None = None,
    units: UnitIds | None = None,
    public: PublicFlags | None = None,
    declared: Declared | None = FitSettings.declared,
    columns: Columns | str | Path | None = FitSettings.columns,
    network: Sequence[int] | nn.Module = FitSettings.network,
    activation: str | None = FitSettings.activation,
    certificate: str | CertificateKind | Mapping[str, Any] | None = FitSettings.certificate,
    features: str | Mapping[str, Any] | None = FitSettings.features,
    relation: RelationName = FitSettings.relation,
    radius: float | None = FitSettings.radius,
    unit_rows: int = FitSettings.unit_rows,
    ks: int | Iterable[int] = FitSettings.ks,
    members: int = FitSettings.members,
    learner: Any = FitSettings.learner,
    vote: str = FitSettings.vote,
    margin_clip: float | None = FitSettings.margin_clip,
    compute: Mapping[str, Any] | None = FitSettings.compute,
    checkpoint: str | Path | None = FitSettings.checkpoint,
    on_progress: OnProgress | None = FitSettings.on_progress,
    verbose: bool = FitSettings.verbose,
    caution: float | None = FitSettings.caution,
    loss: str | None = FitSettings.loss,
    epochs: int | None = FitSettings.epochs,
    lr: float | None = FitSettings.lr,
    clip: float | None = FitSettings.clip,
    batches: int | None = FitSettings.batches,
    weight_decay: float | None = FitSettings.weight_decay,
    dtype: str | None = FitSettings.dtype,
    seed: int | None = FitSettings.seed,
    **training: Any,
) -> Fitted:
    """Train a classifier together with bounds on its answers after edits of the training records.

        model = agt.fit(x, y)
        answers = model.certify(queries)
        answers.labels, answers.stable_distance  # [n] labels, [n] int64

    The stable distance of a query is the largest number of edits of the training records that is
    proved unable to change its label. By default one edit adds or removes one record.

    The arguments from ``loss`` to ``seed`` are settings of the training. None is a default that
    suits the certificate; for a linear head it follows from ``declared.size`` (docs/recipe.md).

    Args:
        x: [n, ...] features as numbers; or a data frame of numbers, or of anything with
            ``columns``. Features should be at most about 1 in absolute value.
        y: [n] labels, numbers or text.
        target: the kind of labels: ``classes``; or ``numeric``, numbers in ``range``, which works
            with ``certificate="votes"``.
        range: the public range (a, b) of numeric labels, into which they are clipped.
        ids: [n] unique names of the records, whole numbers or text; None: hashes of their content.
        units: [n] the person (or other unit) that each record belongs to, whole numbers or text;
            None: each record is a unit.
        public: [n] bool, True for records that are public and need no protection; None: no record
            is public.
        declared: the statements that you make about data and settings, on which privacy claims
            rest; None: nothing. Releases need it; ensembles, ``votes`` and ``removal`` need its
            ``size``.
        columns: the columns of the data frame that become features, with the public constants that
            code them; or the path of a dataset file that holds them.
        network: the widths of hidden layers, such as ``(64, 64)``; empty: a linear classifier; or
            your own ``nn.Module``, whose parameters training starts from, and which is not changed.
            Its ``forward`` may only apply layers that have a bound rule, one after the other; what
            is trained is an ``nn.Sequential`` of these layers, which gives the same numbers bit for
            bit (docs/from_python.md). A network needs ``epochs``, ``lr`` and ``clip``.
        activation: the activation of hidden layers given by their widths; None: relu.
        certificate: the method by which labels are certified, as a name or a mapping with ``name``
            and settings. ``box``: bounds on every parameter, for any network. ``stability``,
            ``erm``, ``removal``: a linear head in closed form. ``votes``: an ensemble of small
            models. None: ``votes`` with a ``learner``, else ``stability`` for a linear classifier
            and ``box`` for a network.
        learner: how each member is trained, for ``votes``: ``ridge``, ``logistic``, a deterministic
            scikit-learn estimator, or a function (x, y) that returns a function labelling rows.
            None: ridge.
        features: a public feature map in front of a linear head: ``relu``, ``landmarks``,
            ``scattering``, or a mapping with ``map`` and its settings; None: the features
            themselves.
        relation: the name of the relation, which says what one edit is. ``add_remove``: a unit
            added or removed; ``remove``: a unit removed; ``substitute``: a unit exchanged for
            another; ``flip``: a label changed; ``perturb``: a unit's features moved by up to
            ``radius``; ``paper_privacy`` and ``paper_unlearning``: as in the papers.
        radius: the largest change of each feature, only with ``relation="perturb"``.
        unit_rows: the largest number of records of one unit, a public constant; more are refused.
        ks: the numbers of edits for which bounds are computed: every k from 0 to this integer, or
            the values of a sequence. 50 by default.
        members: the number of models in an ensemble, each trained on its own part of the records;
            1: a single model, or for ``votes`` about one for 67 records of a data frame with
            ``columns``, and for 100 records of other features, or fewer where ``unit_rows`` is
            large (docs/recipe_reference.md).
        vote: the values that members of an ensemble contribute: ``labels``, or ``margins`` for two
            classes.
        margin_clip: the public constant to which margins are clipped, only with ``vote="margins"``.
        compute: settings of the computation by name, such as ``{"device": "cuda", "threads": 4}``.
        checkpoint: a folder in which training saves its state, so that the same call resumes there
            after an interruption. It is deleted when this returns. None: nothing is saved.
        on_progress: called with an ``agt.training.loop.Progress`` (steps done, steps in all).
        verbose: True: show a progress bar on standard error, or in the notebook, unless
            ``on_progress`` is given. False: print nothing.
        caution: a factor > 0 on the default settings of a linear head or votes. At 2, stable
            distances are about twice as long, and accuracy is lower. None: 1.
        loss: ``binary_cross_entropy``, ``cross_entropy`` or ``squared_error``.
        epochs: the number of passes over the records.
        lr: the learning rate.
        clip: the level to which each entry of a record's gradient is clamped; for a linear head in
            closed form, each entry of its loss's derivative in the logits.
        batches: the number of batches of an epoch.
        weight_decay: the factor of the decoupled weight decay.
        dtype: ``float64`` or ``float32``.
        seed: the seed of the initial parameters.
        training: other settings of training by name, such as ``momentum=0.9``.

    Returns:
        The trained model, with ``predict``, ``certify``, ``release``, ``release_weights``,
        ``unfit`` and ``save``.

    Raises:
        ConfigError: a setting is wrong, or no proof covers the settings.
        DataError: the data cannot be used; the message names the row.
        UnsoundError: a bound became NaN or infinite, or a lower bound exceeds its upper bound.

    Warns:
        Doubtful: features are large, a class is never predicted, the declared size is exactly the
            number of records, or ``Declared.network`` is missing for a release.
    """
    settings = FitSettings.named(locals())  # first, so that locals() has the arguments only
    check_parameters("agt.fit", training, FIT_PARAMETERS)
    with naming_settings(FIT_ARGUMENTS):
        numbers = declared_numbers(target, range)
        model = fit_with(settings, x, y, ids=ids, units=units, public=public, numbers=numbers)
        doubts = doubts_of(model, x)
    for doubt in doubts:
        warn_user(doubt, Doubtful)
    return model


def fit_with(
    settings: FitSettings,
    x: Features,
    y: Labels,
    ids: RecordIds | None,
    units: UnitIds | None,
    public: PublicFlags | None,
    numbers: NumericTarget | None,
) -> Fitted:
    """Train a model as ``fit`` does, without warnings about its records.

    Errors name settings by their keys of the command line; the caller translates them with
    ``naming_settings``.

    Args:
        settings: all arguments of ``fit`` that are settings.
        x: [n, ...] features, or a data frame.
        y: [n] labels.
        ids: [n] unique names of the records, or None.
        units: [n] the person (or other unit) that each record belongs to, or None.
        public: [n] bool, True for public records, or None.
        numbers: the range of labels that are numbers; None: labels are classes.
    """
    x = as_pandas(x)
    relation = validate(RelationConfig, settings.part("relation"), "relation")
    data = TrainingData.from_arrays(
        x, y, settings, relation, ids=ids, units=units, public=public, numbers=numbers
    )
    if numbers is not None and settings.certificate is None:
        settings = replace(settings, certificate="votes")
    training = settings.given_training
    head = build_head(settings)
    certificate, own_learner = build_certificate(settings, head)
    check_network(settings, head, certificate, data)
    recipe = recipe_of_votes(settings, certificate, data)
    certificate = certificate.with_recipe(recipe)
    ensemble = build_ensemble(settings, certificate, data.declared.size, training, recipe)
    ks = settings.ks
    grid_settings = {"values": tuple(ks)} if isinstance(ks, Iterable) else {"max": ks}
    kgrid = validate(KGridConfig, grid_settings, "kgrid")
    problem = data.problem(
        relation,
        certificate,
        training,
        model=head,
        kgrid=kgrid,
        compute=validate(ComputeConfig, settings.compute or {}, "compute"),
        ensemble=ensemble,
        learner=own_learner,
    )
    undeclared = undeclared_network(settings)
    if undeclared:  # before the training, which may take long
        warn_user(undeclared, Doubtful)
    names = tuple(map(str, x.columns)) if isinstance(x, pd.DataFrame) else ()
    model = _train(problem, settings)
    return Fitted(model, data.classes, data.columns, names=names, public=data.declared.public)


def untrained_head(
    settings: DataSettings,
    x: Features,
    y: Labels,
    units: UnitIds | None,
    numbers: NumericTarget | None = None,
) -> Fitted:
    """Return a linear head before training, from which ``release_weights`` can release weights.

    Mechanisms that release weights train them. Errors name settings by their keys of the command
    line; the caller translates them with ``naming_settings``.

    Args:
        settings: the declarations about the data, and the feature map.
        x: [n, ...] features, or a data frame.
        y: [n] labels.
        units: [n] the person (or other unit) that each record belongs to, or None.
        numbers: the range of labels that are numbers; None: labels are classes.
    """
    relation = validate(RelationConfig, settings.part("relation"), "relation")
    data = TrainingData.from_arrays(
        as_pandas(x), y, settings, relation, units=units, numbers=numbers
    )
    kind = ErmKind if numbers is None else NumberHeadKind
    features = settings.features
    certificate = kind() if features is None else kind(features=build_features(features))
    problem = data.problem(relation, certificate, {}, model=HeadConfig())
    head = certificate.untrained_head(problem)
    return Fitted(head, data.classes, data.columns, public=data.declared.public)


def _train(problem: Problem, settings: FitSettings) -> Model:
    """Train the model of a problem, and show or report the progress as the settings say.

    Args:
        problem: the records, and all settings of the training.
        settings: those of ``fit``, of which ``on_progress``, ``verbose`` and ``checkpoint`` are
            read.
    """
    on_progress = settings.on_progress or ignore_progress
    is_first_process = not group().rank
    # If several processes train together, the first one shows the bar and saves the state for all.
    folder = settings.checkpoint if is_first_process else None
    if settings.verbose and settings.on_progress is None and is_first_process:
        # Imported here, because in a notebook without widgets tqdm warns when it is imported.
        from agt.progress import progress_shown

        with progress_shown("training") as on_progress:
            return _train_with_checkpoints(problem, on_progress, folder)
    return _train_with_checkpoints(problem, on_progress, folder)


def _train_with_checkpoints(
    problem: Problem, on_progress: OnProgress, folder: str | Path | None
) -> Model:
    """Train the model of a problem, and resume in a folder with checkpoints if one is given.

    Args:
        problem: the records and the settings.
        on_progress: called with the progress of training.
        folder: where the state of the training is saved; None: it is not saved.
    """
    if folder is None:
        return fit_model(problem, on_progress, NO_CHECKPOINTS)
    # The checkpoints of another training, or of another version or machine, must not be used.
    description = {
        **describe(problem),
        **training_environment(problem),
        "data": problem.dataset.digest,
    }
    seconds = problem.settings.compute.checkpoint_seconds
    with checkpoint_folder(Path(folder), description, seconds) as checkpoints:
        return fit_model(problem, on_progress, checkpoints)


@naming_settings(FIT_ARGUMENTS)
def load(
    folder: str | Path, digest: str | None = None, compute: Mapping[str, Any] | None = None
) -> Fitted:
    """Read back a model that ``Fitted.save`` wrote, and check every file of it.

        model = agt.load("model", digest)
        model.certify(queries).stable_distance

    Args:
        folder: the path of the model's folder.
        digest: the digest that ``save`` returned, with or without ``sha256:``; None: any model is
            accepted.
        compute: settings of the computation by name, such as ``{"threads": 4}``; None: defaults.

    Returns:
        The model. It has no training records, so ``unfit`` is refused.

    Raises:
        ConfigError: there is no such model; its digest is another one; or a file differs from what
            was written.
        UnsoundError: bounds or constants contradict themselves or the settings.
    """
    try:
        expected_digest = None if digest is None else read_digest(digest)
    except ValueError:
        raise ConfigError(
            f"digest={digest}: a digest is sha256: followed by 64 hexadecimal digits; give the "
            "one that Fitted.save returned"
        ) from None
    reader = Folder.open(Path(folder), COMMAND, expected_digest)
    content = reader.read(DESCRIPTION)
    compute_settings = validate(ComputeConfig, compute or {}, "compute")
    try:
        node = json.loads(content)
        problem = read_problem(node, compute_settings)
        recorded = tuple(map(Condition.from_json, node["conditions"]))
        classes = np.array(node["classes"], dtype=node["dtype"])
        columns = None
        if node.get("columns") is not None:
            columns = validate(Columns, node["columns"], "columns")
        owner = DataOwner.from_json(node["owner"], problem.dataset, problem.settings.relation)
        expected = problem.dataset.target.class_count or 0  # numbers have no classes
        if classes.shape != (expected,):
            raise ValueError(
                f"the number of class names ({classes.size}) differs from the number of "
                f"classes of the model ({expected})"
            )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"{reader.folder / DESCRIPTION}: this file cannot be read ({error}). If another "
            "version of agt saved the model, load it with that version. Otherwise fit the model "
            "again"
        ) from None
    names = tuple(node.get("feature_names", ()))
    has_large_features = node.get("large_features")
    if not isinstance(has_large_features, bool):
        has_large_features = None  # earlier versions did not record it
    model = load_model(problem, reader)
    return Fitted(
        model,
        classes,
        columns,
        recorded,
        names,
        saved_owner=owner,
        saved_large_features=has_large_features,
    )
