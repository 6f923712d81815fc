"""agt audit certificate on runs that a user trained, as they are and as somebody edited them."""

from hashlib import sha256
from pathlib import Path

import pandas as pd
from safetensors.torch import load, save

from agt.store.manifest import Manifest
from agt.training.checkpoint import read_safetensors_header

from .conftest import Agt

LITTLE = (
    "audit.units=15",
    "audit.neighbours=24",
    "audit.bounded=1",
    "audit.queries=8",
    "audit.lines=3",
)


def narrow(run: Path, share: float) -> None:
    """Bring every end of every box nearer to the parameters, and seal the manifest anew."""
    nominal = load((run / "model.safetensors").read_bytes())
    manifest = Manifest.read((run / "manifest.json").read_bytes())
    files = dict(manifest.files)
    for path in (run / "bounds").iterdir():
        box = load(path.read_bytes())
        k = read_safetensors_header(path.read_bytes())["k"]
        narrower = {
            name: (point := nominal[name.split(".", 1)[1]]) + (1 - share) * (end - point)
            for name, end in box.items()
        }
        path.write_bytes(save(narrower, metadata={"k": k}))
        files[f"bounds/{path.name}"] = sha256(path.read_bytes()).hexdigest()
    (run / "manifest.json").write_bytes(Manifest(manifest.command, files).content)


def test_a_run_as_it_is_and_one_whose_boxes_were_narrowed(agt: Agt, trained: Path) -> None:
    said = agt("audit", "certificate", f"run={trained}", *LITTLE, "--json").ended(0)
    told = said.json["audit"]
    assert told["kind"] == "certificate"
    (parameters,) = (each for each in told["findings"] if each["measure"] == "deviation/bound")
    assert parameters["found"] == 1, "neighbours of one step reach the bound"
    narrow(trained, 0.01)
    said = agt(
        "audit", "certificate", f"run={trained}", *LITTLE, "audit.again=false", "--json"
    ).ended(3)
    assert "VIOLATED" in said.err
    said = agt(
        "audit",
        "certificate",
        f"run={trained}",
        "audit.units=0",
        "audit.neighbours=0",
        "audit.bounded=0",
    ).ended(3)
    assert "VIOLATED" in said.err, "the record alone shows it"


def test_data_that_changed_or_is_gone(agt: Agt, tmp_path: Path) -> None:
    rows = pd.DataFrame(
        {"id": range(60), "x": [i / 60 for i in range(60)], "y": [i % 2 for i in range(60)]}
    )
    rows.to_csv(tmp_path / "rows.csv", index=False)
    table = (
        "dataset=table",
        "dataset.path=rows.csv",
        "dataset.label=y",
        "dataset.id=id",
        "+dataset.numeric={x: [0, 1]}",
    )
    small = (
        "training=generic",
        "training.epochs=1",
        "training.momentum=0",
        "certificate=box",
        "kgrid.max=2",
    )
    said = agt("train", *table, *small, "--json", "-q").ended(0)
    run = said.json["run"]
    rows.assign(x=0.5).to_csv(tmp_path / "rows.csv", index=False)
    agt("audit", "certificate", f"run={run}", *LITTLE).ended(2, "44 records")
    (tmp_path / "rows.csv").unlink()
    answers = ("mechanism=randomized_response", "mechanism.eps=1")
    agt("audit", "replay", f"run={run}", *answers).ended(4, "rows.csv")
    assert "rows.csv" in agt("audit", "certificate", f"run={run}", *LITTLE).ended(4).err
    assert not list((tmp_path / "outputs" / "audit").iterdir()), "a refused command leaves nothing"
