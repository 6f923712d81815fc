"""Code that a configuration names by ``_target_``, and which of it may be imported.

A record is a file that anybody may have written, so a name in it is imported only if it is agt's
own (``is_own_code``), or if the user named the same code elsewhere (``trusting``). ``imported`` is
the only way to a ``_target_``, so that code which forgets to say what the user trusts gets agt's
own code and nothing else.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agt.errors import ConfigError

MECHANISMS = (
    "optimal.RandomizedResponse",
    "optimal.GaussianMargin",
    "argmax.NoisyArgmax",
    "argmax.GaussianArgmax",
    "laplace_mean.LaplaceMean",
    "published.SmoothCauchy",
    "published.SmoothLaplace",
    "published.ProposeTestRelease",
    "published.GlobalSensitivity",
    "published.ExponentialMechanism",
    "published.InverseSensitivity",
    "quantile.CertifiedQuantile",
    "weights.ReleaseWeights",
    "objective.ObjectivePerturbation",
    "statistics.NoisyStatistics",
)
"""Every mechanism of agt, by its module in agt.mechanisms and its class."""
TABLE = "agt.data.table.Table"
"""The class of a table's settings, by its full name."""
OWN_SETTINGS = {
    "agt.data.blobs.Blobs": "agt.data.blobs_settings.BlobsSettings",
    "agt.data.embeddings.Embeddings": "agt.data.file_settings.EmbeddingsSettings",
    "agt.data.images.Digits": "agt.data.image_settings.DigitsSettings",
    "agt.data.images.MedMnist": "agt.data.image_settings.MedMnistSettings",
    "agt.data.images.Mnist": "agt.data.image_settings.MnistSettings",
    TABLE: "agt.data.file_settings.TableSettings",
    "agt.models.heads.ConvConfig": "agt.models.head_settings.ConvSettings",
    "agt.models.heads.HeadConfig": "agt.models.head_settings.HeadSettings",
    **{
        f"agt.mechanisms.{name}": f"agt.mechanism_settings.{name.partition('.')[2]}Settings"
        for name in MECHANISMS
    },
}
"""The full name of every class of agt that a record may name -> that of the class from which it
inherits its settings, whose module loads nothing heavy.
"""

FORMER_NAMES = {
    "agt_cli.papers.encoder.EncodedHead": "agt_cli._experiments.encoder.EncodedHead",
    "agt_cli.papers.prepare.amex.Amex": "agt_cli._experiments.amex.Amex",
    "agt_cli.papers.prepare.imdb.Imdb": "agt_cli._experiments.imdb.Imdb",
}
"""The names that the settings of the papers' experiments, and so their records, give to classes ->
where these classes are.
"""

trusted_names: ContextVar[frozenset[str]] = ContextVar("trusted_names", default=frozenset())


class UntrustedCode(ConfigError):
    """A record names code that is not agt's own, and that the user named nowhere.

    Attributes:
        fact: the reason, without the remedy.
    """

    def __init__(self, target: str, where: str) -> None:
        self.fact = (
            f"{where}._target_ names {target}, which is not part of agt, so none of its code "
            "was imported"
        )
        super().__init__(
            f"{where}._target_: '{target}' is not part of agt, and neither this command line nor "
            "a file in ./conf names it, so it was not imported. If you know this code and want "
            f"it to run, add 'trust=[{target}]' to the command{_path_remedy(target)}"
        )


def _path_remedy(target: str) -> str:
    """Return the end of a sentence that advises to set PYTHONPATH; empty: that is not needed.

    It is needed if the module of the name is in the present folder, but is not found by an import.
    The module is not imported.

    Args:
        target: the dotted name of a class or function, which the user is about to trust.
    """
    root = target.partition(".")[0]
    if not root.isidentifier() or not is_in_present_folder(root) or find_spec(root) is not None:
        return ""
    return ", and put PYTHONPATH=. in front of it, because the module is in the present folder"


def is_in_present_folder(module: str) -> bool:
    """Return whether the present folder has a top-level module of that name."""
    return Path(f"{module}.py").exists() or Path(module).is_dir()


@contextmanager
def trusting(names: Iterable[str]) -> Iterator[None]:
    """Allow imports of some names in addition to agt's own code, until the end of the block.

    Names that an outer block trusted are not trusted within.

    Args:
        names: full names, as the user wrote them; none: only agt's own code may be imported.
    """
    token = trusted_names.set(frozenset(names))
    try:
        yield
    finally:
        trusted_names.reset(token)


def imported(target: str, where: str) -> Any:
    """Import and return the class or function that a setting ``_target_`` names.

    Raises:
        UntrustedCode: it is neither agt's own nor trusted; nothing of it was imported.
        ConfigError: it cannot be imported.
    """
    present_name = FORMER_NAMES.get(target, target)
    if not is_own_code(target) and not {target, present_name} & trusted_names.get():
        raise UntrustedCode(target, where)
    module_name, _, name = present_name.rpartition(".")
    try:
        return getattr(import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        remedy = ""
        root = module_name.partition(".")[0]
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == root
        if is_missing and is_in_present_folder(root):
            remedy = (
                ". The module is in the present folder, so put PYTHONPATH=. in front of the command"
            )
        raise ConfigError(f"{where}._target_: cannot import '{target}' ({error}){remedy}") from None


def imported_with_settings(node: object, where: str) -> tuple[str, Any, dict[str, Any]]:
    """Import what a mapping names by ``_target_``.

    Args:
        node: a mapping with ``_target_``, the full name of a class or function, and its settings.
        where: the key of the mapping, for messages.

    Returns:
        The name, the class or function, and the settings.

    Raises:
        UntrustedCode: the name is neither agt's own nor trusted; nothing of it was imported.
        ConfigError: there is no ``_target_``, or it cannot be imported.
    """
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise ConfigError(
            f"{where}: expected a mapping with the entry '_target_', which is the full name of a "
            f"class, got {node!r}: add this entry"
        )
    settings = {str(key): value for key, value in node.items()}
    name = str(settings.pop("_target_"))
    return name, imported(name, where), settings


def is_own_code(target: str) -> bool:
    """Return whether a name is that of a class of agt that files of runs may name.

    Nothing is imported to find out.
    """
    return target in OWN_SETTINGS


def own_settings(node: object) -> Any:
    """Return the class of settings of the class of agt that a configuration names.

    Args:
        node: a mapping with the full name of the class, ``_target_``.

    Returns:
        The class from which that class inherits; None: it is the user's own, or there is no name.
    """
    if not isinstance(node, Mapping):
        return None
    target = str(node.get("_target_"))
    if target not in OWN_SETTINGS:
        return None
    module, _, class_name = OWN_SETTINGS[target].rpartition(".")
    return getattr(import_module(module), class_name)


def targets_of(config: object) -> Iterator[str]:
    """Yield the name in every ``_target_`` of a configuration; of a list of names, each.

    Args:
        config: nested mappings and lists, at any depth.
    """
    if isinstance(config, Mapping):
        for key, value in config.items():
            # The keys of tune.grid are whole paths such as dataset._target_, with lists of values.
            if str(key).rpartition(".")[2] == "_target_":
                names = value if isinstance(value, list | tuple) else [value]
                yield from map(str, names)
            else:
                yield from targets_of(value)
    elif isinstance(config, list | tuple):
        for value in config:
            yield from targets_of(value)
