"""Questions and answers as JSON lines: one object a line, in on standard input and out on standard output.

{"id": "a17", "record": {"age": 37, "town": "Graz"}}     a record of a table, by column
{"id": 4, "features": [0.1, -2.5]}                        one of an array
{"id": "b", "records": [{...}, {...}]}                    several, paid as one lot; of arrays [[...], [...]]
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Any, BinaryIO

from agt.errors import ConfigError
from agt_cli.streams import put

LONGEST = 2**24  # bytes of a line
ENTRIES = ("record", "records", "features")


class BadLine(ConfigError):
    """A line that asks nothing.

    Attributes:
        id: of the question, where it has one.
    """

    def __init__(self, message: str, id: object = None) -> None:
        super().__init__(message)
        self.id = id


@dataclass(frozen=True)
class Question:
    """What one line asks.

    Attributes:
        id: as it was sent: text, a number or null.
        rows: column -> value, of each query.
        several: answered by a list, even if it is one.
    """

    id: object
    rows: Sequence[dict[str, object]]
    several: bool


def read_lines(stream: BinaryIO, longest: int = LONGEST) -> Iterator[tuple[int, bytes | None]]:
    """(number, content) of every line that is not blank; None instead of more than ``longest`` bytes, which are skipped."""
    number = 0
    while line := stream.readline(longest + 1):
        number += 1
        if len(line) > longest and not line.endswith(b"\n"):
            while (rest := stream.readline(longest)) and not rest.endswith(b"\n"):
                pass
            yield number, None
        elif line.strip():
            yield number, line


def question_of(line: bytes | None, array: str) -> Question:
    """What a line asks.

    Args:
        array: the column that a list of numbers is.

    Raises:
        BadLine: nothing that can be answered.
    """
    if line is None:
        raise BadLine(f"a line of more than {LONGEST} bytes: ask in smaller batches")
    try:
        node = json.loads(line.decode(), parse_constant=_refused, object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        raise BadLine(f"not UTF-8: byte {error.start + 1}") from None
    except JSONDecodeError as error:
        raise BadLine(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except (ValueError, RecursionError) as error:
        raise BadLine(f"cannot be read: {error}") from None
    if not isinstance(node, dict):
        raise BadLine('expected an object, such as {"id": 1, "record": {"age": 37}}')
    id = node.get("id")
    if not isinstance(id, str | int | float | None):
        raise BadLine("id: expected text, a number or null")
    given = [key for key in ENTRIES if key in node]
    unknown = [key for key in node if key not in (*ENTRIES, "id")]
    if unknown or len(given) != 1:
        wrong = f"unknown entry '{unknown[0]}'" if unknown else "expected one of them"
        raise BadLine(f"{wrong}: a line has id, and one of {', '.join(ENTRIES)}", id)
    several = given[0] == "records"
    value = node[given[0]] if several else [node[given[0]]]
    if not isinstance(value, list) or not value or not all(isinstance(row, dict | list) for row in value):
        raise BadLine(f"{given[0]}: expected {'a list of them' if several else 'an object of columns, or a list'}", id)
    return Question(id, [row if isinstance(row, dict) else {array: row} for row in value], several)


def put_line(value: Mapping[str, Any]) -> None:
    """Write one answer, at once."""
    put(json.dumps(value), "stdout")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    node = dict(pairs)
    if len(node) < len(pairs):
        raise ValueError(f"an object has '{next(key for key in node if [k for k, _ in pairs].count(key) > 1)}' twice")
    return node


def _refused(name: str) -> float:
    raise ValueError(f"{name} is no number")
