"""The mutants of an earlier commit that tests/mutants.yaml has no more, each with the feature that
it went with.

    python scripts/mutants_gone.py REV

Those that are still there must break the same; a killer may have moved to another file. Exit code
1: a mutant went without a feature that went, or says another thing that it breaks, or has lost a
killer. ``WENT_WITH`` says what was decided.
"""

import argparse
import subprocess
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
MUTANTS = "tests/mutants.yaml"
WENT_WITH = {
    "audit-cost-of-gaussian-answers": "agt audit mechanism: what answers cost",
    "audit-numbers-published": "agt audit mechanism: the numbers of a run",
    "audit-single-label": "agt audit prediction: the rules of the ledger",
    "published-as-the-page-says": "agt verify of the sentences of report.md",
    "slack-uncharged": "features.map=fourier, features known up to rounding",
    "slices-*": "ensemble.slices",
    "trials-*": "private tuning",
    "tube-*": "certificate=tube",
}
"""Name of a mutant, or a pattern of names (``tube-*``) -> the feature that was removed."""
KILLERS_WENT = {
    "test_an_audit_as_it_is_called_works_out_what_answers_cost": (
        "agt audit mechanism: what answers cost"
    ),
    "test_without_a_run_by_its_own_settings": "agt audit mechanism: what answers cost",
    "test_a_vector_that_is_none_or_a_matrix_without_numbers_stops_the_run": "certificate=tube",
    "test_features_that_are_not_known_to_the_last_bit_are_in_the_bound": (
        "features known up to rounding"
    ),
}
"""A test that killed a mutant which is still there -> the feature that the test went with;
others kill it now.
"""

Mutants = dict[str, dict[str, Any]]


def read_mutants(text: str) -> Mutants:
    """Name -> the entry of it in a text of tests/mutants.yaml."""
    return {entry["name"]: entry for entry in yaml.safe_load(text)}


def mutants_at(revision: str) -> Mutants:
    """The mutants of a commit.

    Raises CalledProcessError: git knows no such commit, or it has no such file.
    """
    command = ["git", "show", f"{revision}:{MUTANTS}"]
    return read_mutants(
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    )


def feature_of(name: str) -> str:
    """The feature that a mutant went with; empty: none that is known."""
    return next((feature for pattern, feature in WENT_WITH.items() if fnmatch(name, pattern)), "")


def functions(mutant: dict[str, Any]) -> set[str]:
    """The names of a mutant's killers, without their files and cases."""
    return {killer.partition("[")[0].rpartition("::")[2] for killer in mutant["killers"]}


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What a mutant that is still there says otherwise, in words."""
    found = [
        f"{key} is now {after[key]!r}"
        for key in ("guarantee", "breaks")
        if before[key] != after[key]
    ]
    lost = functions(before) - functions(after) - KILLERS_WENT.keys()
    return found + [f"lost the killer {name}" for name in sorted(lost)]


def main() -> int:
    """Print a line for each mutant that went or changed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision", help="the commit whose mutants are looked for")
    revision = parser.parse_args().revision
    try:
        earlier = mutants_at(revision)
    except subprocess.CalledProcessError as error:
        parser.error(f"{revision}: {error.stderr.strip()}")
    present = read_mutants((ROOT / MUTANTS).read_text(encoding="utf-8"))
    gone = [name for name in earlier if name not in present]
    unexplained = [name for name in gone if not feature_of(name)]
    for name in gone:
        print(f"{name:40} {feature_of(name) or 'NO FEATURE THAT WENT'}")
    changed = {
        name: words
        for name in earlier
        if name in present and (words := changes(earlier[name], present[name]))
    }
    for name, words in changed.items():
        print(f"{name:40} {'; '.join(words)}")
    new = len(present.keys() - earlier.keys())
    print(
        f"{len(earlier)} mutants before, {len(present)} now: {len(gone)} went, {new} are new, "
        f"{len(changed)} changed"
    )
    return bool(unexplained or changed)


if __name__ == "__main__":
    raise SystemExit(main())
