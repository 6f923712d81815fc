"""What a tube reaches on the IMDB stand-in, and what its certificates cost.

    python scripts/bench_tube.py reach [--data-dir DIR] [--seeds 3] [--half0 FILE --half1 FILE]
    python scripts/bench_tube.py speed [--data-dir DIR] [--units 256] [--rows 45000] [--exact-units 32] [--repeats 3]

reach: settings chosen by scripts/choose_tube.py on one half of the public rows (its --json output; without files it is run
first) train a network on the 45,000 training reviews; the other half reports accuracy and the k at which half of its rows
are certified. Swapped, and averaged; medians over initialisations. Where features are whitened, it is by all 5,000 public
rows, unlabelled, as in the real run: the rows that report lend it their features, never their labels.

speed: seconds of a step with certificates for every k, by the cheap bound and with exact blocks, against a step of plain
SGD of the same network (PyTorch, autograd, float64 and float32) side by side, in turns. Exact blocks of all units take
--units / --exact-units times what is measured.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import agt_cli  # isort: skip  (first: it tells OpenMP how to wait)
import numpy as np
import torch
from choose_public import SIZE, load
from choose_tube import GOALS, Setting, best, search
from halves import halves
from torch import nn

from agt.data.dataset import Dataset, Records
from agt.facts import void
from agt.models.features import FeatureMap
from agt.models.heads import HeadConfig
from agt.models.tube import TubeModel
from agt.problem import Problem
from agt.problem import Settings as RunSettings
from agt.settings import ComputeConfig, FeaturesConfig, KGridConfig, RelationConfig, TrainingConfig, TubeConfig
from agt.training.ensemble import EnsembleConfig
from agt.tube.norms import Meter
from agt.tube.setting import schedule
from agt.tube.training import look

KMAX = 2000
Chosen = dict[int, tuple[Setting, int]]


def problem_of(dataset: Dataset, setting: Setting, steps: int, seed: int) -> Problem:
    """A run on the training reviews."""
    features = FeaturesConfig(whiten=setting.whiten, public="test" if setting.whiten else None, bias=setting.bias)
    settings = RunSettings(
        model=HeadConfig(hidden=(setting.units,), activation=setting.activation),  # type: ignore[arg-type]
        training=TrainingConfig(
            loss="binary_cross_entropy",
            epochs=steps,
            lr=setting.rate,
            clip=setting.clip,
            decay=0.0,
            lr_min=0.0,
            weight_decay=setting.decay,
            dtype="float32",
            seed=seed,
        ),
        relation=RelationConfig(name="add_remove"),
        kgrid=KGridConfig(max=KMAX),
        compute=ComputeConfig(),
        certificate=TubeConfig(features=features, length=setting.length, spread=setting.spread),
        ensemble=EnsembleConfig(),
        noise=None,
        choices=void("chosen by scripts/choose_tube.py; this run reports"),
    )
    return Problem(dataset, settings)


def chosen(data_dir: Path, file: Path | None, half: int) -> Chosen:
    """Goal -> the setting, and steps, that one half of the public rows chooses."""
    if file is None:
        found = search(data_dir, half, 3)
    else:
        found = {}
        for line in file.read_text().splitlines():
            node = json.loads(line)
            values = np.array([node.pop("accuracy"), node.pop("half")])
            steps = node.pop("steps")
            found[Setting(**node), steps] = values
    return {goal: best(found, goal) for goal in GOALS}


def reported(model: TubeModel, rows: Records) -> tuple[float, float]:
    """(accuracy, the k at which half of the rows are certified)."""
    known = model.certify(rows.features)
    return float((known.prediction == rows.labels).mean()), float(np.median(known.stable_distance))


def reach(asked: argparse.Namespace) -> None:
    """Print the table of what the chosen settings reach."""
    dataset = load(asked.data_dir)
    parts, files = halves(dataset.test), (asked.half0, asked.half1)
    by_half = [chosen(asked.data_dir, file, half) for half, file in enumerate(files)]
    trained: dict[tuple[Setting, int, int], TubeModel] = {}
    print(f"{'goal':>5} {'chosen on':>9} {'seed':>4}  {'setting':<40} {'accuracy':>8} {'half':>6} {'seconds':>8}")
    for goal in GOALS:
        means = []
        for seed in range(asked.seeds):
            found = []
            for half, choice in enumerate(by_half):
                setting, steps = choice[goal]
                started, key = time.perf_counter(), (setting, steps, seed)
                if key not in trained:
                    trained[key] = TubeModel.fit(problem_of(dataset, setting, steps, seed))
                found.append(reported(trained[key], parts[1 - half]))
                words = f"whiten {setting.whiten:g} spread {setting.spread:g} clip {setting.clip:g} steps {steps}"
                numbers = f"{found[-1][0]:>8.4f} {found[-1][1]:>6.0f} {time.perf_counter() - started:>8.1f}"
                print(f"{goal:>5} {half:>9} {seed:>4}  {words:<40} {numbers}", flush=True)
            means.append(np.mean(found, axis=0))
        accuracy, certified = np.median(np.array(means), axis=0)
        words = f"median over {asked.seeds} initialisations of the halves' mean"
        print(f"{goal:>5}   {words}: {accuracy:.4f}, half at k = {certified:.0f}")


def _steps(asked: argparse.Namespace) -> dict[str, Callable[[], object]]:
    """What is timed, by name."""
    dataset = load(asked.data_dir)
    train = dataset.train.take(np.arange(min(asked.rows, len(dataset.train))))
    setting = replace(Setting(), units=asked.units)
    model = TubeModel.untrained(problem_of(dataset, setting, 2, 0), FeatureMap.of(FeaturesConfig(), dataset))
    seen, everyone = replace(train, features=model.phi(train.features)), np.arange(len(train))
    meter, public, weight = Meter(model.setting, model.network), schedule(model.setting)[0][0], model.trained.weight

    def plain(dtype: torch.dtype) -> Callable[[], object]:
        x, y = torch.from_numpy(seen.features).to(dtype), torch.from_numpy(seen.labels).to(dtype)[:, None]
        hidden = nn.Linear(x.shape[1], asked.units, bias=False, dtype=dtype)
        outputs = model.network.outputs.to(dtype)

        def step() -> None:
            loss = nn.functional.binary_cross_entropy_with_logits(torch.tanh(hidden(x)) @ outputs.T, y)
            hidden.zero_grad()
            loss.backward()
            with torch.no_grad():
                hidden.weight -= 1e-6 * hidden.weight.grad  # type: ignore[operator]

        return step

    return {
        "plain SGD, float64": plain(torch.float64),
        "plain SGD, float32": plain(torch.float32),
        "certificates, cheap bound": lambda: look(meter, weight, seen, everyone, public, exact=False),
        "sum of x x^T, once a run": lambda: meter.gram(seen, everyone),
        f"exact blocks of {asked.exact_units} units": lambda: meter.exact(
            weight, seen, everyone, public.radius, range(0, asked.exact_units)
        ),
    }


def speed(asked: argparse.Namespace) -> None:
    """Print seconds and ratios."""
    timed = _steps(asked)
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(asked.repeats + 1):
        for name, work in timed.items():
            started = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(values[1:]) for name, values in seconds.items()}
    base = medians["plain SGD, float64"]
    print(
        f"agt {agt_cli.__version__}: {asked.rows} rows, {asked.units} units; seconds, medians of {asked.repeats} in turns"
    )
    for name, value in medians.items():
        print(f"{name:<32} {value:>8.3f}   {value / base:>6.2f} plain steps")
    whole = medians[f"exact blocks of {asked.exact_units} units"] * asked.units / asked.exact_units
    print(f"{'exact blocks of all units':<32} {whole:>8.1f}   {whole / base:>6.0f} plain steps (extrapolated)")


def main() -> None:
    """Run one of the two."""
    parser = argparse.ArgumentParser(description="what a tube reaches, and what its certificates cost")
    parser.add_argument("table", choices=("reach", "speed"))
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--half0", type=Path)
    parser.add_argument("--half1", type=Path)
    parser.add_argument("--units", type=int, default=256)
    parser.add_argument("--rows", type=int, default=SIZE)
    parser.add_argument("--exact-units", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    {"reach": reach, "speed": speed}[asked.table](asked)


if __name__ == "__main__":
    main()
