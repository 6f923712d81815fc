"""Settings of sets of images: ``dataset=digits``, ``mnist`` and ``medmnist``.

The classes that read images inherit their settings from the classes here. Nothing here imports
NumPy, so that a mistake in a setting is answered at once.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from agt.settings import (
    DeclaredSize,
    NonNegativeInt,
    Positive,
    Probability,
    Share,
    keyword_schema,
    schema,
)

Class = NonNegativeInt
Digit = Annotated[int, Field(ge=0, le=9)]


@schema
class DigitsSettings:
    """Settings of scikit-learn's digits.

    Attributes:
        classes: the digits, in the order of their labels 0, 1, ...; None: all ten.
        test_fraction: public rate of the hash split.
        split_key: public key of the hash split.
        declared_size: public constant: about how many training records there are.
        record_axes: the number of axes of a record, a list of pixels.
    """

    classes: Annotated[tuple[Digit, ...], Field(min_length=2)] | None = (3, 8)
    test_fraction: Probability = 0.25
    split_key: str = "split"
    declared_size: DeclaredSize | None = None

    record_axes: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if len(set(self.classes or ())) < len(self.classes or ()):
            raise ValueError("'classes' lists a digit twice: remove one of the two")


@keyword_schema
class MnistSettings(DigitsSettings):
    """Settings of MNIST's digits, which an npz has.

    Attributes (the others: ``DigitsSettings``):
        path: the file, relative to ``data_dir``.
        data_dir: folder of a relative path.
    """

    path: Path
    data_dir: Path = Path("data")


@schema
class ImageConstants:
    """Constants that were read off the file of images, and that queries need.

    A run records them, so that queries can be read without the file.

    Attributes:
        shape: the shape of an image.
        used: the original classes of training and test records.
    """

    shape: tuple[int, ...]
    used: tuple[Class, ...]


@schema
class MedMnistSettings:
    """Settings of one MedMNIST set.

    Attributes:
        name: MedMNIST's flag, such as pneumoniamnist.
        data_dir: folder of relative paths and of downloads.
        size: pixels per side: 28, 64, 128 or 224.
        path: a local npz in MedMNIST's format, taken whatever its hash; None: the official file in
            ``data_dir``.
        download: fetch the official file if it is not there.
        positive: original classes that become label 1, all other ones 0; None: several classes.
        held_out: original classes that the pretraining records leave out; if any, pretraining
            records are formed.
        finetune_classes: original classes of the training and test sets; None: all that medmnist
            lists or, without that package, all that the file has, which is not public.
        keep: original class -> public rate; a training record is kept if the hash of its content
            falls below it.
        keep_key: public key of that hash.
        with_val: add the validation split to the training split.
        pretrain_public: whether the user declares the pretraining records public.
        center, scale: public constants.
        declared_size: public constant: about how many training records there are.
        settled: the constants that a training run recorded, for queries; None: reading queries
            opens the file again.
    """

    name: str
    data_dir: Path = Path("data")
    size: Literal[28, 64, 128, 224] = 28
    path: Path | None = None
    download: bool = True
    positive: tuple[Class, ...] | None = None
    held_out: tuple[Class, ...] = ()
    finetune_classes: Annotated[tuple[Class, ...], Field(min_length=1)] | None = None
    keep: Mapping[Class, Share] = Field(default_factory=dict)
    keep_key: str = "keep"
    with_val: bool = False
    pretrain_public: bool = False
    center: float = 0.5
    scale: Positive = 1.0
    declared_size: DeclaredSize | None = None
    settled: ImageConstants | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if settings contradict each other."""
        for setting in ("positive", "held_out", "finetune_classes"):
            classes: tuple[int, ...] = getattr(self, setting) or ()
            twice = sorted({c for c in classes if classes.count(c) > 1})
            if twice:
                raise ValueError(f"{setting} lists class {twice[0]} twice: remove one of the two")
        unused = set(self.keep) - set(self.finetune_classes or self.keep)
        if unused:
            raise ValueError(
                f"'keep' lists class {min(unused)}, which finetune_classes does not list: add it "
                "to finetune_classes, or remove it from keep"
            )
        if self.held_out and self.finetune_classes is None:
            raise ValueError(
                "held_out needs finetune_classes, because without it every record is used for "
                "fine-tuning and none is held out: give finetune_classes, or leave out held_out"
            )
