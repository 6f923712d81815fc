"""Read from the code of a network's own ``forward`` which layers it applies, one after the other.

Nothing is called or imported. The result is only shown, as a proposal for an ``nn.Sequential``: agt
computes no bounds for the code of a ``forward``.
"""

import ast
from collections.abc import Collection, Mapping

LAYER_OF_FUNCTION = {
    "relu": "nn.ReLU()",
    "tanh": "nn.Tanh()",
    "sigmoid": "nn.Sigmoid()",
    "softplus": "nn.Softplus()",
    "gelu": "nn.GELU()",
    "leaky_relu": "nn.LeakyReLU()",
}
"""Functions of torch and nn.functional, and methods of tensors -> the layer that does the same."""
_MODULES = {"torch", "F", "nn.functional", "functional", "torch.nn.functional"}


class _UnknownCode(Exception):
    """The code does something else than to apply layers one after the other."""


def layers_applied(forward: ast.FunctionDef, sequentials: Collection[str] = ()) -> list[str] | None:
    """Return the layers that ``forward`` applies to its input, in their order.

    For example ``["net.first", "nn.ReLU()", "net.last"]`` for
    ``return self.last(torch.relu(self.first(x)))``.

    Args:
        forward: the method, with one argument beside ``self``.
        sequentials: the attributes that hold an ``nn.Sequential``, whose layers become arguments of
            their own (``*net.body``).

    Returns:
        Each layer as an argument of ``nn.Sequential``, where ``net`` is the network. None: the code
        does something else as well, or it cannot be read.
    """
    parameters = [argument.arg for argument in forward.args.args]
    if len(parameters) != 2:
        return None
    # Name of a variable -> the layers whose output it is.
    variables: dict[str, list[str]] = {parameters[1]: []}
    try:
        for statement in forward.body:
            if isinstance(statement, ast.Return) and statement.value is not None:
                return _layers_of(statement.value, variables, sequentials)
            if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
                variable = _assigned_variable(statement)
                variables[variable] = _layers_of(statement.value, variables, sequentials)
            elif not _is_docstring(statement):
                return None
    except _UnknownCode:
        pass
    return None


def _assigned_variable(statement: ast.Assign | ast.AnnAssign) -> str:
    """Return the variable that a statement assigns to.

    Raises:
        _UnknownCode: it assigns to something else, or to several variables.
    """
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    if len(targets) == 1 and isinstance(targets[0], ast.Name):
        return targets[0].id
    raise _UnknownCode


def _is_docstring(statement: ast.stmt) -> bool:
    """Return whether a statement is only a text."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _layers_of(
    expression: ast.expr, variables: Mapping[str, list[str]], sequentials: Collection[str]
) -> list[str]:
    """Return the layers whose output an expression is.

    Args:
        expression: of a tensor.
        variables: name of a variable -> the layers whose output it is.
        sequentials: as for ``layers_applied``.

    Raises:
        _UnknownCode: it is something else.
    """
    if isinstance(expression, ast.Name) and expression.id in variables:
        return variables[expression.id]
    if not isinstance(expression, ast.Call) or not isinstance(expression.func, ast.Attribute):
        raise _UnknownCode
    owner = ast.unparse(expression.func.value)
    name = expression.func.attr
    given = [ast.unparse(argument) for argument in expression.args]
    given += [ast.unparse(keyword) for keyword in expression.keywords]
    if owner == "self" and len(given) == len(expression.args) == 1:
        layer = f"*net.{name}" if name in sequentials else f"net.{name}"
        return [*_layers_of(expression.args[0], variables, sequentials), layer]
    if owner in _MODULES and expression.args:
        argument = expression.args[0]
        options = given[1:]
    else:
        argument = expression.func.value
        options = given
    if name in LAYER_OF_FUNCTION and options in ([], ["inplace=True"], ["inplace=False"]):
        return [*_layers_of(argument, variables, sequentials), LAYER_OF_FUNCTION[name]]
    if name == "flatten" and options in (["1"], ["start_dim=1"]):
        return [*_layers_of(argument, variables, sequentials), "nn.Flatten()"]
    raise _UnknownCode
