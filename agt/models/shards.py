"""What each member of an ensemble was trained on, recorded so that only some are trained again.

| file | of |
|---|---|
| shard.json | the folder of one member, of an ensemble whose members are separate models |
| shards.json | the folder of a model that has all its members in one file |

docs/proofs/sisa.md says what the records are for. They hold digests of private records, so they
belong to a run, and an exported model does not have them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agt.errors import UnsoundError, altered
from agt.models.store import FileWriter
from agt.store.folder import Folder
from agt.store.json_text import as_json

SHARD = "shard.json"
SHARDS = "shards.json"


@dataclass(frozen=True)
class ShardRecord:
    """The data and the environment that one member of an ensemble was trained with.

    Attributes:
        digest: a hash of the member's training records (``agt.data.records.fingerprint``).
        environment: everything else that determines a model's bits, besides settings and records,
            such as software versions (``training_environment``).
        records: the number of the member's training records; None: not recorded.
    """

    digest: str
    environment: Mapping[str, object]
    records: int | None = None

    @classmethod
    def read(cls, reader: Folder) -> "ShardRecord":
        """Read what a member was trained on from ``shard.json`` in the member's folder.

        Raises:
            ConfigError: the file is missing, or is not what was written.
        """
        node = reader.json(SHARD)
        # A list of one digest: in earlier versions a member's records came in several parts.
        (digest,) = node["digests"]
        return cls(digest, node["made"])

    def save(self, writer: FileWriter) -> None:
        """Write what the member was trained on to ``shard.json`` in the member's folder."""
        writer.write(SHARD, as_json({"digests": [self.digest], "made": self.environment}))


def write_shards(writer: FileWriter, shards: Sequence[ShardRecord]) -> None:
    """Write what all members were trained on to ``shards.json`` in the model's folder.

    Args:
        writer: the folder of the model.
        shards: one for each member, with their numbers of records.
    """
    environments: list[Mapping[str, object]] = []
    for shard in shards:
        if shard.environment not in environments:  # members of one training share it
            environments.append(shard.environment)
    node = {
        "digests": [shard.digest for shard in shards],
        "records": [shard.records for shard in shards],
        "made": environments,
        "made_in": [environments.index(shard.environment) for shard in shards],
    }
    writer.write(SHARDS, as_json(node))


def read_shards(reader: Folder, members: int) -> tuple[ShardRecord, ...]:
    """Read what all members were trained on from ``shards.json`` in the model's folder.

    Args:
        reader: the folder of the model.
        members: T, the number of members.

    Raises:
        ConfigError: the file is missing, or is not what was written.
        UnsoundError: it does not describe T members.
    """
    node = reader.json(SHARDS)
    try:
        shards = []
        for digest, records, index in zip(
            node["digests"], node["records"], node["made_in"], strict=True
        ):
            if type(digest) is not str or type(records) is not int or records < 0:
                raise ValueError("a digest is no text, or a number of records is no whole number")
            if not isinstance(node["made"][index], Mapping):
                raise ValueError("an environment has no names")
            shards.append(ShardRecord(digest, node["made"][index], records))
        if len(shards) != members:
            raise ValueError(f"there are {len(shards)} entries for {members} members")
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise UnsoundError(
            altered(reader.folder / SHARDS, str(error) or "an entry is missing", "train again")
        ) from None
    return tuple(shards)
