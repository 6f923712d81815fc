"""What libraries raise about files that they cannot read, in words."""

import struct
import zipfile
import zlib

import pyarrow as pa

from agt.errors import first_line

DAMAGE_ERRORS = (
    *(ValueError, OSError, EOFError, KeyError, OverflowError),
    *(struct.error, zlib.error, zipfile.BadZipFile, pa.ArrowException),
)
"""What NumPy, Arrow, zipfile and gzip raise of a file that is damaged or of another format."""


def describe_damage(error: Exception) -> str:
    """Return a clause for a message that says why a library could not read a file.

    Args:
        error: one of the ``DAMAGE_ERRORS``.
    """
    if "allow_pickle" in str(error) or "pickled" in str(error):
        return (
            "the file contains pickled Python objects, which could run code when agt reads "
            "them: save plain arrays instead"
        )
    if isinstance(error, UnicodeError) or "invalid UTF8" in str(error):
        return (
            "the text is not UTF-8: save it as UTF-8, or give its encoding, for example "
            "dataset.csv.encoding=latin-1"
        )
    return first_line(error)
