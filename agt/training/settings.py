"""Settings of training: the ensemble, DP-SGD's noise, heads that support removals.

Nothing here imports NumPy or PyTorch, so that a mistake in a setting is answered at once.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from agt.errors import ConfigError
from agt.messages import Message, Setting
from agt.settings import FeaturesConfig, Positive, Probability, TrainingConfig, schema, validate


@schema
class EnsembleConfig:
    """Settings of an ensemble: its size, the assignment of records to members, and the vote.

    Attributes:
        members: the number of members. 1: no ensemble; the one model has all records.
        key: the public key of the hash that assigns units to shards (members' parts of the data).
        vote: how the members' answers are combined. ``labels``: the class that most members give.
            ``margins``: for two classes, the sign of the sum of the members' clipped margins
            (logit differences).
        margin_clip: the level at which each member's margin is clipped, a public constant in units
            of the logit; required for ``margins``, None for ``labels``.

    Raises:
        ValueError: ``margin_clip`` is missing for ``margins`` or given for ``labels``; or
            ``margins`` is given with one member.
    """

    members: Annotated[int, Field(ge=1, le=10_000)] = 1
    key: str = "agt"
    vote: Literal["labels", "margins"] = "labels"
    margin_clip: Annotated[float, Field(ge=1e-9, le=1e4)] | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if ``margin_clip`` or the number of members does not fit the vote.

        vote=margins needs a ``margin_clip`` and several members; vote=labels takes no clip.
        """
        if self.vote == "margins" and self.margin_clip is None:
            raise ValueError(
                "vote=margins needs margin_clip, a public constant to which each member's "
                "margin is clipped (about the size of a member's usual logits)"
            )
        if self.vote != "margins" and self.margin_clip is not None:
            raise ValueError("margin_clip is only for vote=margins: leave margin_clip out")
        if self.vote == "margins" and self.members == 1:
            raise ValueError(
                "vote=margins needs several members, but members=1. Give members=3 or more"
            )


@schema
class NoiseConfig:
    """Settings of the noise in a training: the target (epsilon, delta) and the seed of the draws.

    Attributes:
        epsilon: the epsilon of differential privacy for releasing the trained weights.
        delta: the delta of differential privacy for releasing the trained weights.
        release: when the weights are released. ``inside_box`` (only if they lie within the
            certified bounds) is refused, because no epsilon covers it (Lemma 3 of
            docs/proofs/noise.md).
        seed: a public seed of the draws, for simulations only. None: a secret random seed.

    Raises:
        ValueError: ``release`` is ``inside_box``.
    """

    epsilon: Annotated[float, Field(ge=1e-6, le=1e6)]
    delta: Probability = 1e-5
    release: Literal["always", "inside_box"] = "always"
    seed: Annotated[int, Field(ge=0, lt=2**64)] | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if ``release`` is ``inside_box``, which is not private.

        It would release the weights only if they lie within the certified bounds (the box).
        """
        if self.release == "inside_box":
            raise ValueError(
                "noise.release=inside_box is not private, because whether the weights lie within "
                "their bounds (the box) depends on private data, and the noise does not hide it "
                "(docs/proofs/noise.md). Use release=always, or publish no weights"
            )


def read_noise_config(node: object) -> NoiseConfig | None:
    """Return the validated settings of noise from a configuration; None if there is no noise.

    Args:
        node: the value under the key ``noise``: a mapping of settings, or None. A mapping whose
            "epsilon" is None means no noise, as does None itself.

    Raises:
        ConfigError: a setting is unknown or invalid; or epsilon is None while another setting
            differs from its default, so that the setting would be ignored silently.
    """
    if node is None:
        return None
    if isinstance(node, Mapping) and node.get("epsilon", 0) is None:
        # Both have the same, arbitrary epsilon. So they differ if another setting was given.
        without_epsilon = validate(NoiseConfig, {**node, "epsilon": 1.0}, "noise")
        if without_epsilon != NoiseConfig(epsilon=1.0):
            raise ConfigError(
                "noise.epsilon is null, which means no noise, but other settings of noise are "
                "given. Give noise.epsilon as well, or leave out the other settings of noise"
            )
        return None
    return validate(NoiseConfig, node, "noise")


@schema
class RemovalConfig:
    """Settings of a head that supports certified removal: a regularised minimiser with noise.

    The residual is the norm of the objective's gradient at the weights, which is 0 at the exact
    minimiser. Noise hides the residual that a removal leaves.

    Attributes:
        loss: logistic or least_squares, neither of them clamped. With more than two classes, each
            class has a separate output, which is trained against all others.
        masking: what hides the error of a removal. ``output``: noise on the weights that are
            served, which is proved. ``loss``: a random linear term b in the loss, as published,
            which is not proved. ``none``: no noise, for least squares only, whose removals are
            exact except for rounding.
        sigma: standard deviation of the noise in each coordinate: of a served weight with
            ``masking=output``; of b with ``masking=loss``, in units of one record's gradient, where
            1 is a common choice.
        eps, delta: the closeness of the model after a removal, in distribution, to one that was
            trained without the removed records. Not read with ``masking=none``.
        bound: how the residual after a removal is bounded. ``data``: from the data, without another
            pass over them. ``worst``: by the worst case over all data. ``measured``: by one pass
            over the data.
        factorisation: whether the Hessian is ``maintained`` from removal to removal, or computed
            ``fresh`` for each removal.
        tolerance: public bound on the residual that training leaves (a norm of a sum of gradients,
            not of their mean). Training fails if it is not met.
        features: the public feature map.
        seed: the seed of the noise, for a simulation; None: the operating system's generator.

    Raises:
        ValueError: settings exclude one another, for example noise of sigma = 0.
    """

    name: Literal["removal"] = "removal"
    loss: Literal["logistic", "least_squares"] = "logistic"
    masking: Literal["loss", "output", "none"] = "output"
    sigma: Annotated[float, Field(ge=0, le=1e9)] = 0.01
    eps: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0
    delta: Probability = 1e-4
    bound: Literal["data", "worst", "measured"] = "data"
    factorisation: Literal["maintained", "fresh"] = "maintained"
    tolerance: Positive = 1e-5
    features: FeaturesConfig = Field(default_factory=FeaturesConfig)
    seed: Annotated[int, Field(ge=0, lt=2**64)] | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if the masking does not fit the loss, sigma or the seed."""
        if self.masking == "none" and self.loss != "least_squares":
            raise ValueError(
                f"masking=none: with loss={self.loss}, removals leave an error that must be "
                "hidden by noise: use masking=output, or loss=least_squares, for which "
                "removals are exact"
            )
        if self.masking == "none" and (self.sigma or self.seed is not None):
            raise ValueError(
                "masking=none means no noise, so certificate.sigma and certificate.seed have "
                "no use: set sigma=0 and leave out seed"
            )
        if self.masking != "none" and not self.sigma:
            raise ValueError(
                f"masking={self.masking} hides the error of a removal by noise, but sigma=0 "
                "means no noise; set sigma above 0, or use masking=none with loss=least_squares"
            )


def check_no_momentum(training: TrainingConfig) -> None:
    """Raise ConfigError if training uses momentum.

    With momentum a step depends on earlier steps, too, which the closed forms do not cover.
    """
    if training.momentum:
        raise ConfigError(
            Message(
                "{config:training.momentum}={momentum:g}: only certificate=box covers momentum; "
                "use {config:training.momentum}=0, or certificate=box",
                momentum=training.momentum,
            )
        )


def check_minimiser_settings(training: TrainingConfig, certificate: str = "erm") -> None:
    """Raise ConfigError unless training settings describe one strongly convex problem.

    Args:
        training: the training settings. A weight_decay of 0 is accepted where it is listed in
            ``by_recipe``: the default settings replace it by a positive number later.
        certificate: the name of the certificate, for the message.

    Raises:
        ConfigError: there is momentum, no weight decay, or more than one batch.
    """
    check_no_momentum(training)
    if not training.weight_decay and "weight_decay" not in training.by_recipe:
        raise ConfigError(
            Message(
                "{config:training.weight_decay}=0: certificate={certificate} divides by the "
                "weight decay; give a positive public constant, such as 1e-4",
                certificate=certificate,
            )
        )
    if training.batch.count != 1:
        raise ConfigError(
            Message(
                "{config:training.batch.count}={count}: certificate={certificate} uses all "
                "records at once, in a single batch; set it to 1",
                count=training.batch.count,
                certificate=certificate,
            )
        )


def check_linear_loss(training: TrainingConfig) -> None:
    """Raise ConfigError for a loss whose derivative no closed form bounds.

    Args:
        training: its ``loss`` and ``clip`` are read.
    """
    if training.loss not in ("binary_cross_entropy", "cross_entropy"):
        raise ConfigError(
            Message(
                "{config:training.loss}={loss}: certificates with a closed formula (such "
                "as certificate=stability and certificate=erm) do not cover this loss: "
                "use {config:training.loss}=binary_cross_entropy, or certificate=box",
                loss=training.loss,
            )
        )
    if training.loss == "cross_entropy" and training.clip < 1:
        raise ConfigError(
            Message(
                "{config:training.clip_derivative}={clip:g}: a clamped softmax gradient is "
                "not the gradient of a convex function, so no bound on how far training "
                "moves is known. Use {config:training.clip_derivative}=1 (nothing is "
                "clamped), or {config:training.loss}=binary_cross_entropy, which trains "
                "one clamped classifier for each class",
                clip=training.clip,
            )
        )


def check_no_recipe_settings(training: TrainingConfig, certificate: str) -> None:
    """Raise ConfigError if a setting has the value ``recipe``, for a certificate without a recipe.

    The recipe is the defaults of linear heads, which are computed from public constants.

    Args:
        training: the training settings; ``by_recipe`` has the names of those with this value.
        certificate: the name of the certificate, for the message.
    """
    if training.by_recipe:
        raise ConfigError(
            Message(
                "{setting}=recipe: the recipe only covers linear heads, but this is "
                "certificate={certificate}: use a linear head (certificate=stability "
                "{config:model=linear}). For other models, use training=generic with "
                "{config:training.epochs}, {config:training.lr} and "
                "{config:training.clip_elementwise} chosen on public data",
                setting=Setting(f"training.{training.by_recipe[0]}"),
                certificate=certificate,
            )
        )
