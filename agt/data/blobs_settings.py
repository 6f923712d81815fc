"""Settings of generated points: ``dataset=blobs``.

Nothing here imports NumPy, so that a mistake in a setting is answered at once.
"""

from typing import Annotated, ClassVar

from pydantic import Field

from agt.settings import NonNegativeInt, Positive, schema


@schema
class BlobsSettings:
    """Settings of two Gaussian clouds in the plane, one for each class; synthetic.

    Attributes:
        center: p, the coordinate of both means.
        std: standard deviation of each coordinate.
        n_train: training records, half of each class.
        test_fraction: test records as a fraction of ``n_train``, drawn after the training records.
        seed: public seed of the generator.
        label_free: ids are made without labels (relation=flip).
        record_axes: the number of axes of a record; an image has three.
    """

    center: Positive
    std: Positive
    n_train: Annotated[int, Field(ge=2)] = 3000
    test_fraction: Annotated[float, Field(gt=0)] = 0.25
    seed: NonNegativeInt = 0
    label_free: bool = False

    record_axes: ClassVar[int] = 1
