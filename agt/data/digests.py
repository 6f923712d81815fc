"""The digest of records, which tells whether a data set is the one that a model was trained on."""

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from hashlib import blake2b
from threading import Event, Thread

import numpy as np

from agt.data.arrays import CACHED_BYTES, array_blocks, pieces
from agt.data.records import Records

DIGEST_BYTES = 16

# Of features that another thread hashes. Between two blocks it may have to wait for the interpreter
# (5 ms), so a block should take as long.
_BACKGROUND_BLOCK_BYTES = 2**22


class Stopped(Exception):
    """The digest is no longer needed, so it was not computed."""


def fingerprint(*parts: Records, block_bytes: int = CACHED_BYTES, stop: Event | None = None) -> str:
    """Return a digest of all that training reads of some records, in their order.

    It does not depend on whether features are held as codes or as an array. Ledgers compare it with
    the digests that earlier versions of agt recorded, so its form never changes: a second form
    would let data that a ledger has closed pass as new.

    It finds accidents, and not forgeries: neither shapes, types nor the ends of names are hashed,
    so records can be made up that differ and have one digest, such as the ids "a", "b1" with the
    units "x", "y", and the ids "a", "b" with the units "1x", "y".

    Args:
        parts: the records, for example of the training set and of the test set.
        block_bytes: how many bytes of features are hashed at once; the digest does not depend on
            it.
        stop: where it is set, the digest is no longer needed.

    Returns:
        32 hexadecimal digits.

    Raises:
        Stopped: ``stop`` was set.
    """
    h = blake2b(digest_size=DIGEST_BYTES)
    for records in parts:
        for features in array_blocks(records.features, block_bytes):
            if stop is not None and stop.is_set():
                raise Stopped
            h.update(features.reshape(-1).view(np.uint8).data)
        for array in (records.labels, records.public):
            h.update(array.tobytes())
        for array in (records.ids, records.units):
            for place, names in enumerate(pieces(array)):
                separator = "\n" if place else ""
                h.update((separator + "\n".join(names.tolist())).encode())
    return h.hexdigest()


@contextmanager
def fingerprint_in_background(*parts: Records) -> Iterator[Future[str]]:
    """Compute ``fingerprint`` in a thread while the ``with`` block does other work.

    The block may read the records, but must not change them. After an error in the block the thread
    is stopped. Otherwise the end of the block waits for it.

    Args:
        parts: as of ``fingerprint``.

    Returns:
        What will hold the digest.
    """
    future = Future[str]()
    stop = Event()

    def compute() -> None:
        try:
            future.set_result(fingerprint(*parts, block_bytes=_BACKGROUND_BLOCK_BYTES, stop=stop))
        except BaseException as error:  # whoever asks for the digest gets the error
            future.set_exception(error)

    thread = Thread(target=compute, name="fingerprint")
    thread.start()
    try:
        yield future
    except BaseException:
        stop.set()
        raise
    finally:
        thread.join()
