"""The official files of MedMNIST: what the medmnist package says about them, and their download.

The package is read without importing it: that imports torchvision, whose wheels break on a CPU
build of torch, and creates a folder in the home directory. Its facts are one dictionary literal in
info.py: that file is parsed, and nothing of it is run. pooch downloads the files and verifies them.
"""

import ast
import sys
from collections.abc import Mapping
from hashlib import file_digest
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeGuard

from agt.errors import ConfigError, DataError, DataMissing, nearest

INSTALL = "pip install --no-deps medmnist"
"""The command that installs the package without the libraries that agt does not need."""
_DOWNLOAD_SECONDS = 30
"""After so long without an answer a download has failed."""


def all_info() -> Mapping[str, Mapping[str, Any]] | None:
    """Return the table of data sets of the package medmnist, by name; None without the package.

    Raises:
        DataError: the package is there, and its info.py has no INFO that can be read.
    """
    spec = find_spec("medmnist")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name("info.py")
    try:
        statements = ast.parse(path.read_text(encoding="utf-8")).body
        (info,) = [statement.value for statement in statements if _assigns_info(statement)]
        return ast.literal_eval(info)
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(
            f"{path}: the table INFO of the package medmnist cannot be read ({error}): reinstall "
            f"the package with {INSTALL}"
        ) from None


def info_of(name: str) -> Mapping[str, Any] | None:
    """Return the metadata of a data set in the package medmnist; None if it is not installed.

    Args:
        name: MedMNIST's flag, such as pneumoniamnist.

    Raises:
        ConfigError: there is no such data set.
    """
    info = all_info()
    if info is None:
        return None
    if name not in info:
        raise ConfigError(f"dataset.name: MedMNIST has no data set '{name}'{nearest(name, info)}")
    return info[name]


def _assigns_info(statement: ast.stmt) -> TypeGuard[ast.Assign]:
    """Return whether a statement is ``INFO = ...``."""
    return isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") == "INFO"


def md5_of(path: Path) -> str:
    """Return the MD5 of a file as hexadecimal digits, as medmnist lists it."""
    with path.open("rb") as file:
        return file_digest(file, "md5").hexdigest()


def official_file(path: Path, url: str, md5: str, download: bool) -> Path:
    """Return an official file, verified. It is downloaded if it is not there.

    A downloaded file appears under its name once it is verified.

    Args:
        path: the path of the file, which need not exist.
        url: the address from which it can be downloaded.
        md5: its hash, in hexadecimal.
        download: whether it may be downloaded.

    Raises:
        DataMissing: the file cannot be downloaded (offline), may not be, or cannot be written. The
            message says where to put it by hand.
        DataError: the file that is there, or that was downloaded, has another hash.
    """
    import pooch

    if path.exists():
        # pooch would replace a file with another hash.
        actual = md5_of(path)
        if actual != md5:
            raise DataError(
                f"{path}: this file has the MD5 {actual}, but medmnist's official file has {md5}: "
                "delete the file and download it again. If you trust this file, accept it without "
                f"a check with dataset.path={path.name}"
            )
    elif not download:
        raise DataMissing(
            f"{path} does not exist. Set dataset.download=true to download this file, or download "
            f"it yourself from {url}. If you have the file elsewhere, change dataset.path or "
            "data_dir"
        )
    is_watched = sys.stderr.isatty()
    pooch.get_logger().setLevel("INFO" if is_watched else "WARNING")
    by_hand = f"download {url} yourself and save it as {path}, or change dataset.path or data_dir"
    downloader = pooch.HTTPDownloader(timeout=_DOWNLOAD_SECONDS)
    try:
        pooch.retrieve(url, f"md5:{md5}", fname=path.name, path=path.parent, downloader=downloader)
    except OSError as error:
        raise DataMissing(f"cannot download {path.name}: {error}; {by_hand}") from None
    except ValueError:
        raise DataError(
            f"{url}: the downloaded file is not the official one, because its MD5 is not {md5}: "
            f"try again, or {by_hand}"
        ) from None
    return path
