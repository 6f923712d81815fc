"""An audit that finds a planted fault: a mechanism that flips too few labels for its guarantee.

Run it with `python examples/audit_finds_a_fault.py`. It audits randomized response at eps = 1
twice: as it is, and with a fault that a programmer might well make (labels are drawn with twice
the budget).
"""

from dataclasses import dataclass

import agt
from agt.mechanisms.mechanism import Mechanism
from agt.numeric import SeededRandomness
from agt_audit.label_pairs import NeighbourPair, Side, audit_pair
from agt_audit.trials import TrialPlan


@dataclass(frozen=True)
class FaultyResponse:
    """A mechanism that claims one guarantee and draws labels by another."""

    claimed: Mechanism
    drawn: Mechanism

    def __getattr__(self, name: str) -> object:
        source = self.drawn if name == "release" else self.claimed
        return getattr(source, name)


def audit(name: str, mechanism: Mechanism) -> bool:
    """Audit a mechanism, print what was found, and return whether the claim was contradicted."""
    # The hardest pair of neighbours: their labels differ, and both stable distances are 0.
    pair = NeighbourPair(Side(1, 0), Side(0, 0))
    plan = TrialPlan(trials=10_000, confidence=0.95, source=SeededRandomness(0))
    table, draws = audit_pair(mechanism, pair, plan, 0)[:2]
    print(name)
    print(f"  eps by its own table: {table.found:.3f}")
    print(f"  eps by 10,000 draws: at least {draws.found:.3f}")
    print(f"  contradicts its claim of eps = 1: {'yes' if draws.violated else 'no'}")
    return draws.violated


def main() -> None:
    """Audit the honest and the faulty mechanism."""
    honest = agt.RandomizedResponse(eps=1.0)
    faulty = FaultyResponse(claimed=honest, drawn=agt.RandomizedResponse(eps=2.0))
    assert not audit("randomized response", honest)
    assert audit("randomized response with a fault", faulty)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
