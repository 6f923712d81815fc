"""Which files of data agt reads, by the ends of their names."""

from pathlib import Path

from agt.errors import DataError, DataMissing

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".data")
FORMATS = (".npz", ".csv", ".parquet", *TEXT_SUFFIXES[1:], ".csv.gz")


def is_delimited(path: Path) -> bool:
    """Return whether a file is a table as text, by its name. It may be compressed (.gz)."""
    without_gz = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return without_gz.suffix.lower() in TEXT_SUFFIXES


def check_suffix(path: Path, setting: str) -> None:
    """Raise DataError unless a file's name is that of a format which agt reads.

    Args:
        path: the file.
        setting: the setting that names it, for the message.
    """
    if path.suffix.lower() not in (".npz", ".parquet") and not is_delimited(path):
        raise DataError(
            f"{path}: unknown format '{path.suffix}': {setting} needs {', '.join(FORMATS)}, "
            "or a folder of .npy files"
        )
    if is_delimited(path) and path.is_file():
        check_not_empty(path)


def check_not_empty(path: Path) -> None:
    """Raise DataError if a table as text is empty.

    Args:
        path: the file, which exists.
    """
    if not path.stat().st_size:
        raise DataError(empty_table(path))


def empty_table(path: Path) -> str:
    """Return the message about a table as text that has nothing in it."""
    return (
        f"{path}: the file is empty: the first line must name the columns, and the lines after it "
        "must contain records"
    )


def arrays_in(folder: Path) -> list[Path]:
    """Return the npy files of a folder, sorted by name."""
    return sorted(folder.glob("*.npy"))


def check_has_arrays(folder: Path, setting: str) -> None:
    """Raise DataMissing unless a folder has a file of an array.

    Args:
        folder: the folder.
        setting: the setting that names it, for the message.
    """
    if not arrays_in(folder):
        raise DataMissing(
            f"{setting}: the folder '{folder}' contains no .npy files: put .npy files into it, "
            "or give a file instead"
        )
