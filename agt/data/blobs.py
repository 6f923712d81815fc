"""Two Gaussian clouds in the plane, the papers' synthetic example (001 Fig 3, 000 Fig 1;
papers.md).
"""

from pathlib import Path

import numpy as np

from agt.data.blobs_settings import BlobsSettings
from agt.data.column_reader import ColumnReader
from agt.data.dataset import Dataset, Plane
from agt.data.files import open_columns, same_shape
from agt.data.ids import default_ids
from agt.data.labels import query_labels
from agt.data.meanings import label_free_facts
from agt.data.queries import queries
from agt.data.records import Records, records
from agt.data.target import ClassTarget
from agt.facts import evidence, proved
from agt.settings import schema

CLASSES = ("left", "right")


def lift(points: np.ndarray) -> np.ndarray:
    """Return the features x1, x2, x1^2, x2^2, x1^3, x2^3 [n, 6] of points [n, 2].

    Each point is lifted on its own.
    """
    points = np.asarray(points, dtype=np.float64)
    with np.errstate(over="ignore"):  # an infinite feature is refused by name
        return np.concatenate([points, points**2, points**3], axis=1)


@schema
class Blobs(BlobsSettings):
    """Isotropic Gaussians around -(center, center), class 0, and +(center, center), class 1;
    synthetic.
    """

    def load(self) -> Dataset:
        """Draw both splits from the public seed."""
        rng = np.random.default_rng(self.seed)
        train_points, train_labels = self._draw(rng, self.n_train)
        test_points, test_labels = self._draw(rng, max(2, round(self.test_fraction * self.n_train)))
        return Dataset(
            name=f"blobs p={self.center:g} s={self.std:g} (synthetic)",
            target=ClassTarget(CLASSES),
            train=self._records(train_points, train_labels),
            test=self._records(test_points, test_labels),
            label_free=self.label_free,
            declared_size=self.n_train,
            scaling={
                "features": "x1, x2, x1^2, x2^2, x1^3, x2^3",
                "center": self.center,
                "std": self.std,
            },
            selection=evidence(
                proved("generated"),
                *label_free_facts(self.label_free, False),
            ),
            preprocessing=evidence(proved("polynomials_fixed")),
            size=proved("size_of_generator"),
            plane=Plane(train_points, lift),
        )

    def load_queries(self, path: Path) -> Records:
        """Read points from columns x1 and x2, or from key x [n, 2] of an npz.

        An optional ``label`` is left or right.

        Raises:
            DataMissing: there is no such file.
            DataError: the file or a value cannot be used.
        """
        return self.read_queries(open_columns(path, "inputs"))

    def read_queries(self, columns: ColumnReader) -> Records:
        """Read queries as ``load_queries`` does, from columns that are open already."""
        points = columns.matrix("x", "inputs").astype(np.float64)
        same_shape(points, (2,), columns.path)
        labels = query_labels(columns, "label", CLASSES, len(points))
        return queries(columns, lift(points), (points,), labels)

    def _draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return n points [n, 2] and their labels [n], the classes by turns."""
        labels = np.arange(n) % 2
        means = np.where(labels == 1, self.center, -self.center)[:, None]
        return means + self.std * rng.standard_normal((n, 2)), labels

    def _records(self, points: np.ndarray, labels: np.ndarray) -> Records:
        """Return points [n, 2] with labels [n] as records. Their ids are hashes of the content."""
        hashed_labels = None if self.label_free else labels
        ids = default_ids(points, hashed_labels)
        return records(lift(points), labels, ids)
