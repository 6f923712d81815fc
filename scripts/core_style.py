"""What a reader of the core meets: a line for each file, and the sums.

    python scripts/core_style.py [ROOM ...]        the core by default; a room is a folder or a file

| column     | what is counted                                                                   |
|------------|-----------------------------------------------------------------------------------|
| statements | all of them                                                                       |
| dense      | simple statements of more than 16 nodes of the syntax tree, docstrings left out   |
| tuples     | assignments of a tuple to a tuple, swaps left out                                 |
| nested     | comprehensions inside of comprehensions                                           |
| f-if       | conditional expressions inside of f-strings                                       |
| words      | of the module's docstring                                                         |
| names      | names of ``REPLACED`` that are still defined                                      |
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

CORE = (
    "agt/bounds",
    "agt/kernels",
    "agt/relations",
    "agt/training",
    "agt/certificates",
    "agt/mechanisms",
    "agt/models",
)
DENSE_NODES = 16
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
COMPOUND = (
    ast.FunctionDef,
    ast.ClassDef,
    ast.If,
    ast.For,
    ast.While,
    ast.With,
    ast.Try,
    ast.Match,
)
# Names that a reader misunderstood, and what the core says instead.
REPLACED = {
    "seen": "evidence",
    "told": "on_piece",
    "kept": "stored",
    "settled": "resolve_recipe",
    "by_edit": "counting_single_edits",
    "farthest": "max_distance",
    "apart": "is_separate, distance",
    "whole": "to_integers, sum_exactly",
    "REACH": "total_influence",
    "Watch": "OverflowMask",
    "watched": "recording_overflow",
    "take": "update, select, apply_entry, acquire",
    "shelf": "reader, writer",
    "bring": "normalise_rows",
    "falling": "exp_of_minus",
    "pulls": "label_influence",
    "Pulled": "MemberInfluence",
    "Room": "MarginBounds",
    "room_of": "bound_margins",
    "look": "curvature_at",
    "Meter": "CurvatureMeter",
    "Weighing": "WeightsOption",
    "weights_on_offer": "weights_options",
    "Offer": "PlannedRelease",
    "gone": "removed",
    "come": "added",
    "comers": "added",
    "story": "description",
    "rests": "pinned_entries",
    "rests_on": "required_conditions",
    "RESTS_ON": "required_conditions",
    "Sums": "BoundSums",
    "SumNoises": "SumNoiseScales",
    "Scaled": "ScaledStatistics",
    "Centre": "ReleasedCentre",
    "grounds": "evidence",
    "Grounds": "Evidence",
    "and_": "with_facts",
    "weaker": "weaker_conditions",
    "words": "sentences, text",
    "place": "index",
    "at": "index",
    "home": "shard_of",
    "where": "index",
    "most": "maximum",
    "least": "minimum",
    "some": "chunk",
    "each": "item",
    "few": "chunk",
    "many": "count",
    "BLOCK": "what it is of, and its unit",
    "FORMAT": "what it is the format of",
    "ROWS": "what it is of, and its unit",
    "PIECE": "what it is of, and its unit",
    "TINY": "UNDERFLOW_ALLOWANCE",
    "UP": "what it is",
    "_TAIL": "what it is",
    "QUANTA": "quanta of what",
    "head_of": "releasable_head",
    "problem_of": "a verb",
    "dataset_of": "a verb",
    "part_of": "a verb",
    "kind_of": "a verb",
    "bare": "without_records",
    "with_shard": "with_training_records",
    "torn": "inconsistent_distances",
    "aimed": "probe_boundaries",
    "stay": "features_only",
    "late": "out_of_time",
    "cut": "timed_out",
    "asked": "requested",
    "wanted": "requested",
    "left": "remaining",
    "short": "shortfall",
    "willing": "forced",
    "LOT": "RANDOM_GUESSING",
    "veiled": "encrypt_unit_sample",
    "drawing": "paying_for_noise",
    "stands_for": "equivalent_gaussian",
    "ALIKE": "constants_unchanged",
    "Sight": "AdversaryView",
}


def is_dense(statement: ast.stmt) -> bool:
    """Return whether a simple statement has more nodes than a reader takes in at once."""
    if isinstance(statement, COMPOUND):
        return False
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return False
    return sum(1 for _ in ast.walk(statement)) > DENSE_NODES


def assigns_tuple(statement: ast.stmt) -> bool:
    """Return whether a statement assigns several unrelated values at once; a swap is none."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Tuple):
        return False
    target = statement.targets[0]
    if not isinstance(target, ast.Tuple):
        return False
    assigned = {ast.unparse(item) for item in target.elts}
    return assigned != {ast.unparse(item) for item in statement.value.elts}


def nests_comprehensions(node: ast.AST) -> bool:
    """Return whether a comprehension has another one inside."""
    if not isinstance(node, COMPREHENSIONS):
        return False
    return any(inner is not node and isinstance(inner, COMPREHENSIONS) for inner in ast.walk(node))


def chooses_in_text(node: ast.AST) -> bool:
    """Return whether an f-string has a conditional expression inside."""
    if not isinstance(node, ast.JoinedStr):
        return False
    return any(isinstance(inner, ast.IfExp) for inner in ast.walk(node))


def defined_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a file defines: functions, classes, arguments, fields, variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def counts_of(path: Path) -> tuple[list[int], set[str]]:
    """Return (the columns of a file from statements to words, its names of ``REPLACED``)."""
    tree = ast.parse(path.read_text())
    nodes = list(ast.walk(tree))
    statements = [node for node in nodes if isinstance(node, ast.stmt)]
    columns = [
        len(statements),
        sum(map(is_dense, statements)),
        sum(map(assigns_tuple, statements)),
        sum(map(nests_comprehensions, nodes)),
        sum(map(chooses_in_text, nodes)),
        len((ast.get_docstring(tree) or "").split()),
    ]
    names = {name for name in defined_names(tree) if name.lstrip("_") in REPLACED}
    return columns, names


def main(rooms: list[str]) -> None:
    """Print the table."""
    places = [Path(room) for room in rooms or CORE]
    paths = [
        path for place in places for path in ([place] if place.is_file() else place.rglob("*.py"))
    ]
    print("statements dense tuples nested f-if words names")
    totals = [0] * 6
    longest = 0
    for path in sorted(paths):
        columns, names = counts_of(path)
        totals = [total + column for total, column in zip(totals, columns, strict=True)]
        longest = max(longest, columns[-1])
        numbers = " ".join(f"{column:5}" for column in columns)
        print(f"{numbers}  {path}  {' '.join(sorted(names))}")
    count = max(totals[0], 1)
    print(
        f"in 1,000 statements: dense {1000 * totals[1] / count:.0f}, "
        f"tuples {1000 * totals[2] / count:.0f}; nested {totals[3]}; f-if {totals[4]}; "
        f"words of a module {totals[5] / max(len(paths), 1):.0f}, longest {longest}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
