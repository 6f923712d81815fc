"""What is wrong with the name of a network's function, by its file's text: nothing is imported.

A network of the user's own is named by ``model._target_=MODULE.FUNCTION``, where FUNCTION is a
function that returns the network, or its class. Importing its module
loads PyTorch, which takes seconds, and runs the module. So everything that the name and the text of
the module tell is said before.
"""

import ast
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import TypeGuard

from agt.errors import nearest

MODULE = "MODULE"
FUNCTION = "FUNCTION"
"""What is written for the names of the module and of its function where they are not known."""
SETTING_OF_OWN_MODELS = "activation"
"""A setting that every model of agt has."""
_SHOWN_LENGTH = 200  # characters of the user's code, at most, that a message repeats
_DEFINING = (ast.If, ast.Try, ast.With, ast.For, ast.While)
"""Statements in which names may be defined that the top level of a module does not show."""


@dataclass(frozen=True)
class OwnNetwork:
    """A function that makes a network, as ``model._target_`` names it.

    Attributes:
        typed: the name as it was typed, such as ``nets/my_net.py:make_net``.
        arguments: the names of the arguments that the settings give to the function.
    """

    typed: str
    arguments: frozenset[str] = frozenset()

    @classmethod
    def of_model(cls, model: Mapping[str, object]) -> "OwnNetwork":
        """Return the network that the configuration's key ``model`` names.

        Args:
            model: the function's name as ``_target_``, and its arguments.
        """
        arguments = frozenset(map(str, model)) - {"_target_"}
        return cls(str(model["_target_"]), arguments)

    @property
    def _name(self) -> str:
        """The name as it was typed, without the parentheses of a call."""
        return self.typed.partition("(")[0]

    @cached_property
    def with_corrected_module(self) -> "OwnNetwork":
        """This network, with the name of its module corrected if it is a typing error.

        The module's name is replaced by that of a similar file in the same folder; without one the
        network is returned unchanged.
        """
        if self.file is not None or self._spec is not None or len(self._names) != 2:
            return self
        module, function = self._names
        close = get_close_matches(module, self._modules_in_folder, n=1)
        if not close:
            return self
        return replace(self, typed=str(Path(self._folder, f"{close[0]}.{function}")))

    @property
    def _folder(self) -> str:
        """The folder that is named before the module, without its last slash; empty: none."""
        return self._name.rpartition("/")[0].replace(":", ".")

    @property
    def _modules_in_folder(self) -> list[str]:
        """The names of the Python files in the named folder, without .py."""
        return [path.stem for path in Path(self._folder).glob("*.py")]

    @property
    def _names(self) -> list[str]:
        """The names between the points after the folder: those of the module and the function."""
        dotted = self._name.replace(":", ".").rpartition("/")[2]
        return [name for name in dotted.split(".") if name not in ("", "py")]

    @property
    def module(self) -> str:
        """The module's full name, such as ``my_net``; empty: nothing was named."""
        return ".".join(self._names[:-1] or self._names)

    @property
    def function(self) -> str:
        """The function's name; empty: only a module was named."""
        return self._names[-1] if len(self._names) > 1 else ""

    @property
    def target(self) -> str:
        """The name to type, MODULE.FUNCTION, once what ``problems`` says is done."""
        return f"{self.module or MODULE}.{self._function_to_name}"

    @property
    def _function_to_name(self) -> str:
        """The name of the user's function; if that function cannot be used, one to use instead."""
        functions = self._functions
        if self.function in functions or (self.function and self._may_be_defined):
            return self.function
        if self._statement is not None:
            return self._function_to_add
        close = get_close_matches(self.function, functions, n=1)
        if close:
            return close[0]
        no_classes = [
            name for name in functions if isinstance(self._definitions[name], ast.FunctionDef)
        ]
        only = no_classes or functions
        return only[0] if len(only) == 1 else FUNCTION

    @cached_property
    def search_folder(self) -> str:
        """The folder that has to be in PYTHONPATH; empty: Python finds the module without it."""
        if not self._names or self._file_in_folder is None:
            return ""
        root = Path(self._folder, self._names[0])
        roots = {root.resolve(), root.with_suffix(".py").resolve()}
        if self._spec is not None and roots & set(_roots_of(self._spec)):
            return ""
        return self._folder or "."

    @property
    def python_path(self) -> str:
        """What has to be in PYTHONPATH; empty: Python finds the module without that variable.

        If Python finds the module because PYTHONPATH is set, it may be set for one command only.
        """
        if self.search_folder or self.file is None:
            return self.search_folder
        variable = os.environ.get("PYTHONPATH", "")
        folder = self.file.resolve().parents[self.module.count(".")]
        named_folders = [Path(entry).resolve() for entry in variable.split(os.pathsep) if entry]
        return variable if folder in named_folders else ""

    @cached_property
    def _spec(self) -> ModuleSpec | None:
        """Where Python finds the first part of the module's name; None: it does not find it."""
        # ValueError: the module was made by other code, without a file.
        with suppress(ValueError, ImportError):
            return find_spec(self._names[0]) if self._names else None
        return None

    @property
    def _file_in_folder(self) -> Path | None:
        """The module's file in the named folder (none named: the present one); None: none there."""
        return _file_of_module(Path(self._folder), self.module) if self.module else None

    @cached_property
    def file(self) -> Path | None:
        """The module's file; None: there is none, or it is not known."""
        if self._file_in_folder is not None or self._spec is None:
            return self._file_in_folder
        for root in _roots_of(self._spec):
            file = _file_of_module(root.parent, self.module)
            if file is not None:
                return file
        return None

    @cached_property
    def _tree(self) -> ast.Module | SyntaxError:
        """The syntax tree of the module's file, or its syntax error; empty: it cannot be read."""
        if self.file is None:
            return ast.Module([], [])
        try:
            return ast.parse(self.file.read_bytes(), str(self.file))
        except SyntaxError as error:
            return error
        except (OSError, ValueError):
            return ast.Module([], [])

    @cached_property
    def _definitions(self) -> dict[str, ast.stmt]:
        """Name -> the statement of the module that defines it."""
        definitions: dict[str, ast.stmt] = {}
        if isinstance(self._tree, SyntaxError):
            return definitions
        for statement in self._tree.body:
            for name in _defined_names(statement):
                definitions[name] = statement
        return definitions

    @property
    def _functions(self) -> list[str]:
        """The names of the functions, and classes of networks, that the module itself defines."""
        return [
            name
            for name, statement in self._definitions.items()
            if not name.startswith("_") and _called_function(statement) is not None
        ]

    @property
    def _statement(self) -> ast.stmt | None:
        """The statement of the module that defines what was named; None: no statement does."""
        return self._definitions.get(self.function)

    @property
    def _may_be_defined(self) -> bool:
        """Whether the module may define the named function, as far as its text shows.

        False: it certainly does not, or the name is that of a network, which is no function.
        """
        if isinstance(self._tree, SyntaxError) or self.file is None:
            return True
        statement = self._statement
        if statement is None:
            return _may_define_more(self._tree)
        return not self._is_network(statement)

    def _is_network(self, statement: ast.stmt) -> TypeGuard[ast.Assign]:
        """Return whether a statement of the module assigns a network, not a function of one."""
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            return False
        maker = ast.unparse(statement.value.func)
        return maker.endswith("Sequential") or maker in self._functions

    @property
    def _function_to_add(self) -> str:
        """The name of a function that the module does not have yet."""
        return "make_net" if "make_net" not in self._definitions else "make_own_net"

    @property
    def missing_arguments(self) -> list[str]:
        """The function's arguments that have no default and are not given."""
        function = _called_function(self._definitions.get(self._function_to_name))
        if function is None:
            return []
        arguments = function.args
        positional = [*arguments.posonlyargs, *arguments.args]
        required = positional[: len(positional) - len(arguments.defaults)]
        required += [
            argument
            for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if default is None
        ]
        return [argument.arg for argument in required if argument.arg not in self.arguments]

    @property
    def unknown_arguments(self) -> list[str]:
        """The arguments that are given and that the function does not take."""
        known = self._named_arguments
        return [] if known is None else sorted(self.arguments - {*known})

    @property
    def _named_arguments(self) -> list[str] | None:
        """The arguments that the function takes by name; None: any, or it is not known."""
        function = _called_function(self._statement)
        if function is None or function.args.kwarg is not None:
            return None
        return [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)]

    def problems(self) -> Iterator[str]:
        """Yield a sentence for each problem with the name, the module or the function."""
        if not self.module:
            yield "The name of the function that makes the network is missing"
            return
        unusable = next((name for name in self._names if not name.isidentifier()), None)
        if unusable is not None:
            yield (
                f"{unusable!r} cannot be part of a module's name in Python, because it is not made "
                "of letters, digits and underscores: rename the file"
            )
            return
        if self._name != self.typed:
            yield "The function is named without parentheses, because agt calls it itself"
        if self.function and self._name != f"{self.module}.{self.function}":
            yield "The module and the function are written with a point between them"
        root = self.module.partition(".")[0]
        if self.file is None and self._spec is None:
            hint = nearest(root, self._modules_in_folder)
            yield (
                f"There is no module {self.module}, neither in this folder nor where Python looks "
                f"for modules{hint}"
            )
        if self.search_folder:
            searched_folder = "the present folder"
            if self.search_folder != ".":
                searched_folder = f"the folder {self.search_folder}"
            yield (
                f"Python does not look for {root} in {searched_folder}, unless PYTHONPATH names it"
            )
        yield from self._problems_of_function()

    def _problems_of_function(self) -> Iterator[str]:
        """Yield a sentence for each problem with the function that its module's text shows.

        Without a file, nothing is known about the function, so only a missing name is a problem.
        """
        if isinstance(self._tree, SyntaxError):
            yield f"{self.file}, line {self._tree.lineno}, is not valid Python ({self._tree.msg})"
            return
        statement = self._statement  # that defines the named function; None: there is none
        if not self.function:
            functions = ", ".join(self._functions) or "it has none"
            yield f"The function that makes the network must be named, too (functions: {functions})"
        elif statement is None and not self._may_be_defined:
            hint = nearest(self.function, self._functions)
            yield f"{self.file} does not define {self.function}{hint}"
        elif statement is not None and self._is_network(statement):
            yield self._sentence_on_network(statement)
        yield from self._problems_of_arguments()

    def _sentence_on_network(self, statement: ast.Assign) -> str:
        """Return what to do where the statement assigns a network, instead of defining a function.

        The sentence repeats the network's code if it has at most ``_SHOWN_LENGTH`` characters.
        """
        code = ast.unparse(statement.value)
        if len(code) > _SHOWN_LENGTH:
            code = "nn.Sequential(LAYERS)"
        return (
            f"{self.function} is a network, but agt needs a function that makes one, because "
            f"it seeds the initial parameters: add to {self.file} the line  "
            f"def {self._function_to_add}(): return {code}"
        )

    def _problems_of_arguments(self) -> Iterator[str]:
        """Yield a sentence for arguments that the function does not take, and for missing ones."""
        unknown = ", ".join(self.unknown_arguments)
        if unknown and SETTING_OF_OWN_MODELS in self.unknown_arguments:
            yield (
                f"Without model=custom, {self.function}() is given the settings of the model that "
                f"agt uses otherwise, which it does not take ({unknown})"
            )
        elif unknown:
            hint = nearest(self.unknown_arguments[0], self._named_arguments or ())
            yield f"{self.function}() does not take {unknown}{hint}"
        if self.missing_arguments:
            arguments = " and ".join(self.missing_arguments)
            yield f"{self._function_to_name}() needs a value for {arguments}"


def is_code(value: str) -> bool:
    """Return whether a value looks like the name of a module, a file or a function of one."""
    names_file = value.endswith(".py") or ":" in value or Path(f"{value}.py").is_file()
    return names_file or ("." in value and not value[:1].isdigit() and value.isascii())


def _file_of_module(folder: Path, module: str) -> Path | None:
    """Return the file of a module whose first part lies in a folder; None: it has no such file."""
    path = folder.joinpath(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file
    return None


def _roots_of(spec: ModuleSpec) -> list[Path]:
    """Return where a top-level module is: its file, or the folders of its package."""
    locations = spec.submodule_search_locations
    if locations is None:
        locations = [spec.origin] if spec.origin else []
    return [Path(location).resolve() for location in locations]


def _defined_names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement at the top level of a module defines."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Name):
                yield target.id
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        yield statement.target.id
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        for alias in statement.names:
            yield alias.asname or alias.name


def _may_define_more(tree: ast.Module) -> bool:
    """Return whether a module may define names that ``_defined_names`` does not find."""
    return any(
        isinstance(statement, _DEFINING)
        or (isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*")
        or (isinstance(statement, ast.FunctionDef) and statement.name == "__getattr__")
        for statement in tree.body
    )


def _called_function(statement: ast.stmt | None) -> ast.FunctionDef | None:
    """Return a function, or what is called to make an object of a class of networks.

    Args:
        statement: the statement that defines a function or a class; None: no statement does.

    Returns:
        The function; for a class with the method ``forward``, its ``__init__`` without ``self``.
        None: it is something else, or the class inherits one of the two.
    """
    if isinstance(statement, ast.FunctionDef):
        return statement
    if not isinstance(statement, ast.ClassDef):
        return None
    methods = {each.name: each for each in statement.body if isinstance(each, ast.FunctionDef)}
    if "forward" not in methods or "__init__" not in methods:
        return None
    method = deepcopy(methods["__init__"])
    positional = method.args.posonlyargs or method.args.args
    del positional[:1]  # self
    return method
