"""Which facts each condition rests on, for every kind of model, relation and dataset, as
``conditions.yaml`` lists them.

None may be lost, or come to stand better, unless somebody changes the list and says why.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import agt
import agt_cli
from agt.certificates.conditions import Condition, symmetric_fact
from agt.data.in_memory import Declared, dataset_from_arrays
from agt.documents import LAST_READER
from agt.errors import Superseded
from agt.fact_sentences import BROKEN_BY, TEMPLATES
from agt.facts import Fact
from agt.models.box import box_facts
from agt.models.description import describe, read_problem
from agt.relations import RELATIONS
from agt.relations.names import ENTRIES
from agt.settings import KGridConfig, RelationConfig
from contract import test_datasets, test_models

LISTED: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_name("conditions.yaml").read_text(encoding="utf-8")
)
HOME = Path(__file__).parents[2]
OF_OTHERS = {
    "own_words",
    "declared_in_own_words",
    "initial_parameters_public",
}
"""Codes of what earlier versions recorded, and of what somebody else's data set says: no part of
agt has them.
"""


def listed(facts: Iterable[Fact]) -> list[str]:
    """``STANDING CODE: NAMES OF VALUES`` of each fact."""
    return [
        f"{fact.standing} {fact.code}: {' '.join(sorted(fact.values))}".removesuffix(": ")
        for fact in facts
    ]


def of_conditions(conditions: Iterable[Condition]) -> dict[str, list[str]]:
    return {condition.letter: listed(condition.evidence.facts) for condition in conditions}


def of_relation(name: str) -> dict[str, list[str]]:
    """What settings alone decide of a model with boxes: with a dense grid and exact products,
    and without.
    """
    relation = RelationConfig(name, radius=0.25 if ENTRIES[name].takes_radius else None)
    facts = [
        symmetric_fact(relation),
        *box_facts(relation, KGridConfig(max=3), "exact", "float64").values(),
    ]
    others = box_facts(relation, KGridConfig(values=(0, 1, 4)), "rump", "float64").values()
    return {"best": listed(facts), "worst": listed(others)}


def of_dataset(name: str, folder: Path) -> dict[str, list[str]]:
    dataset = test_datasets.loaded(name, folder)
    size = () if dataset.size is None else (dataset.size,)
    evidence = {
        "selection": dataset.selection.facts,
        "preprocessing": dataset.preprocessing.facts,
        "size": size,
    }
    return {part: listed(facts) for part, facts in evidence.items()}


@test_models.examples
def test_conditions_of_a_model_rest_on_the_facts_that_are_listed(name: str) -> None:
    assert of_conditions(test_models.fitted(name).conditions) == LISTED["models"][name]


@pytest.mark.parametrize("name", RELATIONS)
def test_conditions_under_a_relation_rest_on_the_facts_that_are_listed(name: str) -> None:
    assert of_relation(name) == LISTED["relations"][name]


@test_datasets.every
def test_a_dataset_rests_on_the_facts_that_are_listed(name: str, tmp_path: Path) -> None:
    assert of_dataset(name, tmp_path) == LISTED["datasets"][name]


def test_arrays_of_which_nothing_is_declared_rest_on_nothing_that_is_held() -> None:
    example = test_models.EXAMPLES["box"]
    dataset, _ = dataset_from_arrays(example.x, example.y, Declared(), units=example.y)
    assert listed((*dataset.selection.facts, *dataset.preprocessing.facts)) == LISTED["undeclared"]


def codes_in_source() -> Iterator[str]:
    """Every text that is a value in a file of agt's packages, the room of templates aside."""
    folders = [Path(str(package.__file__)).parent for package in (agt, agt_cli)]
    for folder in (*folders, HOME / "experiments"):
        for path in folder.rglob("*.py"):
            if path.name != "fact_sentences.py":
                tree = ast.parse(path.read_text(encoding="utf-8"))
                yield from (
                    node.value
                    for node in ast.walk(tree)
                    if isinstance(node, ast.Constant) and node.value in TEMPLATES
                )


def test_every_sentence_about_a_fact_has_somebody_who_says_it() -> None:
    assert {*codes_in_source()} | OF_OTHERS == {*TEMPLATES}
    assert BROKEN_BY.keys() <= TEMPLATES.keys()


@test_models.examples
def test_a_model_that_was_saved_with_facts_as_text_is_refused(name: str) -> None:
    """Versions up to 0.8.0 wrote format 1."""
    problem = test_models.fitted(name).model.problem
    node = {**describe(problem), "format": 1}
    with pytest.raises(Superseded, match=LAST_READER):
        read_problem(node, problem.settings.compute)
