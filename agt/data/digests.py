"""The digest of records, which tells whether a data set is the one that a model was trained on."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import blake2b
from threading import Event

import numpy as np

from agt.data.arrays import array_blocks, pieces
from agt.data.coded import CodedFeatures
from agt.data.records import Records

DIGEST_BYTES = 16


class Stopped(Exception):
    """The digest is not needed any more, so it was not computed."""


def fingerprint(*record_sets: Records, stop: Event | None = None) -> str:
    """Return a digest of some records: features, labels, flags, ids and units, in their order.

    It does not depend on whether features are held as codes or as an array. Ledgers compare it with
    the digests that earlier versions of agt recorded, so its form never changes: a second form
    would let data that a ledger has closed pass as new.

    It finds accidents, and not forgeries: neither shapes, types nor the ends of names are hashed,
    so records can be made up that differ and have one digest, such as the ids "a", "b1" with the
    units "x", "y", and the ids "a", "b" with the units "1x", "y".

    Args:
        record_sets: the sets of records, such as the training records and the test records.
        stop: another thread sets it when it no longer needs the digest.

    Returns:
        32 hexadecimal digits.

    Raises:
        Stopped: ``stop`` was set.
    """
    h = blake2b(digest_size=DIGEST_BYTES)
    for records in record_sets:
        for features in array_blocks(records.features):
            if stop is not None and stop.is_set():
                raise Stopped
            h.update(features.reshape(-1).view(np.uint8).data)
        for array in (records.labels, records.public):
            h.update(array.tobytes())
        for array in (records.ids, records.units):
            for index, names in enumerate(pieces(array)):
                separator = "\n" if index else ""
                h.update((separator + "\n".join(names.tolist())).encode())
    return h.hexdigest()


@contextmanager
def fingerprint_in_background(*record_sets: Records) -> Iterator[Future[str]]:
    """Compute ``fingerprint`` in a thread while the ``with`` block does other work.

    The block must not change the records. Its end waits for the thread, which an error in the block
    stops.

    Args:
        record_sets: the arguments of ``fingerprint``.

    Yields:
        A future that gets the digest, or the error that was raised instead.
    """
    stop = Event()
    with ThreadPoolExecutor(max_workers=1) as thread:
        try:
            # Within ``try``, because a signal may come when the thread has just started.
            yield thread.submit(fingerprint, *record_sets, stop=stop)
        except BaseException:
            stop.set()
            raise


def mark_of_codes(*record_sets: Records) -> str:
    """Return a hash of records that reads the codes of coded features instead of the features.

    It takes a twentieth of the time where features are held as codes. It is compared only with
    marks that the same version of agt made of data that was loaded in the same way.

    Formal guarantees:
        * Records with the same mark have the same features, labels, flags, ids and units, unless
          BLAKE2b has a collision. Each array is hashed behind its type and shape, so that one input
          of the hash has one reading; and codes with the look-ups' hash decide the features.

    Args:
        record_sets: the arguments of ``fingerprint``.

    Returns:
        "codes:" and 32 hexadecimal digits, so that it equals no digest.
    """
    h = blake2b(digest_size=DIGEST_BYTES)
    for records in record_sets:
        features = records.features
        if isinstance(features, CodedFeatures):
            h.update(b"codes " + features.lookup.digest)
            features = features.codes
        arrays = [features, records.labels, records.public, records.ids]
        if records.units is not records.ids:
            arrays.append(records.units)
        h.update(f"{len(arrays)} arrays\n".encode())
        for array in arrays:
            h.update(f"{array.dtype.str} {array.shape}\n".encode())
            for rows in pieces(array):
                h.update(rows.tobytes())
    return f"codes:{h.hexdigest()}"
