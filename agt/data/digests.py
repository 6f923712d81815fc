"""The digest of records, which tells whether a data set is the one that a model was trained on."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b

import numpy as np

from agt.data.arrays import array_blocks, pieces
from agt.data.coded import CodedFeatures
from agt.data.records import Records

DIGEST_BYTES = 16
READ_AHEAD_BYTES = 2**27  # of features: codes of more of them are looked up in a second thread
READ_AHEAD_BLOCK_BYTES = 2**22  # that it looks up at once: a few milliseconds of work


def fingerprint(*record_sets: Records) -> str:
    """Return a digest of some records: features, labels, flags, ids and units, in their order.

    It does not depend on whether features are held as codes or as an array. Ledgers compare it with
    the digests that earlier versions of agt recorded, so its form never changes: a second form
    would let data that a ledger has closed pass as new.

    It finds accidents, and not forgeries: neither shapes, types nor the ends of names are hashed,
    so records can be made up that differ and have one digest, such as the ids "a", "b1" with the
    units "x", "y", and the ids "a", "b" with the units "1x", "y".

    Args:
        record_sets: for example the training records and the test records.

    Returns:
        32 hexadecimal digits.
    """
    h = blake2b(digest_size=DIGEST_BYTES)
    for records in record_sets:
        for features in _feature_blocks(records.features):
            h.update(features.reshape(-1).view(np.uint8).data)
        for array in (records.labels, records.public):
            h.update(array.tobytes())
        for array in (records.ids, records.units):
            for index, names in enumerate(pieces(array)):
                separator = "\n" if index else ""
                h.update((separator + "\n".join(names.tolist())).encode())
    return h.hexdigest()


def _feature_blocks(features: np.ndarray) -> Iterator[np.ndarray]:
    """Yield features [n, ...] as contiguous arrays, one after another in their order.

    While the caller hashes one, which does not hold the interpreter's lock, a second thread looks
    up the codes of the next. It never is more than one ahead, and its errors are raised here.
    """
    is_read_ahead = isinstance(features, CodedFeatures) and features.nbytes >= READ_AHEAD_BYTES
    if not is_read_ahead:
        yield from array_blocks(features)
        return
    blocks = array_blocks(features, READ_AHEAD_BLOCK_BYTES)
    with ThreadPoolExecutor(max_workers=1) as second_thread:
        following = second_thread.submit(next, blocks, None)
        while (block := following.result()) is not None:
            following = second_thread.submit(next, blocks, None)
            yield block
