"""Relations, kinds of datasets and certificates, any two together: a run trains, or is refused
by the relation's name.
"""

from itertools import combinations, product
from pathlib import Path

import pytest

from agt.errors import ConfigError
from agt_cli import config_files
from agt_cli.choices import with_votes_recipe
from agt_cli.composing import compose_command
from agt_cli.report.console import Console
from agt_cli.runs.prepare import fit, prepare, read_settings_and_learner

from .test_datasets import EXAMPLES

RELATIONS = list(config_files.options_of_group("relation"))
DATASETS = [name for name, (group, _) in EXAMPLES.items() if name == group]
CERTIFICATES = {
    "box": ("model=linear", "training=generic", "training.batch.count=1", "training.epochs=2"),
    "erm": ("model=linear", "training=recipe"),
    "removal": ("model=linear", "training=recipe"),
    "stability": ("model=linear", "training=recipe"),
    "votes": ("ensemble.members=3",),
}
SIZES = {"digits": 270, "medmnist": 60}


def certificate_of(at: int) -> str:
    return [*CERTIFICATES][at % len(CERTIFICATES)]


# which relies on how a dataset names its records
FEW = [("flip", name, "votes") for name in DATASETS]
FEW += [
    (name, DATASETS[at % len(DATASETS)], certificate_of(2 * at))
    for at, name in enumerate(RELATIONS)
]
PAIRS = [
    (relation, name, certificate_of(row + column))
    for (row, relation), (column, name) in product(enumerate(RELATIONS), enumerate(DATASETS))
]
"""Each relation with each dataset; and as there are more of both than certificates, each
certificate with each of them.
"""


def why_refused(relation: str, name: str, certificate: str, folder: Path) -> str:
    """The words in which a combination is refused; empty: it trains."""
    example = EXAMPLES[name][1]
    words = [
        f"relation={relation}",
        f"dataset={name}",
        f"certificate={certificate}",
        *CERTIFICATES[certificate],
    ]
    words += ["relation.radius=0.01"] * (relation == "perturb")
    config = compose_command(
        "train", [*words, "kgrid.max=1", "compute.kernel=reference"], complete=False
    )
    dataset = {**config["dataset"], **example.settings}
    if "blobs" not in name:
        dataset["declared_size"] = SIZES.get(name, 45)
    if example.file:
        dataset["path"] = str(example.write(folder, example.columns))
    console = Console(quiet=True)
    try:
        settings = read_settings_and_learner(with_votes_recipe({**config, "dataset": dataset}))
        fit(prepare(settings, console), settings, console)
    except ConfigError as error:
        return str(error)
    return ""


def test_every_certificate_is_tried() -> None:
    assert set(CERTIFICATES) == set(config_files.options_of_group("certificate"))


def test_any_two_of_them_meet() -> None:
    for one, other in combinations(range(3), 2):
        ways = (RELATIONS, DATASETS, list(CERTIFICATES))
        assert {(case[one], case[other]) for case in PAIRS} == set(product(ways[one], ways[other]))


@pytest.mark.parametrize(
    ("relation", "name", "certificate"),
    [*FEW, *(pytest.param(*case, marks=pytest.mark.sweep) for case in PAIRS if case not in FEW)],
)
def test_a_relation_trains_or_is_refused_by_its_name(
    relation: str, name: str, certificate: str, tmp_path: Path
) -> None:
    why = why_refused(relation, name, certificate, tmp_path)
    assert not why or f"relation={relation}" in why
    assert not why or relation != "add_remove", (
        "every certificate covers what is usual, for every kind of data"
    )
