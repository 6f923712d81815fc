"""Private prediction on the IMDB stand-in: the numbers that it must reach, each an exact expectation, side by side.

    AGT_DATA=FOLDER python scripts/bench_prediction.py [--json] [--only NAME ...]

FOLDER holds imdb_minilm.npz (45,000 training records, 5,000 test records). Accuracies are on the test records and exact
expectations over a mechanism's coin flips; only DP-SGD is sampled (three seeds). What a row reaches is what it must reach,
never an input to it.

| row       | what                                                                                         |
|-----------|----------------------------------------------------------------------------------------------|
| nominal   | the linear head without noise                                                                |
| per_query | pure eps = 0.1 per query, randomized_response; smooth_cauchy and global_sensitivity beside it |
| margin    | total eps = 10, delta = 1e-5, 1,000 queries, gaussian_margin                                  |
| weights   | weights released once, total eps = 1, delta = 1e-5, unlimited queries                         |
| private   | the same at total eps = 0.1, with settings chosen for it on public rows                       |
| dpsgd     | DP-SGD (Opacus) on the same head and features at the same totals, tuned on the test records    |
| box       | the MLP's boxes, k = 0..63: queries answered within a point of noise-free at total eps = 10     |
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from torch import nn

from agt.mechanisms.catalogue import MECHANISMS
from agt.mechanisms.guarantee import GaussianDP, PureDP
from agt.mechanisms.planning import Budget, Evidence, afford, answerable, weights_accuracy
from agt.mechanisms.weights import weights_budget
from agt.models.linear import LinearModel
from agt_cli.report.console import Console
from agt_cli.runs.compose import composed
from agt_cli.runs.model import fit
from agt_cli.runs.prepare import prepare, settings_of

DELTA = 1e-5
QUIET = Console(quiet=True)
Row = dict[str, Any]
DPSGD = {  # total eps -> (epochs, lr, clip): the best of a small search on the test records, so these are flattered
    0.1: (30, 8.0, 0.5),
    0.5: (60, 16.0, 0.5),
    1.0: (60, 16.0, 0.5),
    10.0: (60, 16.0, 1.0),
}


@cache
def trained(*overrides: str) -> tuple[Any, Any, Evidence]:
    """(prepared data, model, evidence on the test records) of one configuration of agt train."""
    settings = settings_of(composed("train", overrides))
    prepared = prepare(settings, QUIET)
    model = fit(prepared, settings, QUIET)
    test = prepared.dataset.test
    certificates = model.certify(test.features)
    return prepared, model, Evidence.of(certificates, test.labels, prepared.classes, "distance")


def linear(name: str = "imdb_linear") -> tuple[Any, LinearModel, Evidence]:
    """The linear head under stability certificates."""
    prepared, model, evidence = trained(f"experiment={name}")
    assert isinstance(model, LinearModel)
    return prepared, model, evidence


def released(name: str, eps: float) -> tuple[float, float]:
    """(expected accuracy of released weights, the same head's without noise)."""
    prepared, model, evidence = linear(name)
    test = prepared.dataset.test
    accuracy = weights_accuracy(model, test.features, test.labels)
    assert accuracy is not None
    return accuracy(weights_budget(eps, DELTA).mu), evidence.accuracy


def row(name: str, what: str, value: float, reach: str, reached: bool | None, **more: Any) -> Row:
    return {"row": name, "what": what, "value": value, "reach": reach, "reached": reached, **more}


def bench_nominal() -> list[Row]:
    _, _, evidence = linear()
    median = float(np.median(evidence.distance))
    value = evidence.accuracy
    return [row("nominal", "accuracy without noise", value, ">= .80", value >= 0.80, median_distance=median)]


def bench_per_query() -> list[Row]:
    _, _, evidence = linear()
    at = {
        name: evidence.expected(MECHANISMS[name].of(PureDP(0.1), 2))
        for name in ("randomized_response", "smooth_cauchy", "global_sensitivity", "inverse_sensitivity")
    }
    value, least = at.pop("randomized_response"), evidence.accuracy - 0.01
    return [
        row("per_query", "pure eps = .1 per query, randomized_response", value, f">= {least:.4f}", value >= least, **at)
    ]


def bench_margin() -> list[Row]:
    _, _, evidence = linear()
    budget, least = Budget(10.0, DELTA, 1000), evidence.accuracy - 0.01
    at = {name: evidence.expected(afford(MECHANISMS[name], budget, 2)) for name in ("gaussian_margin", "smooth_cauchy")}
    value = at["gaussian_margin"]
    what = "total eps = 10, 1,000 queries, gaussian_margin"
    return [row("margin", what, value, f">= {least:.4f}", value >= least, smooth_cauchy=at["smooth_cauchy"])]


def bench_weights() -> list[Row]:
    value, nominal = released("imdb_linear", 1.0)
    least = nominal - 0.003
    what = "weights released, total eps = 1, unlimited queries"
    return [row("weights", what, value, f">= {least:.4f}", value >= least, noise_free=nominal)]


def bench_private() -> list[Row]:
    value, nominal = released("imdb_linear_tight", 0.1)
    least = nominal - 0.01
    what = "weights released, total eps = .1, settings chosen on public rows"
    return [row("private", what, value, f">= {least:.4f}", value >= least, noise_free=nominal)]


def bench_dpsgd() -> list[Row]:
    """DP-SGD and our best released weights at each total, on the features of our best configuration."""
    from agt_cli.papers.baselines.dpsgd import DpSgd
    from agt_cli.papers.baselines.released import Bench

    found = []
    names = ("imdb_linear", "imdb_linear_tight", "imdb_linear_whitened")
    for eps, (epochs, lr, clip) in DPSGD.items():
        ours, name = max((released(name, eps)[0], name) for name in names)
        for features in dict.fromkeys(("imdb_linear", name)):
            prepared, model, _ = linear(features)
            train, test = prepared.dataset.train, prepared.dataset.test
            phi, queries = (model.phi(part.features).astype(np.float32) for part in (train, test))
            accuracies = []
            for seed in range(3):
                head = nn.Sequential(nn.Linear(phi.shape[1], 1, bias=False))
                nn.init.zeros_(head[0].weight)
                bench = Bench(head, 2, replace(train, features=phi), 45_000, model.settings.training)
                weights = DpSgd(batch=4000, epochs=epochs, lr=lr, clip=clip).fit(bench, eps, DELTA, seed)
                accuracies.append(float((bench.labels(weights, queries) == test.labels).mean()))
            value = float(np.mean(accuracies))
            found.append(
                row("dpsgd", f"DP-SGD, total eps = {eps:g}, features of {features}", value, f"ours ({name}): {ours:.4f}",
                    ours >= value, ours=ours, least=min(accuracies), greatest=max(accuracies))
            )  # fmt: skip
    return found


def bench_box() -> list[Row]:
    started = time.perf_counter()
    _, _, evidence = trained("experiment=imdb_minilm", "kgrid=dense", "kgrid.max=63")
    seconds = time.perf_counter() - started
    least = evidence.accuracy - 0.01
    counts = {
        name: answerable(evidence, MECHANISMS[name], 10.0, DELTA, least)
        for name in ("gaussian_margin", "randomized_response", "smooth_cauchy")
    }
    ours, theirs = max(counts["gaussian_margin"], counts["randomized_response"]), counts["smooth_cauchy"]
    what = "queries at total eps = 10 within a point of noise-free"
    reached = ours >= 10 * theirs and ours > 0
    return [row("box", what, ours, f">= 10 x {theirs}", reached, accuracy=evidence.accuracy, seconds=seconds, **counts)]


BENCHES: dict[str, Callable[[], list[Row]]] = {
    name.removeprefix("bench_"): function for name, function in list(globals().items()) if name.startswith("bench_")
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--only", nargs="+", choices=list(BENCHES), default=list(BENCHES))
    options = parser.parse_args()
    rows = []
    for name in options.only:
        for entry in BENCHES[name]():
            rows.append(entry)
            if not options.json:
                more = ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in list(entry.items())[5:])
                mark = {True: "yes", False: "NO", None: "-"}[entry["reached"]]
                value = f"{entry['value']:.4f}" if isinstance(entry["value"], float) else str(entry["value"])
                print(
                    f"{entry['row']:<10} {entry['what']:<62} {value:>8}  {entry['reach']:<34} {mark:<4} {more}", flush=True
                )
    if options.json:
        print(json.dumps({"rows": rows, "mu_at_eps_1": GaussianDP(weights_budget(1.0, DELTA).mu).mu}))


if __name__ == "__main__":
    main()
