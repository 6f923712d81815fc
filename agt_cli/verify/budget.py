"""What a release says that it spent, worked out again from its mechanism and its count rather than believed.

Formal guarantees
    Nothing that a record says of its budget is taken from its text: the guarantee of one answer is made from the
    mechanism's parameters, the totals by composition.py from that guarantee and the number of answers, and whether it may
    be claimed at all by rigour.py from the conditions as recorded. What differs from the record is a problem, whichever of
    the two is larger. What is not shown: that the draws were made with those parameters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agt.certificates.conditions import Condition
from agt.errors import ConfigError
from agt.manifest import Broken
from agt.mechanisms.aggregate import CertifiedQuantile
from agt.mechanisms.catalogue import MECHANISMS
from agt.mechanisms.composition import Total, total
from agt.mechanisms.guarantee import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.mechanism import Need
from agt.mechanisms.objective import ObjectivePerturbation
from agt.mechanisms.release import Release, totals_of, weights_total
from agt.mechanisms.rigour import Claim, Output, Voting, claim
from agt.mechanisms.tuning import Trials, TunedWeights
from agt.mechanisms.weights import ReleaseWeights
from agt.settings import RelationConfig, validate

KNOWN: dict[str, Any] = {
    **MECHANISMS,
    **{kind.name: kind for kind in (ReleaseWeights, ObjectivePerturbation, CertifiedQuantile)},
}
NOT_AGTS = "the mechanism is none of agt's own, and no code from elsewhere is loaded to look at it"


@dataclass(frozen=True)
class Made:
    """A mechanism as its claim is about it.

    Attributes:
        name: in tables.
        needs: what it rests on.
        guarantee: of one answer, of the number, or of the weights.
    """

    name: str
    needs: Need
    guarantee: Guarantee

    @classmethod
    def of(cls, config: Mapping[str, Any], metrics: Mapping[str, Any]) -> "Made | None":
        """From a record's settings, and the budget of one answer that its metrics name; None: it is none of agt's.

        Raises:
            Broken: the settings name another budget than the metrics.
        """
        node = config["mechanism"]
        kind = next((kind for kind in KNOWN.values() if f"{kind.__module__}.{kind.__qualname__}" == node["_target_"]), None)
        if kind is None:
            return None
        for key in ("eps", "delta", "mu"):
            if node.get(key) and float(node[key]) != metrics.get(key):
                raise Broken(f"config.yaml asks for mechanism.{key}={node[key]}, metrics.json says {metrics.get(key)}")
        return cls(kind.name, kind.needs, guarantee_among(metrics))

    def claim(
        self, conditions: Sequence[Condition], relation: RelationConfig, members: int, config: Mapping[str, Any], what: str
    ) -> Claim:
        """What may be said of it.

        Args:
            conditions: as the release recorded them.
            relation, members: of the training run.
            config: of the release.
            what: is released, as spent.json has it.

        Raises:
            ConfigError: no such claim is granted.
        """
        accounting, counting = config.get("accounting", "rigorous"), config.get("counting", "distance")
        published = accounting == "paper" and self.needs == "distance"
        voting: Voting = "none" if members < 2 else "published" if published else "certified"
        return claim(conditions, relation, self, accounting, counting, voting, Output(what))

    def spent(self, granted: Claim, queries: int, delta: float) -> tuple[str, ...]:
        """The totals in words, as the release itself would put them today.

        Args:
            delta: total.delta of its settings.
        """
        if granted.output is Output.WEIGHTS:
            return Release(granted, _nothing, (weights_total(self.guarantee, delta),), None, False).spent
        number = granted.output is Output.NUMBER
        totals: tuple[Total, ...] = () if number else totals_of(self.guarantee, queries, delta)
        return Release(granted, _nothing, totals, queries, False).spent


def guarantee_among(parameters: Mapping[str, Any]) -> Guarantee:
    """The guarantee with these parameters, among others that are none.

    Raises:
        Broken: they are no guarantee's.
    """
    numbers = {key: parameters[key] for key in ("eps", "delta", "mu") if parameters.get(key) is not None}
    kinds: dict[frozenset[str], type[Any]] = {
        frozenset({"eps"}): PureDP,
        frozenset({"eps", "delta"}): ApproximateDP,
        frozenset({"mu"}): GaussianDP,
    }
    kind = kinds.get(frozenset(numbers))
    if kind is None or not all(type(number) in (int, float) for number in numbers.values()):
        raise Broken(f"the budget of one answer is no guarantee's: {numbers}")
    guarantee: Guarantee = kind(**{key: float(number) for key, number in numbers.items()})
    return guarantee


def tuned(config: Mapping[str, Any]) -> TunedWeights:
    """Private tuning with the settings of ``agt tune``."""
    tune, total = config["tune"], config["total"]
    trials: Trials = validate(Trials, tune["trials"], "tune.trials")
    return TunedWeights.of(trials, float(total["eps"]), float(total["delta"]), tune["public"] is None)


def within(guarantee: Guarantee, queries: int, asked: Mapping[str, Any]) -> str:
    """Empty, or in words how much the answers spend beyond the budget that was asked for.

    Args:
        asked: ``total`` of the settings; its eps is null where the budget was given for one answer.
    """
    if asked.get("eps") is None:
        return ""
    eps, delta = float(asked["eps"]), float(asked.get("delta") or 0.0)
    try:
        spent = total(guarantee, queries, delta)
    except ConfigError as error:
        return str(error)
    return "" if spent.eps <= eps else f"{spent} against total.eps={eps:g}"


def _nothing(_: object) -> None:
    raise RuntimeError("nothing is drawn by an audit")
