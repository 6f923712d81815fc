"""What a run's certificates say about removals: which conditions that needs, and what of an answer then stands.

Formal guarantees
    Let T be the training with its settings and public constants, D the records of a state, E any of its units, m of them,
    and x a query of stable distance L >= m. Then T(D - E) gives x the label that T(D) gives it, bit for bit, if
    - the relation's ball of m holds D - E: add_remove and remove count units gone (remove: private ones); one gone and none
      come is within one k of substitute and paper_privacy too (relations.py, "One side alone"; a linear head's k is two
      moves of one record); paper_unlearning holds for its own rule, the mean over what is left;
    - (b) each other record stays in its batch, shard and split, with its features: its place depends on itself alone;
    - (c) T(D - E) has the constants of T(D): a normaliser that was derived from the number of records has not;
    - (d) of a closed form: every step is non-expansive, which the distance rests on; of a tube: the curvature is bounded at
      each step. Of boxes: containment is proved rule for rule; that rules are inclusion-monotone is for nesting, which no
      removal needs;
    - (e) the constants that make features are those of D - E: ``Parted.untouched``, public or compared; and no record of E
      is one of the public rows that features are made from (certificate.features.public=train). That settings were
      chosen on these records leaves T what it is: it is said, as T is what the answer is compared with.
    Not needed: (a), as L >= m means certified at some k >= m of any grid, and boxes hold all of a smaller ball; (f), as
    what may be void there is nesting in the last digits, while bounds are widened for containment; (g), as removals go
    one way. So ``gaps`` asks for b, c, e and a closed form's or a tube's d.
    A certificate is about all sets of m units at once. So it covers those that somebody chose after seeing every answer;
    and E may be taken out in any order and number of updates, as T(D - E) does not depend on them.
    Noise in training or in the loss is outside: training again draws anew.
"""

from collections.abc import Collection, Sequence

from agt.certificates.conditions import Condition
from agt.facts import Fact
from agt.problem import Settings
from agt.relations import RELATIONS
from agt.settings import FeaturesConfig

STEPS = ("every step non-expansive", "curvature moves as a neighbour does")  # condition d's names that containment rests on


def gaps(
    settings: Settings, conditions: Sequence[Condition], compared: Collection[Fact] = (), public: bool = False
) -> list[str]:
    """Why certificates of a run say nothing about removals, in words; empty: they say what they say of any neighbour.

    Args:
        conditions: a to g, as the run recorded them.
        compared: facts about constants that were compared since, and need not hold of every dataset (``untouched``).
        public: whether a record that goes was declared public.
    """
    relation, reasons = RELATIONS[settings.relation.name], []
    if settings.certificate.name not in ("box", "stability", "erm", "tube"):
        name = settings.certificate.name
        reasons.append(
            f"certificates of certificate={name} are given the noise of that training, and say nothing of removals"
        )
    if settings.noise is not None:
        reasons.append("training again draws other noise than this run met (noise.epsilon)")
    if public and relation.capped:
        reasons.append(f"relation={relation.name} counts private records alone, and a public one is to go")
    if public and getattr(settings.certificate, "features", FeaturesConfig()).public == "train":
        reasons.append("the features are made from public rows, one of which is to go (certificate.features.public=train)")
    apart = {settings.choices, *compared}
    return [*reasons, *(fact.why for fact in needed(conditions) if not fact.held and fact not in apart)]


def needed(conditions: Sequence[Condition]) -> tuple[Fact, ...]:
    """Every fact of the conditions that an answer which stands rests on."""
    asked = (c for c in conditions if c.letter in "bce" or c.name in STEPS)
    return tuple(fact for condition in asked for fact in condition.grounds.facts)
