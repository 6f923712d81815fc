"""Files and folders on disk: written whole, locked, listed with their hashes, and read carefully.

Everything is read as if anybody may have written it. Links, pipes and devices are named and not
opened. A file is read through a handle that is known to be of a regular file, up to a size. JSON
may have no key twice, no number that is NaN or infinite, and no depth that a reader cannot take.
YAML may have no aliases, which a few lines can blow up to gigabytes; no tags, which make objects;
and no very long numbers, which a number to the base of 60 takes long to read.
"""
