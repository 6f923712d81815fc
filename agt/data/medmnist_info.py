"""What the medmnist package says about its files (urls, MD5, classes), read without importing it; and the download.

Importing medmnist imports torchvision, whose wheels break on a CPU build of torch, and creates a folder in the home
directory. Its facts are one dictionary literal in info.py: that file is parsed, and nothing of it is run.
"""

import ast
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agt.data.dataset import DataError
from agt.errors import ConfigError, DataMissing, nearest

INSTALL = "pip install --no-deps medmnist"


def all_info() -> Mapping[str, Mapping[str, Any]] | None:
    """medmnist's INFO, by data set name; None if the package is not installed.

    Raises:
        DataError: the package is there, and its info.py has no INFO that can be read.
    """
    spec = find_spec("medmnist")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name("info.py")
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.Assign) and any(getattr(target, "id", None) == "INFO" for target in node.targets):
                info: Mapping[str, Mapping[str, Any]] = ast.literal_eval(node.value)
                return info
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{path}: cannot read medmnist's INFO: {error}; reinstall it: {INSTALL}") from None
    raise DataError(f"{path}: this version of medmnist has no INFO; reinstall it: {INSTALL}")


def info_of(name: str) -> Mapping[str, Any] | None:
    """INFO of one data set; None if medmnist is not installed. Raises ConfigError for an unknown name."""
    info = all_info()
    if info is None:
        return None
    if name not in info:
        raise ConfigError(f"dataset.name: no MedMNIST data set is called '{name}'{nearest(name, info)}")
    return info[name]


def required_info(name: str, why: str) -> Mapping[str, Any]:
    """INFO of one data set; raises DataMissing with the command that installs medmnist if it is not there."""
    info = info_of(name)
    if info is None:
        raise DataMissing(f"{why} needs the package medmnist, which is not installed; run: {INSTALL}")
    return info


def official(info: Mapping[str, Any], size: int) -> tuple[str, str]:
    """(url, MD5) of the file of one size. Raises ConfigError if there is none."""
    suffix = "" if size == 28 else f"_{size}"
    if f"url{suffix}" not in info or f"MD5{suffix}" not in info:
        sizes = [28, *(int(key.removeprefix("url_")) for key in info if key.startswith("url_"))]
        raise ConfigError(f"dataset.size: {info['python_class']} comes in sizes {sizes}, not {size}")
    return info[f"url{suffix}"], info[f"MD5{suffix}"]


def fetch(url: str, md5: str, path: Path) -> None:
    """Download ``url`` to ``path``, saying so if stderr is a terminal; the file appears once it is verified.

    Raises:
        DataMissing: the file cannot be had (offline), or not be written; says where to put it by hand.
        DataError: what came has another hash.
    """
    import pooch

    pooch.get_logger().setLevel("INFO" if sys.stderr.isatty() else "WARNING")
    by_hand = f"download {url} yourself and put it at {path}, or change dataset.path or data_dir"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        downloader = pooch.HTTPDownloader(timeout=30)
        pooch.retrieve(url, f"md5:{md5}", fname=path.name, path=path.parent, downloader=downloader)
    except OSError as error:
        raise DataMissing(f"cannot download {path.name}: {error}; {by_hand}") from None
    except ValueError:
        raise DataError(f"{url}: the downloaded file does not have medmnist's MD5 {md5}; try again, or {by_hand}") from None
