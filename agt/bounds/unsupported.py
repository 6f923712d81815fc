"""What to write instead of a layer or function that has no bound rule, by its name in PyTorch."""

from collections.abc import Iterable, Mapping

from torch import nn

_LOSS_HAS_SOFTMAX = (
    "Leave this out, because the loss contains it, so that the last layer must give plain scores"
)
_NORMALISES_BATCH = (
    "Leave this out, because its mean and variance depend on all records of a batch, so that each "
    "record would change the others. Scale the features by public constants instead (a table does "
    "this by itself)"
)
_NORMALISES_RECORD = (
    "Leave this out, and scale the features by public constants instead (a table does this by "
    "itself)"
)
_DROPS = (
    "Leave this out, because it is random. To keep the weights small, give "
    "{config:training.weight_decay}"
)
_ACTIVATION = "Use nn.ReLU(), nn.LeakyReLU(), nn.GELU() or nn.Softplus()"
_POOLING = "Use nn.AvgPool2d(SIZE)"
_SEQUENCE = (
    "Compute features with a frozen public encoder beforehand, and train a linear head on them"
)
_CONVOLUTION = (
    "Use nn.Conv2d, for other records than images after nn.Unflatten(1, (CHANNELS, HEIGHT, WIDTH))"
)
_EMBEDDING = (
    "Give categories as features of 0 and 1, one for each value (a table does this by itself), "
    "and use nn.Linear"
)
_ADVICE: Mapping[str, tuple[str, ...]] = {
    _LOSS_HAS_SOFTMAX: ("Softmax", "LogSoftmax", "Softmax2d", "Softmin", "LogSigmoid"),
    _NORMALISES_BATCH: ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"),
    _NORMALISES_RECORD: (
        *("LayerNorm", "GroupNorm", "RMSNorm", "LocalResponseNorm"),
        *("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"),
    ),
    _DROPS: ("Dropout", "Dropout1d", "Dropout2d", "AlphaDropout", "FeatureAlphaDropout", "RReLU"),
    _ACTIVATION: (
        *("SiLU", "ELU", "SELU", "CELU", "Mish", "PReLU", "ReLU6", "Hardswish", "Hardtanh"),
        *("Hardsigmoid", "Softsign", "Tanhshrink", "Softshrink", "Hardshrink", "Threshold", "GLU"),
    ),
    _POOLING: (
        *("MaxPool2d", "AdaptiveAvgPool2d", "AdaptiveMaxPool2d", "LPPool2d", "FractionalMaxPool2d"),
        *("MaxPool1d", "AvgPool1d", "AdaptiveAvgPool1d"),
    ),
    _SEQUENCE: (
        *("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell", "MultiheadAttention"),
        *("Transformer", "TransformerEncoder", "TransformerEncoderLayer", "TransformerDecoder"),
    ),
    _CONVOLUTION: ("Conv1d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "LazyConv2d"),
    _EMBEDDING: ("Embedding", "EmbeddingBag"),
    "Leave this out, because it changes nothing": ("Identity",),
    "Write its layers into the outer nn.Sequential (nn.Sequential(*inner, ...))": ("Sequential",),
    "Use nn.Linear(INPUTS, OUTPUTS), with the number of inputs": ("LazyLinear", "Bilinear"),
}
_ADVICE_OF_LAYER = {name: advice for advice, names in _ADVICE.items() for name in names}
_RESHAPING = "Use x.flatten(1), or to make images x.view(-1, CHANNELS, HEIGHT, WIDTH)"
_ADVICE_OF_FUNCTION = {
    **{name.lower(): advice for name, advice in _ADVICE_OF_LAYER.items()},
    "instancenorm": _NORMALISES_RECORD,
    **dict.fromkeys(
        ("view", "reshape", "flatten", "unsqueeze", "permute", "transpose"), _RESHAPING
    ),
    **dict.fromkeys(
        ("add", "sub", "mul", "truediv", "div", "pow", "neg", "normalize"),
        "Leave this out, and scale the features by public constants beforehand instead (a table "
        "does this by itself)",
    ),
    **dict.fromkeys(
        ("float", "double", "half", "to", "type", "contiguous", "clone"),
        "Leave this out, because agt converts the features itself",
    ),
    "squeeze": "Leave this out, because agt takes a row of outputs for each record",
    "argmax": "Leave this out, because the last layer must give a score for each class",
    "detach": "Leave this out, because agt trains all layers",
}
"""Name of a function or method, in lower case without underscores -> what to write instead."""


class AppliedFunction(nn.Module):
    """A function that a network's ``forward`` calls, and that no layer with a bound rule computes.

    Attributes:
        function: its name.
        line: the line of code that calls it, for messages; empty: not known.
    """

    def __init__(self, function: str, line: str) -> None:
        super().__init__()
        self.function = function
        self.line = line


def describe_layer(name: str, layer: nn.Module) -> str:
    """Return what a message calls a layer of a network.

    Args:
        name: the layer's name in the network.
        layer: the layer.
    """
    if isinstance(layer, AppliedFunction):
        place = f" ({layer.line})" if layer.line else ""
        return f"{layer.function}(){place}"
    return f"layer {name} ({type(layer).__name__})"


def advice_for(layer: nn.Module, known: Iterable[type[nn.Module]], *, is_last: bool) -> str:
    """Return a sentence that says what to write instead of a layer without a bound rule.

    Args:
        layer: the layer.
        known: the types of layers that have a rule.
        is_last: whether it is the last layer of its network, whose outputs are the scores.

    Returns:
        The sentence without its full stop, as a template of ``agt.messages.Message``.
    """
    advice = ""
    if isinstance(layer, AppliedFunction):
        advice = _ADVICE_OF_FUNCTION.get(layer.function.replace("_", ""), "")
    elif type(layer).__module__.startswith("torch.nn."):
        advice = _ADVICE_OF_LAYER.get(type(layer).__name__, "")
    if advice:
        if advice == _LOSS_HAS_SOFTMAX and not is_last:
            return _ACTIVATION
        return advice
    for kind in known:
        if isinstance(layer, kind):
            return f"Use nn.{kind.__name__} itself, because a subclass may compute something else"
    names = ", ".join(sorted(kind.__name__ for kind in known))
    return f"Use layers that have a rule ({names})"
