"""Settings of a network that have no default, named all at once if they are missing."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from agt.errors import ConfigError
from agt.targets import TABLE
from agt_cli import config_files
from agt_cli.own_network import OwnNetwork, is_code
from agt_cli.process import typed_words

# These two repeat what other modules say, because those load PyTorch. A test compares them.
NETWORK_CERTIFICATE = "box"
"""The default certificate of a network (``agt.models.kinds.default_certificate``)."""
REQUIRED_TRAINING_SETTINGS = ("epochs", "lr", "clip")
"""Training settings without a default (``missing_training_settings`` of that certificate)."""
ONLY_LAYERS = (
    "A network of your own may only apply layers that have a rule, one after the other, so without "
    "dropout, batch normalisation or a softmax at the end (docs/from_python.md)"
)
FORM: Final = {
    "epochs": "training.epochs=4",
    "lr": "training.lr=1",
    "clip": "training.clip_elementwise=0.1",
}
"""A training setting without a default -> how it is typed, with the number of the documentation."""
SHORT_GRID = "kgrid.max=5"
NO_BINS = "dataset.bins=0"
DEFAULT_BINS = 20
"""The value of ``dataset.bins`` in conf/dataset/table.yaml."""
NO_BINS_MEANING = (
    f"{NO_BINS} makes each number of the table one feature (docs/from_python.md); by default it is "
    f"coded in {DEFAULT_BINS}"
)
FORM_MEANING = (
    "(the numbers show the form and are no recommendation: choose yours on public data, and then "
    "add training.chosen_on=public, which also declares that the network's initial parameters are "
    "public constants)"
)
NO_DEFAULTS = (
    "agt has no default training settings for a network, so first try a linear model (model=linear)"
)


def missing_settings(config: Mapping[str, Any]) -> list[str]:
    """Return the settings that a network still needs, as they are typed.

    Settings whose value is ``recipe`` are missing, because the recipe computes them for linear
    models only. A clip level is then missing as well, because the recipe's is a number that is
    meant for linear models.

    Args:
        config: a training configuration as plain containers; values may be missing (???).

    Returns:
        The words of a command line; none if nothing is missing, or the model is not a network.
    """
    training = config.get("training")
    if not is_network(config.get("model")) or not isinstance(training, Mapping):
        return []
    # Imported only for networks, because it loads pydantic.
    from agt.settings import RECIPE

    batch = training.get("batch")
    values = [*training.values(), *(batch.values() if isinstance(batch, Mapping) else ())]
    if RECIPE not in [value for value in values if isinstance(value, str)]:
        return []
    words = []
    certificate = config.get("certificate")
    if isinstance(certificate, Mapping) and certificate.get("name") != NETWORK_CERTIFICATE:
        words.append("certificate=box")
    words.append("training=generic")
    for name in REQUIRED_TRAINING_SETTINGS:
        if training.get(name) == RECIPE or name == "clip":
            words.append(FORM[name])
    return words


def proposed_bins(config: Mapping[str, Any], typed: Sequence[str]) -> list[str]:
    """Return the word that makes each number of a table one feature, as networks mostly need it.

    Args:
        config: a training configuration as plain containers.
        typed: the words of the command line.

    Returns:
        The word as a list; an empty list if the data are no table, the bins were typed, or there
        are none.
    """
    dataset = config.get("dataset")
    if not isinstance(dataset, Mapping) or dataset.get("_target_") != TABLE:
        return []
    is_typed = any(_key(word) == _key(NO_BINS) for word in typed)
    return [NO_BINS] if dataset.get("bins") and not is_typed else []


def complete_line(
    typed: Sequence[str], needed: Sequence[str], own_network: OwnNetwork | None
) -> str:
    """Return the command line that was typed, changed so that it can train a network.

    A setting that is proposed takes the place of the word that gave it another value; the others
    are added at the end. A number that was typed stays, because the proposed numbers are examples.
    Arguments that the network's function does not take are left out. ``PYTHONPATH`` is put in front
    if Python would not find the function without it.

    Args:
        typed: the words of the command line without the program's name.
        needed: the missing settings, as ``missing_settings`` returns them.
        own_network: the network's function; None: the network is one of agt's.
    """
    # Imported only for messages, because it loads pydantic.
    from agt.settings import RECIPE

    if own_network is not None:
        own_network = own_network.with_corrected_module
    unknown_keys = set()
    folder = ""
    if own_network is not None:
        unknown_keys = {f"model.{name}" for name in own_network.unknown_arguments}
        folder = own_network.python_path
    proposed_of_key = {
        _key(setting): setting for setting in _proposed_settings(typed, needed, own_network)
    }
    words = []
    for word in typed:
        if _key(word) in unknown_keys:
            continue
        setting = proposed_of_key.pop(_key(word), word)
        is_example = setting in FORM.values()
        if is_example and not word.endswith(f"={RECIPE}"):
            setting = word
        words.append(setting)
    line = shlex.join(["agt", *words, *proposed_of_key.values()])
    return f"PYTHONPATH={shlex.quote(folder)} {line}" if folder else line


def _proposed_settings(
    typed: Sequence[str], needed: Sequence[str], own_network: OwnNetwork | None
) -> list[str]:
    """Return the settings that a command line needs so that it can train a network.

    Args:
        typed: the words of the command line.
        needed: the missing settings of the training.
        own_network: the network's function, as it is meant; None: the network is one of agt's.
    """
    settings = list(needed)
    if own_network is not None:
        settings = ["model=custom", f"model._target_={own_network.target}", *settings]
        settings += [f"+model.{name}=VALUE" for name in own_network.missing_arguments]
    if needed and not any(word.startswith("kgrid") for word in typed):
        settings.append(SHORT_GRID)
    return settings


def linear_line(typed: Sequence[str]) -> str:
    """Return a command line with a linear head and its default settings instead of a network.

    Args:
        typed: the words of the command line without the program's name.
    """
    replaced = ("model", "certificate", "training", "kgrid")
    other_words = [word for word in typed if _key(word).partition(".")[0] not in replaced]
    return shlex.join(
        ["agt", *other_words, "model=linear", "certificate=stability", "training=recipe"]
    )


def check_network(
    config: Mapping[str, Any], other_problem: str, bins: Sequence[str] | None = None
) -> None:
    """Raise ConfigError if a network lacks settings, or its function is not where it is named.

    The message names everything that is missing, and the command line to type.

    Args:
        config: a training configuration as plain containers; values may be missing (???).
        other_problem: a clause that says what else is wrong with the network; empty: nothing else
            is.
        bins: the result of ``proposed_bins``, if the network needs it; None: its number of inputs
            is not known, so it is proposed.
    """
    model = config.get("model")
    if not isinstance(model, Mapping):
        return
    own_network = None if _is_own_class(_target_of(model)) else OwnNetwork.of_model(model)
    sentences = [] if own_network is None else [*own_network.problems()]
    words = missing_settings(config)
    if not words and not sentences:
        return
    if words:
        words += proposed_bins(config, typed_words()) if bins is None else bins
    named = f"model.hidden={list(model['hidden'])}" if model.get("hidden") else "model"
    if own_network is not None:
        named = f"model._target_={own_network.typed}"
    if words:
        sentences.append(NO_DEFAULTS)
    if words and own_network is not None and bins is None:  # the layers were not judged
        sentences.append(ONLY_LAYERS)
    if NO_BINS in words:
        sentences.append(NO_BINS_MEANING)
    if other_problem:
        sentences.append(f"Also, {other_problem}")
    text = ". ".join(sentences)
    meaning = f" {FORM_MEANING}" if words else ""
    raise ConfigError(
        f"{named}: {text}. Type: {complete_line(typed_words(), words, own_network)}{meaning}"
    )


def check_code_as_option(word: str, typed: Sequence[str]) -> None:
    """Raise ConfigError if ``model=`` or ``network=`` names a file, a module or a function.

    Args:
        word: the setting, such as ``model=my_net.py:make_net``.
        typed: the settings of the command line.
    """
    value = word.partition("=")[2].strip("'")
    if value in config_files.options_of_group("model") or not is_code(value):
        return
    own_network = OwnNetwork(value)
    other_words = [typed_word for typed_word in typed if typed_word != word]
    typed_keys = {_key(other_word) for other_word in other_words}
    form = ("training=generic", *FORM.values())
    # Another certificate that was typed cannot work, so it is replaced.
    needed = ["certificate=box", *(word for word in form if _key(word) not in typed_keys)]
    needed += proposed_bins(_data_of(other_words), other_words)
    sentences = [
        "A function of your own is named by model=custom and model._target_",
        *own_network.problems(),
        NO_DEFAULTS,
        ONLY_LAYERS,
    ]
    if NO_BINS in needed:
        sentences.append(NO_BINS_MEANING)
    text = ". ".join(sentences)
    line = complete_line(("train", *other_words), needed, own_network)
    raise ConfigError(f"{word}: {text}. Type: {line} {FORM_MEANING}")


def _data_of(typed: Sequence[str]) -> Mapping[str, Any]:
    """Return the configuration of the data that a command line names; empty: it names no data.

    Args:
        typed: the settings of the command line. Those about other parts are left out.
    """
    # Imported only for messages.
    from agt_cli.composing import compose_command

    words = [word for word in typed if _key(word).partition(".")[0] in ("dataset", "data_dir")]
    try:
        return compose_command("train", words, complete=False)
    except ConfigError:  # it is reported when the corrected line is typed
        return {}


def error_message(check: Callable[[], object]) -> str:
    """Return the message of the ConfigError that a function raises; empty if it raises none."""
    try:
        check()
    except ConfigError as error:
        return str(error)
    return ""


def _key(word: str) -> str:
    """Return the key of a word of the command line, KEY=VALUE."""
    return word.lstrip("+").partition("=")[0]


def is_network(model: object) -> bool:
    """Return whether a model has hidden layers, or is a class of the user's own."""
    if not isinstance(model, Mapping):
        return False
    layers = model.get("hidden") or model.get("channels")
    return bool(layers) or not _is_own_class(_target_of(model))


def _target_of(model: object) -> str:
    """Return the full name of a model's class; if none is named, a name of agt's own."""
    return str(model.get("_target_", "agt.")) if isinstance(model, Mapping) else "agt."


def _is_own_class(target: str) -> bool:
    """Return whether a class is agt's own, by its full name."""
    return target.startswith(("agt.", "agt_cli."))
