"""Digests of records, which tell whether a data set is the one that a model was trained on.

A digest has one of two forms. Both have 32 hexadecimal digits, so whoever compares a digest with a
recorded one calls ``fingerprint_like``, which tries both.

| form | made of | hashes |
|---|---|---|
| of arrays | features that are held in any way | every feature |
| of codes | ``CodedFeatures`` | the codes of each row, and once what the codes stand for |
"""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from agt.data.arrays import array_blocks, pieces
from agt.data.coded import CodedFeatures, RowLookup
from agt.data.records import Records

DIGEST_BYTES = 16
CODES_FORM = b"codes 1"  # BLAKE2b's personalisation; another version of the form gets another


def fingerprint(*parts: Records) -> str:
    """Return a digest of all that training reads of some records, in their order.

    It has the form of codes if all features are held as codes, and else the form of arrays.

    Formal guarantees:
        - Records with the same digest have the same features, labels, ids, units and public flags,
          unless BLAKE2b has a collision.

    Args:
        parts: the records, for example of the training set and of the test set.

    Returns:
        32 hexadecimal digits.
    """
    if parts and all(isinstance(records.features, CodedFeatures) for records in parts):
        return _fingerprint_of_codes(parts)
    return _fingerprint_of_arrays(parts)


def fingerprint_like(recorded: object, coding: RowLookup | None, *parts: Records) -> str:
    """Return the digest of some records, in the form of a recorded one if that is theirs.

    So a recorded digest is that of these records exactly if it is returned. Its form is another one
    than that of ``fingerprint(*parts)`` if an earlier version of agt wrote it, or if the records
    were part of a larger table then, which was held as codes.

    Args:
        recorded: the digest as a record has it; None: there is none.
        coding: how these features can be held as codes; None: not known.
        parts: as of ``fingerprint``.
    """
    digest = fingerprint(*parts)
    if recorded in (None, digest):
        return digest
    if all(isinstance(records.features, CodedFeatures) for records in parts):
        in_other_form = _fingerprint_of_arrays(parts)
    else:
        coded = held_as_codes(parts, coding)
        in_other_form = digest if coded is None else _fingerprint_of_codes(coded)
    return in_other_form if in_other_form == recorded else digest


def held_as_codes(parts: Sequence[Records], coding: RowLookup | None) -> tuple[Records, ...] | None:
    """Return the same records with features that are held as codes.

    Args:
        parts: the records.
        coding: what the codes stand for; None: not known.

    Returns:
        None: the coding is not known, or does not make the features of some part.
    """
    coded = []
    for records in parts:
        part = records.held_as_codes(coding)
        if part is None:
            return None
        coded.append(part)
    return tuple(coded)


def _fingerprint_of_arrays(parts: Sequence[Records]) -> str:
    """Return the digest of records in the form of arrays."""
    h = blake2b(digest_size=DIGEST_BYTES)
    for records in parts:
        for features in array_blocks(records.features):
            h.update(features.reshape(-1).view(np.uint8).data)
        for array in (records.labels, records.public):
            h.update(array.tobytes())
        for array in (records.ids, records.units):
            for place, names in enumerate(pieces(array)):
                h.update(("\n" if place else "").encode() + "\n".join(names.tolist()).encode())
    return h.hexdigest()


def _fingerprint_of_codes(parts: Sequence[Records]) -> str:
    """Return the digest of records in the form of codes.

    A row's features are a function of its codes and of the look-ups, so what is hashed of them
    decides the features. Lengths are hashed before what they are of, so no two inputs of the hash
    are of different records.
    """
    h = blake2b(digest_size=DIGEST_BYTES, person=CODES_FORM)
    for records in parts:
        features = records.features
        assert isinstance(features, CodedFeatures)  # the caller has looked
        labels = records.labels
        own_units = np.array_equal(records.units, records.ids)
        h.update(features.lookup.digest)
        h.update(f"{features.codes.shape} {labels.dtype.str} {own_units}\n".encode())
        h.update(np.ascontiguousarray(features.codes).data)
        h.update(labels.tobytes())
        h.update(records.public.tobytes())
        columns = [records.ids]
        if not own_units:
            columns.append(records.units)
        for column in columns:
            for names in pieces(column):
                words = names.tolist()
                h.update(np.fromiter(map(len, words), "<i8", count=len(words)).data)
                h.update("".join(words).encode())
    return h.hexdigest()
