"""How hard a certificate audit tries, and what it saw."""

from collections import Counter
from dataclasses import dataclass, field

from agt.audit.edits import Edited


@dataclass(frozen=True)
class Extent:
    """How hard an audit tries.

    Attributes:
        units: as many are left out one by one, drawn at random where there are more; None: all.
        neighbours: edited datasets made to hurt, at distances 1 to ``farthest``.
        farthest: the greatest k.
        bounded: neighbours that are trained with all their bounds.
        queries: test records that are asked; and so many lines between them along which roots are looked for.
        lines: see above.
        seconds: no new neighbours are begun after so many; None: no limit.
        again: train the run itself again, with its bounds.
    """

    units: int | None = 2000
    neighbours: int = 200
    farthest: int = 3
    bounded: int = 4
    queries: int = 200
    lines: int = 8
    seconds: float | None = None
    again: bool = True


@dataclass
class Seen:
    """What one kind of edit showed.

    Attributes:
        planned, trained, refused: neighbours.
        share: the largest deviation over its bound.
    """

    planned: int = 0
    trained: int = 0
    refused: int = 0
    share: float = 0.0


@dataclass
class Evidence:
    """What an audit saw; counterexamples with the edits that made them.

    Attributes:
        kinds: (edit in words, distance) -> what it showed.
        groups: parameters by name -> the largest deviation over its bound.
        outside: neighbours whose parameters left their bound, in words; confirmed.
        unconfirmed: of those trained together that looked so, and did not when trained alone.
        labels: certified (neighbour, query) pairs looked at; ``turned``: in words, those whose label changed, ``wrong`` of
            them; of the first few neighbours alone, as each is trained again.
        units: left out, one at a time; ``memorised``: (certified, memorisation) of their records.
        why: what training refused, in its words.
        unreached: (neighbour, member) pairs farther than the grid reaches.
        pairs: neighbours trained with all their bounds; ``ends`` of boxes compared, of which ``stuck`` out; ``compared``
            (pair, query), of which ``torn``: distances more than 1 apart, or a label that turned before its distance was 0.
        bits: numbers of the run compared with those of training it again, of which ``apart`` differ; None: it was not.
        idle: the largest deviation of that training over what rounding is allowed.
        moved: how far ends of boxes lie from its own, at most, in widths of a box.
    """

    kinds: dict[tuple[str, int], Seen] = field(default_factory=dict)
    groups: dict[str, float] = field(default_factory=dict)
    outside: list[str] = field(default_factory=list)
    unconfirmed: int = 0
    labels: int = 0
    turned: list[str] = field(default_factory=list)
    wrong: int = 0
    units: int = 0
    memorised: list[tuple[bool, int]] = field(default_factory=list)
    why: Counter[str] = field(default_factory=Counter)
    unreached: int = 0
    pairs: int = 0
    ends: int = 0
    stuck: int = 0
    compared: int = 0
    torn: int = 0
    bits: int | None = None
    apart: int = 0
    idle: float = 0.0
    moved: float = 0.0

    @property
    def share(self) -> float:
        """The largest deviation over its bound."""
        return max(self.groups.values(), default=0.0)

    @property
    def trained(self) -> int:
        """Neighbours."""
        return sum(seen.trained for seen in self.kinds.values())

    def of(self, edit: Edited) -> Seen:
        """Where an edit's kind is counted."""
        return self.kinds.setdefault((words_of(edit), edit.distance), Seen())


def words_of(edit: Edited) -> str:
    """The kind of an edit: one step's story, or how many steps."""
    return edit.story[0] if len(edit.story) == 1 else f"{len(edit.story)} edits after one query"
