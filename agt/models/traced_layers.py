"""The layers that the ``forward`` method of a network applies, one after the other.

Bounds are computed layer by layer, so a network with its own ``forward`` can be trained only if
that method applies layers one after the other to its input, and does nothing else. To find this
out, the method is run on a symbol (``torch.fx``), which records each operation.

Formal guarantees:

- If ``layers_applied`` returns layers, then each operation that was recorded has one input, the
  output of the operation before it, and is one of these layers (or only reads a shape). So the
  method computes the composition of these layers, whatever the numbers of its input are: a
  condition on numbers or shapes stops the recording, and is refused.
- It is recorded in training and in evaluation mode, which must give the same layers.
- ``check_same_outputs`` compares the bits of both on fixed records, and of the gradients. This also
  finds code that treats the symbol otherwise than these records (such as by ``isinstance``), and
  functions whose gradients are replaced.

| case | result |
|---|---|
| a layer is used twice | it is returned twice; ``rules_for`` refuses it if it has parameters |
| a function without a bound rule, such as softmax | an ``AppliedFunction`` among the layers |
| a residual connection, several outputs, frozen parts | refused, with the line of code |
| other layers at each call, by global state or at random | not found: those returned are used |

``torch.fx`` is called under a lock, because it replaces methods of ``nn.Module`` meanwhile.
Calls of modules in other threads give the same outputs as otherwise.
"""

import linecache
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from agt.bounds.rules import RECORD_FORMS, RULES
from agt.bounds.unsupported import AppliedFunction
from agt.errors import ConfigError

Layers = dict[str, nn.Module]
"""Name of a layer, as the user's code has it -> the layer, in the order of the network."""

_LAYER_OF_FUNCTION: dict[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    "relu": (nn.ReLU, ()),
    "tanh": (nn.Tanh, ()),
    "sigmoid": (nn.Sigmoid, ()),
    "softplus": (nn.Softplus, ("beta", "threshold")),
    "gelu": (nn.GELU, ("approximate",)),
    "leaky_relu": (nn.LeakyReLU, ("negative_slope",)),
    "avg_pool2d": (nn.AvgPool2d, ("kernel_size", "stride", "padding")),
}
"""Function or method of PyTorch -> the layer that does the same, and the arguments of both."""
_PYTORCH_FUNCTIONS = {
    getattr(place, name)
    for function in (*_LAYER_OF_FUNCTION, "flatten", "reshape")
    for name in (function, f"{function}_")  # the second changes its input in place
    for place in (torch, functional)
    if hasattr(place, name)
}
"""The functions of PyTorch that are recognised; a function of that name elsewhere is none."""
_TORCH_FOLDER = str(Path(torch.__file__).parent)
_COMPARED_RECORDS = 8
_LARGE = 10**4  # added to parameters while it is seen whether forward() changes large ones
_SHOWN_LENGTH = 80  # characters of a line of code, at most, that a message repeats


def layers_applied(network: nn.Module, origin: str) -> Layers:
    """Return the layers that a network applies to its input, one after the other.

    Args:
        network: the network, which is left in training mode. Its own ``forward`` is run.
        origin: the place that the network comes from, for messages.

    Returns:
        The layers. An ``AppliedFunction`` is among them for each function that no layer with a
        bound rule computes.

    Raises:
        ConfigError: ``forward`` cannot be recorded, or does something else than apply layers.
    """
    network.eval()
    in_evaluation = _recorded_layers(network, origin)
    network.train()
    in_training = _recorded_layers(network, origin)
    _require_constant_parameters(network, origin)
    has_rules = all(type(layer) in RULES for layer in in_training.values())
    # The names and settings; layers of other objects have other names.
    if has_rules and repr(in_training) != repr(in_evaluation):
        raise _refusal(
            origin,
            "its forward() applies other layers while self.training is True than otherwise: remove "
            "what depends on self.training",
        )
    return in_training


def _require_constant_parameters(network: nn.Module, origin: str) -> None:
    """Raise ConfigError if ``forward`` changes parameters, also if only large ones are changed.

    Args:
        network: the network, in training mode. Its parameters have their values again afterwards.
        origin: the place that the network comes from, for messages.
    """
    # Parameters of lazy layers have no values yet.
    parameters = [each for each in network.parameters() if not nn.parameter.is_lazy(each)]
    initial = [parameter.detach().clone() for parameter in parameters]
    try:
        # With large values of either sign a limit binds, such as that of clamp_(max=1). They are
        # made by addition, because a factor would leave a parameter of 0 (such as a bias) at 0.
        for offset in (0, _LARGE, -_LARGE):
            values = [value + offset for value in initial]
            _set_values(parameters, values)
            _recorded_layers(network, origin)
            for parameter, value in zip(parameters, values, strict=True):
                if not torch.equal(parameter, value):
                    raise _refusal(
                        origin, "its forward() changes parameters: remove the code that does so"
                    )
    finally:
        _set_values(parameters, initial)


def _set_values(parameters: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    """Give each parameter the value at the same index."""
    with torch.no_grad():
        for parameter, value in zip(parameters, values, strict=True):
            parameter.copy_(value)


def is_layer(module: nn.Module) -> bool:
    """Return whether a module is a layer of PyTorch, or a subclass of one that has a bound rule.

    Any other module applies layers, which are found by running its ``forward``.
    """
    if isinstance(module, tuple(RULES)):
        return True
    is_of_torch = type(module).__module__.startswith("torch.nn.modules.")
    return is_of_torch and not isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict)


def check_same_outputs(
    network: nn.Module, layers: nn.Sequential, shape: tuple[int, ...], origin: str
) -> None:
    """Raise ConfigError unless a network and its layers give the same bits on fixed records.

    Outputs and gradients of the parameters are compared, in training and in evaluation mode. The
    network must not change its parameters either.

    Args:
        network: the network.
        layers: the layers that ``layers_applied`` returned, which share its parameters.
        shape: the shape of one record's features.
        origin: the place that the network comes from, for messages.
    """
    parameter = next(network.parameters(), torch.zeros(()))
    generator = torch.Generator().manual_seed(0)
    records = torch.randn(_COMPARED_RECORDS, *shape, generator=generator, dtype=torch.float64)
    # Zeros and large numbers are among them, because activations treat these in other ways.
    records[0] = 0
    records[1:3] *= 100
    records = records.to(parameter)
    expected = _outputs_and_gradients(layers, records, layers)
    for is_training in (False, True):
        network.train(is_training)
        try:
            computed = _outputs_and_gradients(network, records, layers)
        except Exception as error:  # whatever the user's code raises is about that code
            raise _refusal(
                origin,
                f"forward() fails on {_COMPARED_RECORDS} records of shape {shape} "
                f"({type(error).__name__}: {error})",
            ) from error
        # The layers are applied again, in case the network changes its parameters.
        for values in (computed, _outputs_and_gradients(layers, records, layers)):
            if not all(map(torch.equal, values, expected)):
                raise _refusal(
                    origin,
                    "on the same records, forward() does not return the same numbers as the layers "
                    "that it seems to apply, or has other gradients: give an nn.Sequential of the "
                    "layers that you mean",
                )


def _outputs_and_gradients(
    network: nn.Module, records: torch.Tensor, layers: nn.Sequential
) -> list[torch.Tensor]:
    """Return the outputs of a network, and the gradient of their sum with respect to parameters.

    Args:
        network: the network, which may be ``layers`` itself.
        records: [n, ...] the records.
        layers: the layers whose parameters these are, which ``network`` applies.

    Raises:
        TypeError: the network does not return a tensor.
        RuntimeError: the output does not depend on a parameter.
    """
    parameters = [*layers.parameters()]
    with torch.enable_grad():
        outputs = network(records.clone())
        if not isinstance(outputs, torch.Tensor):
            raise TypeError(f"it returns {type(outputs).__name__}, not a tensor")
        gradients = torch.autograd.grad(outputs.sum(), parameters) if parameters else ()
    return [outputs.detach(), *gradients]


def _refusal(origin: str, reason: str) -> ConfigError:
    """Return the refusal of a network whose ``forward`` does not only apply layers.

    Args:
        origin: the place that the network comes from.
        reason: a clause.
    """
    return ConfigError(
        f"model: {origin} cannot be trained, because {reason}. agt computes bounds layer by layer, "
        "so forward() may only apply layers to its input, one after the other"
    )


class _CallsNetwork(nn.Module):
    """Calls a network with one input, so that Python fills in defaults of other arguments.

    Attributes:
        net: the network.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.net = network

    def forward(self, records: Any) -> Any:
        """Return what the network returns for the records."""
        return self.net(records)


class _Tracer(fx.Tracer):
    """Records the operations of a network, with each layer of PyTorch as one operation.

    Each node's ``meta`` has the user's line of code ("line"; empty: PyTorch's own code), and
    whether gradients were switched off ("no_grad").

    Attributes:
        unnamed: the layers that ``forward`` makes itself, as in ``nn.ReLU()(x)``, by a name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unnamed: dict[str, nn.Module] = {}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return whether a module is one operation: a layer of PyTorch, or a subclass of one."""
        return is_layer(m)

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        """Return the output of a module, which is only recorded if it is called with a symbol."""
        if not any(isinstance(value, fx.Proxy) for value in (*args, *kwargs.values())):
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def path_of_module(self, mod: nn.Module) -> str:
        """Return the name of a module, a new one if it is no attribute and has no parameters."""
        paths = self.submodule_paths
        if paths is not None and mod not in paths and not [*mod.parameters()]:
            paths[mod] = f"unnamed {len(self.unnamed)}"
            self.unnamed[paths[mod]] = mod
        return super().path_of_module(mod)

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        """Return a new node, with the entries of ``meta`` that the class describes."""
        node = super().create_node(*args, **kwargs)
        node.meta["line"] = _line_of_code(traceback.walk_stack(sys._getframe()))
        node.meta["no_grad"] = not torch.is_grad_enabled()
        return node


def _line_of_code(frames: Any) -> str:
    """Return the line of the user's code among frames, or an empty text.

    Args:
        frames: (frame, line number), the innermost first.
    """
    frame: FrameType
    for frame, number in frames:
        file = frame.f_code.co_filename
        if file == __file__ and frame.f_code.co_name == "forward":
            return ""
        if file != __file__ and not file.startswith(_TORCH_FOLDER):
            code = linecache.getline(file, number).strip()
            shown_code = f": {code}" if 0 < len(code) <= _SHOWN_LENGTH else ""
            return f"line {number} of {Path(file).name}{shown_code}"
    return ""


def _recorded_layers(network: nn.Module, origin: str) -> Layers:
    """Return the layers that ``forward`` applies in the present mode of a network.

    Args:
        network: the network.
        origin: the place that the network comes from, for messages.

    Raises:
        ConfigError: ``forward`` cannot be recorded, or does something else than apply layers.
    """
    tracer = _Tracer()
    root = _CallsNetwork(network)
    try:
        with torch.enable_grad():
            graph = tracer.trace(root)
    except Exception as error:  # whatever the user's code raises on a symbol
        line = _line_of_code(reversed([*traceback.walk_tb(error.__traceback__)]))
        reason = "what its forward() does cannot be followed"
        if isinstance(error, fx.proxy.TraceError):
            reason = "its forward() has a condition or a loop that depends on the records"
        detail = line or f"{type(error).__name__}: {error}"
        raise _refusal(origin, f"{reason} ({detail})") from error
    layers: Layers = {}
    for node in _chain(graph, origin):
        name = str(node.target)
        if node.op != "call_module":
            applied = _layers_of_function(node, layers)
            name = node.name
        elif name in tracer.unnamed:
            applied = [tracer.unnamed[name]]
            name = type(applied[0]).__name__
        else:
            applied = [root.get_submodule(name)]
            name = name.removeprefix("net.")
        for layer in applied:
            while name in layers:
                name += "'"
            layers[name] = layer
    return layers


def _chain(graph: fx.Graph, origin: str) -> list[fx.Node]:
    """Return the operations from the input to the output of a graph.

    Args:
        graph: the recorded operations of the network.
        origin: the place that the network comes from, for messages.

    Raises:
        ConfigError: an operation has another input than the output of the one before it, or there
            are other operations than these and those that only read a shape.
    """
    (node,) = graph.find_nodes(op="placeholder")
    remaining = [other for other in graph.nodes if other is not node and not _reads_shape(other)]
    chain = []
    for following in remaining:
        inputs = [value for value in following.all_input_nodes if not _reads_shape(value)]
        place = _in_parentheses(following)
        if following.meta["no_grad"]:
            raise _refusal(
                origin,
                f"its forward() has a part without gradients{place}, but agt trains all layers. "
                "Compute the output of frozen layers beforehand, and give it as features",
            )
        if following.op == "get_attr":
            raise _refusal(
                origin,
                f"its forward() uses a parameter or tensor without a layer{place}. Use layers "
                "such as nn.Linear",
            )
        if inputs != [node]:
            raise _refusal(origin, _reason_for_no_chain(node, following))
        node = following
        chain.append(node)
    output = chain.pop()
    if output.args != (output.all_input_nodes[0],):
        raise _refusal(origin, "its forward() does not return one tensor")
    return chain


def _reason_for_no_chain(before: fx.Node, node: fx.Node) -> str:
    """Return a clause that says why an operation does not follow the one before it.

    Args:
        before: the operation before.
        node: the operation, which has other inputs than the output of that one.
    """
    if before.op != "placeholder" and not before.users:
        return (
            f"its forward() does not use the result of a call{_in_parentheses(before)}: remove the "
            "call, or use its result"
        )
    if node.op == "output":
        return "its forward() does not return the output of its last operation, and nothing else"
    return (
        "its forward() uses a value that is not the output of the layer before"
        f"{_in_parentheses(node)}, as a residual connection does, so a list of its layers would be "
        "another network"
    )


def _in_parentheses(node: fx.Node) -> str:
    """Return the line of code of an operation in parentheses, after a blank; empty: not known."""
    line = node.meta["line"]
    return f" ({line})" if line else ""


def _reads_shape(node: fx.Node) -> bool:
    """Return whether an operation only reads the shape of a tensor, or computes from shapes."""
    if node.op == "call_function" and node.target is getattr:
        return node.args[1] in ("shape", "ndim", "dtype", "device")
    if node.op == "call_method" and node.target in ("size", "dim"):
        return True
    inputs = node.all_input_nodes
    return node.op == "call_function" and bool(inputs) and all(map(_reads_shape, inputs))


def _is_record_count(value: object) -> bool:
    """Return whether a value is the number of records, ``x.shape[0]`` or ``x.size(0)``."""
    if not isinstance(value, fx.Node):
        return False
    if value.target == "size":
        return value.args[1:] == (0,)
    is_item = value.op == "call_function" and getattr(value.target, "__name__", "") == "getitem"
    if not is_item:
        return False
    shape, index = value.args
    if index != 0 or not isinstance(shape, fx.Node):
        return False
    is_size_of_all_axes = shape.target == "size" and len(shape.args) == 1
    return shape.target is getattr or is_size_of_all_axes


def _layers_of_function(node: fx.Node, before: Layers) -> list[nn.Module]:
    """Return the layers that compute a function or method that ``forward`` calls.

    Args:
        node: the call.
        before: the layers before it.

    Returns:
        The layers, none if the function only makes rows of rows; an ``AppliedFunction`` if no layer
        with a bound rule computes the function.
    """
    name = str(getattr(node.target, "__name__", node.target)).removesuffix("_")
    unknown = AppliedFunction(name, node.meta["line"])
    if node.op == "call_function" and node.target not in _PYTORCH_FUNCTIONS:
        return [unknown]
    if name in ("view", "reshape", "flatten"):
        layers = _reshaping_layers(name, node, before)
        return [unknown] if layers is None else layers
    if name not in _LAYER_OF_FUNCTION or len(node.all_input_nodes) > 1:
        return [unknown]
    layer, parameters = _LAYER_OF_FUNCTION[name]
    # ``inplace`` does not change the result, because each value is used once.
    arguments = {
        key: value for key, value in node.kwargs.items() if key not in ("inplace", "input")
    }
    arguments |= zip(parameters, node.args[1:], strict=False)
    try:
        return [layer(**arguments)]
    except TypeError:  # an argument that the layer does not have
        return [unknown]


def _reshaping_layers(name: str, node: fx.Node, before: Layers) -> list[nn.Module] | None:
    """Return the layers that change the shape of records as a function does; None: no layers do.

    Whether a record has as many numbers as a shape that is given, ``check_same_outputs`` finds out.

    Args:
        name: ``view``, ``reshape`` or ``flatten``.
        node: the call.
        before: the layers before it.
    """
    form = "images"  # or of another shape, as far as is known
    for layer in before.values():
        _, form = RECORD_FORMS.get(type(layer), (form, form))
    to_rows: list[nn.Module] = [] if form == "rows" else [nn.Flatten()]
    _, *sizes = node.args
    if name == "flatten":
        first = sizes[0] if sizes else node.kwargs.get("start_dim")
        last = sizes[1] if len(sizes) > 1 else node.kwargs.get("end_dim", -1)
        return to_rows if (first, last) == (1, -1) else None
    if len(sizes) == 1 and isinstance(sizes[0], Sequence):
        sizes = [*sizes[0]]
    if not sizes or not (sizes[0] == -1 or _is_record_count(sizes[0])):
        return None
    record_shape = sizes[1:]
    if not all(isinstance(size, int) for size in record_shape):
        return None
    if len(record_shape) == 1:
        return to_rows
    if len(record_shape) == 3 and min(record_shape) > 0:
        return [*to_rows, nn.Unflatten(1, tuple(record_shape))]
    return None
