"""Exact against Rump's interval products on the blobs, from the same initialisations: certified test points per k.

    python scripts/compare_products.py [--inits 10] [--ks 20 50 100] [--relation paper_privacy] [--json]

Prints, per dataset and k, each product's median and range over the initialisations, and whether exact was at least Rump
on every one of them. The shared facts it is compared with are one initialisation's (seed 0) of the published code.
"""

import argparse
import json
import statistics
from collections.abc import Sequence

import numpy as np

from agt.certificates.box import certify
from agt.data.blobs import Blobs
from agt.models.heads import HeadConfig
from agt.settings import KGridConfig, RelationConfig, TrainingConfig
from agt.training.loop import train
from agt.training.recipe import Recipe

SETS = {"separable": Blobs(center=1.25, std=0.35), "overlapping": Blobs(center=1.0, std=0.75)}
REPORTED = {  # Rump / exact, seed 0 of another code's initialisation
    ("separable", 50): "1 / 1",
    ("separable", 100): "0 / .923",
    ("overlapping", 20): ".943 / .948",
    ("overlapping", 50): ".325 / .785",
    ("overlapping", 100): "0 / 0",
}


def certified(source: Blobs, relation: str, product: str, seed: int, ks: Sequence[int]) -> np.ndarray:
    """[K] certified fraction of the test points at each k."""
    data = source.load()
    training = TrainingConfig(
        loss="cross_entropy", epochs=4, lr=2.0, decay=0.6, lr_min=1e-3, clip=0.06, product=product, seed=seed
    )
    head = HeadConfig(hidden=(128,)).build((6,), 2, training)
    grid, rule = KGridConfig(values=tuple(ks)), RelationConfig(name=relation)
    recipe = Recipe(2, training, rule, grid, declared_size=data.declared_size)
    return certify(head, recipe, train(head, recipe, data.train), data.test.features).certified.mean(axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inits", type=int, default=10)
    parser.add_argument("--ks", type=int, nargs="+", default=[20, 50, 100])
    parser.add_argument("--relation", default="paper_privacy")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for name, source in SETS.items():
        exact, rump = (
            np.array([certified(source, options.relation, p, s, options.ks) for s in range(options.inits)])
            for p in ("exact", "rump")
        )
        for i, k in enumerate(options.ks):
            rows.append(
                {
                    "blobs": name,
                    "k": k,
                    "exact": summary(exact[:, i]),
                    "rump": summary(rump[:, i]),
                    "exact >= rump": f"{int((exact[:, i] >= rump[:, i]).sum())} of {options.inits}",
                    "reported (rump / exact)": REPORTED.get((name, k), "-"),
                }
            )
    if options.json:
        print(json.dumps(rows))
        return
    print(f"relation {options.relation}, {options.inits} initialisations: certified test points, median [least, greatest]")
    widths = {key: max(len(key), *(len(str(row[key])) for row in rows)) for key in rows[0]}
    for row in [{key: key for key in widths}, *rows]:
        print("  ".join(str(row[key]).ljust(width) for key, width in widths.items()))


def summary(values: np.ndarray) -> str:
    return f"{statistics.median(values):.3f} [{values.min():.3f}, {values.max():.3f}]"


if __name__ == "__main__":
    main()
