"""From a table of loans to private answers on a ledger.

Run it with `python examples/credit_table.py [FOLDER]`. It writes ledgers/loans.ledger into the
folder (default: the current one). The loans are synthetic, because a script cannot bring a bank's
table with it. Replace `make_loans` by `pd.read_csv`.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import agt

# Everything here must be public knowledge: none of it may be read off the records.
COLUMNS = agt.Columns(
    numeric={"income": (0, 200_000), "debt": (0, 100_000), "age": (18, 100)},
    categorical={"housing": ("own", "rent", "other")},
    missing="indicator",
)
DECLARED = agt.Declared(classes=["no", "yes"], size=8_000, settings=True, ids=True)


def make_loans(rows: int, seed: int) -> pd.DataFrame:
    """Return synthetic loans, one row for each customer, with the label `default`."""
    rng = np.random.default_rng(seed)
    income = rng.gamma(4.0, 12_000, rows).round()
    debt = rng.gamma(2.0, 9_000, rows).round()
    housing = rng.choice(["own", "rent", "other"], rows, p=[0.5, 0.4, 0.1])
    risk = (debt - 0.5 * income) / 6_000 + 0.8 * (housing == "rent")
    default = rng.random(rows) < 1 / (1 + np.exp(-risk))
    return pd.DataFrame(
        {
            "customer": [f"c{row:06d}" for row in rng.permutation(10 * rows)[:rows]],
            "income": income,
            "debt": debt,
            "age": rng.integers(18, 90, rows),
            "housing": housing,
            "default": np.where(default, "yes", "no"),
        }
    )


def main(folder: Path) -> None:
    """Train, plan a budget, release, and show what the ledger has left."""
    loans = make_loans(8_331, seed=0)
    # The new customers are not among the training records.
    training, new_customers = loans[:8_131], loans[8_131:]

    # One budget for everything that is ever released about these customers.
    path = folder / "ledgers" / "loans.ledger"
    if path.exists():
        ledger = agt.Ledger.open(path)
    else:
        ledger = agt.Ledger.create(path, unit="one customer", eps=2, delta=1e-5)

    # The weights are released once, with noise, and answer any number of customers.
    private = agt.PrivateClassifier(epsilon=1, declared=DECLARED, columns=COLUMNS, ledger=ledger)
    private.fit(training, training["default"], units=training["customer"])

    answers = private.predict(new_customers)
    accuracy = np.mean(answers == new_customers["default"])
    majority = (training["default"] == "no").mean()
    print(f"accuracy on 200 new customers: {accuracy:.3f}; always 'no': {majority:.3f}")
    print(*private.guarantee_, sep="\n")
    print(ledger)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
