"""Settings of the heads that agt builds: linear, MLP, convolutions.

The builders in ``agt.models.heads`` inherit their settings from the classes here. Nothing here
imports PyTorch, so that a mistake in a setting is answered at once.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from agt.errors import ConfigError, counted
from agt.settings import NonNegativeInt, schema

ActivationName = Literal["relu", "leaky_relu", "tanh", "sigmoid", "softplus", "gelu"]
Size = Annotated[int, Field(ge=1, le=2**24)]


@schema
class HeadSettings:
    """The settings of a linear head or an MLP.

    Attributes:
        hidden: the widths of the hidden layers; empty: a linear head.
        activation: the activation after each hidden layer, with PyTorch's default settings.
        encoder: always None here. A head on the outputs of a frozen encoder has another class.
        takes_encoder: whether the class is one of a head on the outputs of a frozen encoder.

    Raises:
        ValueError: an encoder was given to a class that takes none.
    """

    hidden: tuple[Size, ...] = ()
    activation: ActivationName = "relu"
    encoder: object | None = None
    takes_encoder: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.encoder is not None and not self.takes_encoder:
            raise ValueError(
                "encoder: this model has no frozen encoder in front of its head. Leave encoder "
                "out, or use model=small_cnn with the settings of an encoder"
            )

    @property
    def linear(self) -> bool:
        """Whether there are no hidden layers."""
        return not self.hidden


@schema
class ConvSettings(HeadSettings):
    """The settings of a convolutional network for images.

    Each convolution is followed by an activation and, if asked for, by average pooling. The MLP of
    the base class follows. All layers are trained.

    Attributes:
        channels: the number of output channels of each convolution.
        kernels: the side of each convolution's window, in pixels.
        strides: the step of each window, in pixels.
        paddings: the rows and columns of zeros added on each side before each convolution.
        pools: the side of the average pooling after each activation, in pixels; 1: no pooling.
        start: "pytorch": PyTorch's default initialisation; "he": biases of 0, and weights of
            variance 2 / fan-in (He et al. 2015), which are PyTorch's times the square root of 6.
        output_scale: a factor on the last layer's initial parameters; 0: all initial logits are 0.

    Raises:
        ValueError: an encoder was given, or the lists differ in length.
    """

    channels: Annotated[tuple[Size, ...], Field(min_length=1)] = (16, 32)
    kernels: tuple[Size, ...] = (4, 4)
    strides: tuple[Size, ...] = (2, 1)
    paddings: tuple[NonNegativeInt, ...] = (0, 0)
    pools: tuple[Size, ...] = (1, 1)
    start: Literal["pytorch", "he"] = "pytorch"
    output_scale: Annotated[float, Field(ge=0, le=1e3)] = 1.0

    def __post_init__(self) -> None:
        """Raise ValueError if an encoder was given or the lists differ in length."""
        if self.encoder is not None:
            raise ValueError(
                "encoder: this model trains its convolutions itself, so it cannot have a frozen "
                "encoder. Leave encoder out, or use model=small_cnn, which has one"
            )
        for name in ("kernels", "strides", "paddings", "pools"):
            given = len(getattr(self, name))
            channel_count = len(self.channels)
            if given != channel_count:
                raise ValueError(
                    f"{name} has {given} values, but channels has {channel_count} values: give "
                    "one value for each convolution"
                )

    @property
    def linear(self) -> bool:
        """Return False, because the network has convolutions."""
        return False

    def check_axes(self, axes: int) -> None:
        """Raise ConfigError unless records are images.

        Args:
            axes: the number of axes of a record; an image has three.
        """
        if axes != 3:
            raise ConfigError(
                "model: convolutions need records that are images (channels, height, width), "
                f"but a record has {counted(axes, 'axis', 'axes')}. Use a model without "
                "convolutions"
            )
