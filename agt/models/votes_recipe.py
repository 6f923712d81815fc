"""The recipe of ``certificate=votes``: its default members and strength, from public facts alone.

docs/recipe_reference.md, section "Votes", has the rule by which the numbers were chosen.
"""

from dataclasses import dataclass, replace

# The largest default before it is made odd: 9,999 is within the 10,000 that EnsembleConfig allows.
_MAX_DEFAULT_MEMBERS = 9_998


@dataclass(frozen=True)
class VotesRecipe:
    """The default settings of votes on one kind of data.

    Attributes:
        records_per_member: the number of declared records for each member.
        strength: the factor of each member's regulariser, ``certificate.strength``.
        people_per_member: how many people a member has at least on average, where one person may
            have several records; 0: that does not count.
    """

    records_per_member: int
    strength: float
    people_per_member: int = 0

    def members(self, size: float, caution: float = 1.0, unit_rows: int = 1) -> int:
        """Return the default number of members.

        Args:
            size: the declared (public) number of records.
            caution: the factor ``training.caution`` on the number of members. With more members
                labels are certified against more edits of the dataset, but the accuracy falls.
            unit_rows: the public limit on the records of one person. All of them go to one member,
                and there are at least ``size / unit_rows`` people.

        Returns:
            About one member for ``records_per_member`` records, or for ``people_per_member`` people
            who have ``unit_rows`` records each, whichever gives fewer members; at least 3 and at
            most 9,999. It is odd, so that two classes never tie.
        """
        records_per_member = max(self.records_per_member, self.people_per_member * unit_rows)
        members = round(caution * size / records_per_member)
        in_range = min(max(3, members), _MAX_DEFAULT_MEMBERS)
        return in_range | 1  # an even number becomes the next odd one


VOTES_ON_OTHER_DATA = VotesRecipe(records_per_member=100, strength=0.1)
"""Votes on vectors and images, of numbers, of other learners, and where labels change."""

VOTES_ON_TABLES = {
    "1": VotesRecipe(records_per_member=100, strength=0.1),  # agt up to 0.14
    "2": VotesRecipe(records_per_member=55, strength=0.03),  # agt 0.15
    "3": VotesRecipe(records_per_member=67, strength=0.03),  # agt 0.16 and 0.17
    "4": VotesRecipe(records_per_member=67, strength=0.03),  # agt from 0.18 on
}
"""Version of the recipe -> ridge regressions of classes on the coded columns of a table.

A run keeps its version and is compared with these numbers of it, so an entry never changes.
"""
PEOPLE_PER_MEMBER = {"1": 0, "2": 0, "3": 0, "4": 5}
"""Version of the recipe -> how many people a member has at least on average, on any data; 0: that
does not count.

People fall to members by hashes. With 5 on average, fewer than 1 % of the members have nobody
(exp(-5)). With 1, a third are empty, and an empty member votes for the first class.
"""
FIRST_VERSION = "1"
"""The version of runs that do not name one."""
CURRENT_VERSION = "4"
"""The version of new runs."""


def votes_recipe(
    *,
    coded_columns: bool,
    ridge: bool,
    numeric: bool,
    counts_label_flips: bool,
    version: str = CURRENT_VERSION,
) -> VotesRecipe:
    """Return the default settings of votes, which depend only on public facts.

    Args:
        coded_columns: features are the columns of a table as agt codes them.
        ridge: members are agt's ridge regressions.
        numeric: labels are numbers, not classes.
        counts_label_flips: one edit changes one label (``relation=flip``).
        version: the version of the recipe, a key of ``VOTES_ON_TABLES``.

    Raises:
        KeyError: this version of agt does not know this version of the recipe.
    """
    on_tables = VOTES_ON_TABLES[version]
    # The numbers of tables were measured for exactly these facts.
    is_measured_table = coded_columns and ridge and not numeric and not counts_label_flips
    recipe = on_tables if is_measured_table else VOTES_ON_OTHER_DATA
    return replace(recipe, people_per_member=PEOPLE_PER_MEMBER[version])
