"""``agt certify person=...``: answers without one person's records, against training without the
person's rows in the table.
"""

from pathlib import Path

import pandas as pd
import pytest

from .conftest import Agt
from .test_sisa import BOXES, MEMBERS, TABLE, write

LINEAR = ("model=linear", "certificate=erm", "training.weight_decay=0.05")
FROM_DATA = tuple(
    "+dataset.numeric={a: null, b: null}" if "numeric" in text else text for text in TABLE
)
VOTES = ("model=linear", "certificate=votes", "ensemble.members=9")
RUNS = {
    "votes": (*TABLE, *VOTES),
    "votes, scaled by the records": (*FROM_DATA, *VOTES),
    "ensemble": (*MEMBERS, "model=linear", "certificate=stability"),
    "boxes": (*TABLE, *BOXES, "training.epochs=3", "training.lr=2", "training.clip=0.5"),
    "minimiser": (*TABLE, *LINEAR),
    "minimiser, scaled by the records": (*FROM_DATA, *LINEAR),
}
ASKED = ("p3", "p10", "p42")


def train(agt: Agt, folder: str, *settings: str) -> Path:
    assert agt("train", *settings, f"hydra.run.dir={folder}").code == 0
    return Path(folder)


def answers(agt: Agt, run: Path) -> dict[str, str]:
    """The answer to each query of queries.csv."""
    record = f"{run}-certified"
    certified = agt("certify", f"run={run}", "inputs=queries.csv", f"hydra.run.dir={record}")
    assert certified.code == 0
    table = pd.read_parquet(Path(record) / "certificates.parquet")
    return dict(zip(table["record_id"].astype(str), table["prediction"], strict=True))


def write_queries(folder: Path) -> None:
    rows = [(f"q{i}", f"s{i}", -1 + i / 20, 0.5 - i / 40 + (i % 7) / 20) for i in range(40)]
    columns = ["id", "person", "a", "b"]
    pd.DataFrame(rows, columns=columns).to_csv(folder / "queries.csv", index=False)


@pytest.mark.parametrize("name", RUNS)
def test_the_letter_says_what_training_without_the_persons_rows_answers(
    agt: Agt, tmp_path: Path, name: str
) -> None:
    write(tmp_path)
    write_queries(tmp_path)
    run = train(agt, "runs/everybody", *RUNS[name])
    before = answers(agt, run)
    asked = (f"run={run}", "inputs=queries.csv", f"person=[{','.join(ASKED)}]", "-q", "--json")
    fields = agt("certify", *asked, "hydra.run.dir=runs/letter").ended(0).json["people"]
    assert [person["person"] for person in fields] == [*ASKED]
    for person in fields:
        write(tmp_path, without=person["person"])
        after = answers(agt, train(agt, f"runs/without-{person['person']}", *RUNS[name]))
        changed = {each["id"]: each["without"] for each in person["changed_queries"]}
        assert person["not_shown"] == 0
        assert person["same"] + person["changed"] == len(before)
        assert changed == {query: after[query] for query in before if after[query] != before[query]}
