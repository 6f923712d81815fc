"""The papers' small convolutional network as a frozen public encoder (papers.md, OCT-MNIST; 000 Fig
3, 001 Fig 7).

A base model, convolutions and dense layers, is trained on public records (``Dataset.pretrain``);
then its convolutions are frozen and turn images into features, and its dense layers are where
certified fine-tuning starts. A frozen public encoder needs no bounds at all, as long as a record's
features depend on that record alone, to the last bit. A batched convolution does not promise that
(the same image may get other last digits in a batch of another size), so encoding runs one image at
a time; it is done once, in a fraction of a millisecond each.

The encoder is a public constant, so it must not depend on what else may differ between two runs: it
is trained on the public records in the order of their content, whatever order they come in, and in
one thread, as it encodes. Identical records are exchangeable. What it still depends on is the
machine and its libraries; a run records the encoder's digest.
"""

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn import functional as F

from agt.bounds.interval import Interval
from agt.bounds.network import Network
from agt.bounds.rounding import Rounding
from agt.data.dataset import Dataset
from agt.data.ids import content_ids
from agt.data.records import Records
from agt.errors import AgtError, DataError, DataMissing
from agt.facts import Evidence, Fact, Standing, declared, not_held
from agt.models.heads import HeadConfig
from agt.models.store import FileWriter, read_tensors
from agt.provenance import code_digest, machine
from agt.settings import Count, NonNegative, NonNegativeInt, Positive, schema
from agt.store.atomic import write_atomic
from agt.store.folder import Folder
from agt.training.checkpoint import read_safetensors_header

OnProgress = Callable[[int, int], None]
ENCODER = "encoder.safetensors"
_KERNEL = 4
_STRIDE = 2
_FORMAT = "agt encoder 2"  # 2: in the order of content, in one thread
_TRAIN_AGAIN = "delete it to train the encoder again"


@schema
class EncoderConfig:
    """Convolutions 4x4 with stride 2 and 4x4 with stride 1, each with ReLU, then dense layers.

    Attributes:
        channels: outputs of the two convolutions.
        hidden: widths of the base model's hidden dense layers; the certified head starts from them
            if it has the same.
        lr, batch, epochs: Adam's learning rate, records per batch, passes over the public records.
        balanced: draw each record's class uniformly first, then a record of it; False: shuffle.
        robust: how much ``gradient_width`` counts in the base model's loss, so that boxes widen
            less in fine-tuning; 0: not at all, .1 to .5 are a start. Public records alone decide
            it, so guarantees hold with it as without.
        seed: of the initialisation and of the order of the records.
        weights: a safetensors file to load instead of training.
        weights_public: whoever runs this declares that ``weights`` were trained on public records
            only.
        cache_dir: trained base models are kept here and reused, under a signature of all that
            determines them but the number of threads: who certifies a run finds the encoder it was
            trained with, whatever their own ``compute``.
    """

    channels: tuple[Count, Count] = (16, 32)
    hidden: tuple[Count, ...] = (100,)
    lr: Positive = 1e-3
    batch: Count = 100
    epochs: Count = 20
    balanced: bool = True
    robust: NonNegative = 0.0
    seed: NonNegativeInt = 0
    weights: Path | None = None
    weights_public: bool = False
    cache_dir: Path = Path("outputs/encoders")

    def load(self, dataset: Dataset, on_progress: OnProgress | None = None) -> "Encoder":
        """The encoder that these settings name: from ``weights``, from the cache, or trained now
        and put into the cache.

        A load that fails is an error, never an untrained or quietly retrained model.
        """
        shape = _image_shape(dataset)
        if self.weights is not None:
            return _from_weights(self, self.weights, shape)
        if dataset.pretrain is None:
            raise DataError(
                f"{dataset.name}: there are no public records to train the encoder on. Leave out "
                "a class with dataset.held_out=..., or give model.encoder.weights=FILE"
            )
        public = _in_order(dataset.pretrain)
        classes = len(np.unique(public.labels))
        if classes < 2:
            raise DataError(
                f"{dataset.name}: the public records have one class only, but the encoder needs "
                "at least two"
            )
        outputs = 1 if classes == 2 else int(public.labels.max()) + 1
        model = _fresh(self, shape, (*self.hidden, outputs))
        path = self.cache_dir / f"{_signature(self, public, outputs)}.safetensors"
        if not path.exists():
            report = on_progress or (lambda step, steps: None)
            _save(path, _train(self, public, shape, outputs, report))
        _restore(model, path, _TRAIN_AGAIN)
        _check_kept(model, path)
        return Encoder(model, shape, state_digest(model), _pretrain_fact(public))

    def read(self, shelf: Folder) -> "Encoder":
        """What ``Encoder.save`` wrote; it has no dense layers, and whether it is public is in the
        run's conditions.

        Raises:
            ConfigError: the file is not what was written.
            UnsoundError: its tensors are not such an encoder's.
        """
        shape = tuple(json.loads(read_safetensors_header(shelf.read(ENCODER))["shape"]))
        model = _fresh(self, shape, ())
        model.conv.load_state_dict(read_tensors(shelf, ENCODER, model.conv.state_dict()))
        model.requires_grad_(False).eval()
        return Encoder(model, shape, state_digest(model), not_held("encoder_of_record"))


@schema
class EncodedHead(HeadConfig):
    """A head behind a frozen public encoder.

    Attributes:
        encoder: the encoder; None: a plain head.
    """

    encoder: EncoderConfig | None = None
    takes_encoder = True


class BaseModel(nn.Module):
    """Convolutions that get frozen, and the dense layers that fine-tuning starts from; logits [n,
    outputs].

    Args:
        shape: (channels, height, width) of an image.
        channels: outputs of the convolutions.
        widths: outputs of the dense layers, the logits last; empty: no dense layers.
    """

    def __init__(
        self, shape: tuple[int, ...], channels: tuple[int, int], widths: tuple[int, ...]
    ) -> None:
        super().__init__()
        first, second = channels
        self.conv = nn.Sequential(
            nn.Conv2d(shape[0], first, _KERNEL, stride=_STRIDE),
            nn.ReLU(),
            nn.Conv2d(first, second, _KERNEL),
            nn.ReLU(),
            nn.Flatten(),
        )
        height, width = ((side - _KERNEL) // _STRIDE + 2 - _KERNEL for side in shape[1:])
        self.features = second * height * width
        dense: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise((self.features, *widths)):
            dense += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.dense = nn.Sequential(*dense[:-1])

    def forward(self, images: Tensor) -> Tensor:
        return self.dense(self.conv(images))


@dataclass(frozen=True)
class Encoder:
    """A frozen base model.

    Attributes:
        model: the base model, in evaluation mode, without gradients.
        shape: (channels, height, width) of the images it takes.
        digest: a hash of its tensors.
        public: whether what it was trained on was declared public, and why one may say so.
    """

    model: BaseModel
    shape: tuple[int, ...]
    digest: str
    public: Fact

    def apply(self, features: np.ndarray) -> np.ndarray:
        """[n, c, h, w] images to [n, d] float32 features, each the same bits whatever the other
        images are.

        Raises:
            DataError: the images have another shape.
        """
        if features.shape[1:] != self.shape:
            raise DataError(
                f"the encoder needs images of shape {self.shape}, but these have shape "
                f"{features.shape[1:]}"
            )
        out = np.empty((len(features), self.model.features), dtype=np.float32)
        one = torch.empty(1, *self.shape)
        with torch.inference_mode(), _deterministic():
            for row, image in enumerate(features):
                one.copy_(torch.from_numpy(np.array(image, dtype=np.float32)))
                out[row] = self.model.conv(one)[0].numpy()
        return out

    def encode(self, dataset: Dataset) -> Dataset:
        """The data set as the frozen encoder sees it.

        Ids, units, labels and public flags stay; features become [n, d] float32; ``plane`` and
        ``pretrain`` are dropped; ``preprocessing`` says whether the encoder is public.
        """
        return replace(
            dataset,
            train=replace(dataset.train, features=self.apply(dataset.train.features)),
            test=replace(dataset.test, features=self.apply(dataset.test.features)),
            scaling={**dataset.scaling, "encoder": self.digest},
            preprocessing=_preprocessing(self, dataset),
            pretrain=None,
            plane=None,
        )

    def save(self, store: FileWriter) -> None:
        """encoder.safetensors: the convolutions, which is what queries pass through."""
        shape = {"shape": json.dumps(self.shape)}
        tensors = self.model.conv.state_dict()
        contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
        store.write(ENCODER, save(contiguous, shape))

    def head(self) -> dict[str, Tensor] | None:
        """The dense layers in order: ``weight.0`` [out, in], ``bias.0`` [out], ``weight.1``,
        ...; None without any.
        """
        layers = [layer for layer in self.model.dense if isinstance(layer, nn.Linear)]
        named = {}
        for index, layer in enumerate(layers):
            named[f"weight.{index}"] = layer.weight.detach().clone()
            named[f"bias.{index}"] = layer.bias.detach().clone()
        return named or None


def _in_order(records: Records) -> Records:
    """The records by their content, so that the order they came in does not show."""
    ids = content_ids(records.features, records.labels, numbered=False)
    return records.take(np.argsort(ids, kind="stable"))


def _from_weights(config: EncoderConfig, path: Path, shape: tuple[int, ...]) -> Encoder:
    if not path.is_file():
        raise DataMissing(f"{path} does not exist: change model.encoder.weights")
    remedy = "get it again, or change model.encoder.weights"
    tensors = _read(path, remedy)
    last = f"dense.{2 * len(config.hidden)}.bias"
    widths: tuple[int, ...] = ()
    if any(name.startswith("dense.") for name in tensors):
        outputs = len(tensors[last]) if last in tensors else 1
        widths = (*config.hidden, outputs)
    model = _fresh(config, shape, widths)
    _restore(model, path, remedy)
    return Encoder(model, shape, state_digest(model), _weights_fact(config, path))


def _weights_fact(config: EncoderConfig, path: Path) -> Fact:
    setting = "model.encoder.weights_public"
    if config.weights_public:
        return declared("encoder_weights_public", file=path.name, setting=setting)
    return not_held("encoder_weights_undeclared", file=path.name, setting=setting)


def _train(
    config: EncoderConfig,
    public: Records,
    shape: tuple[int, ...],
    outputs: int,
    on_progress: OnProgress,
) -> BaseModel:
    """The base model after Adam on the public records; the same for a seed on one machine, with
    any threads.
    """
    model = _fresh(config, shape, (*config.hidden, outputs))
    images = np.asarray(public.features, dtype=np.float32)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    steps = config.epochs * math.ceil(len(public) / config.batch)
    with _deterministic():
        for step, rows in enumerate(_batches(public.labels, config), start=1):
            features = model.conv(torch.from_numpy(images[rows]))
            labels = torch.from_numpy(public.labels[rows])
            logits = model.dense(features)
            if outputs == 1:
                targets = labels.to(logits.dtype)
                loss = F.binary_cross_entropy_with_logits(logits[:, 0], targets)
            else:
                loss = F.cross_entropy(logits, labels)
            if config.robust:
                loss = loss + config.robust * gradient_width(model.dense, features, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            on_progress(step, steps)
    return model


def gradient_width(
    dense: nn.Sequential, features: Tensor, labels: Tensor, radius: float = 1e-4
) -> Tensor:
    """How many times wider than a small box of parameters the interval of the gradients over it is.

    Bounds of certified training (agt/training/loop.py) widen in each step by the widths of the
    gradients over the box that they have reached. So a base model of a small width is a start from
    which they widen less.

    Args:
        dense: the layers that are fine-tuned; one output means two classes.
        features: [n, in] float32, what goes into them.
        labels: [n].
        radius: of the box around the parameters, a public constant of about the size that boxes
            reach in fine-tuning.

    Returns:
        The mean, over records and parameters, of the width of a record's gradient, divided by that
        of the box; a scalar that can be differentiated. It is agt.bounds' interval with nothing
        added for rounding, the width of a product d (x) x taken as w(d) |x| + |d| w(x): a loss,
        which no guarantee rests on.
    """
    parameters = dict(dense.named_parameters())
    outputs = len([*parameters.values()][-1])  # of the last bias
    loss = "binary_cross_entropy" if outputs == 1 else "cross_entropy"

    def unwidened(lower: Tensor, upper: Tensor, slack: object) -> Interval:
        return Interval(lower, upper)

    exact = Rounding(torch.zeros(1, 1, 1), 0.0, 0.0, unwidened)
    box = {}
    for name, value in parameters.items():
        box[name] = Interval(value[None] - radius, value[None] + radius)
    network = Network.from_head(dense, loss, max(outputs, 2))
    width = features.new_zeros(())
    for _, d, x in network.factors(features, labels, box, exact):
        of_d = (d.upper - d.lower).sum(dim=-1)
        of_x = (x.upper - x.lower).sum(dim=-1)
        size_of_d = d.magnitude().sum(dim=-1)
        size_of_x = 1 + x.magnitude().sum(dim=-1)
        width = width + (of_d * size_of_x + size_of_d * of_x).mean()
    count = sum(value.numel() for value in parameters.values())
    return width / (2 * radius * count)


def _fresh(config: EncoderConfig, shape: tuple[int, ...], widths: tuple[int, ...]) -> BaseModel:
    """The base model at its seeded initialisation, without touching the process's random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return BaseModel(shape, config.channels, widths)


def _batches(labels: np.ndarray, config: EncoderConfig) -> Iterator[np.ndarray]:
    """Row indices of each batch of each epoch."""
    rng = np.random.default_rng(config.seed)
    rows_of = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    sizes = np.array([len(rows) for rows in rows_of])
    by_class = np.concatenate(rows_of)
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    for _ in range(config.epochs):
        order = rng.permutation(len(labels))
        if config.balanced:
            chosen = rng.integers(len(sizes), size=len(labels))
            within_class = (rng.random(len(labels)) * sizes[chosen]).astype(np.int64)
            order = by_class[first[chosen] + within_class]
        for start in range(0, len(order), config.batch):
            yield order[start : start + config.batch]


def _image_shape(dataset: Dataset) -> tuple[int, ...]:
    shape = dataset.train.features.shape[1:]
    if len(shape) != 3 or min(shape[1:]) < _STRIDE * (_KERNEL - 1) + _KERNEL:
        raise DataError(
            f"{dataset.name}: records have shape {shape}, but the convolutional encoder needs "
            "images [channels, height, width] of at least 10 x 10 pixels, such as those of "
            "dataset=medmnist"
        )
    return shape


def _pretrain_fact(public: Records) -> Fact:
    if public.public.all():
        return declared("encoder_records_public", setting="dataset.pretrain_public")
    return not_held("encoder_records_undeclared", setting="dataset.pretrain_public")


def _preprocessing(encoder: Encoder, dataset: Dataset) -> Evidence:
    """Condition e for scaling and encoder together."""
    if dataset.pretrain is not None and encoder.public.standing is not Standing.VOID:
        private_ids = dataset.train.ids[~dataset.train.public]
        shared = np.intersect1d(dataset.pretrain.ids, private_ids)
        if len(shared):
            fact = not_held("encoder_saw_private", record=str(shared[0]))
            return dataset.preprocessing.with_facts(fact)
    return dataset.preprocessing.with_facts(encoder.public)


def _signature(config: EncoderConfig, public: Records, outputs: int) -> str:
    """A hash of all that determines the base model; what only says where to find it does not enter.

    The code of this package and of agt, versions and the kind of machine are in it: none of them
    promises the same last bits after a change.
    """
    settings = asdict(config)
    for key in ("weights", "weights_public", "cache_dir"):
        del settings[key]
    determinants = [
        _FORMAT,
        settings,
        outputs,
        public.features.shape,
        code_digest([__name__]),
        machine(),
    ]
    h = blake2b(json.dumps(determinants, sort_keys=True).encode(), digest_size=16)
    for array in (public.features.astype(np.float32), public.labels):
        h.update(np.ascontiguousarray(array).tobytes())
    return h.hexdigest()


def state_digest(model: nn.Module) -> str:
    """A hash of a model's tensors, whatever device they are on."""
    h = blake2b(digest_size=16)
    for name, tensor in sorted(model.state_dict().items()):
        h.update(f"{name}{tuple(tensor.shape)}".encode())
        h.update(tensor.contiguous().flatten().view(torch.uint8).numpy())
    return h.hexdigest()


def _save(path: Path, model: BaseModel) -> None:
    """Write the whole file or none: a run that is killed here leaves no half a model in the
    cache.
    """
    broken = _not_finite(model.state_dict())
    if broken:
        raise AgtError(
            f"training the encoder diverged ({broken[0]} is not finite): lower model.encoder.lr"
        )
    write_atomic(path, save(model.state_dict(), metadata=_stated(model, path)))


def _not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the tensors that have a NaN or an infinity."""
    return [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]


def _stated(model: BaseModel, path: Path) -> dict[str, str]:
    """What a kept file says about itself: its name and its tensors' digest bind it."""
    return {"format": _FORMAT, "signature": path.stem, "digest": state_digest(model)}


def _check_kept(model: BaseModel, path: Path) -> None:
    """Raise DataError unless the file that ``model`` was filled from is the one that was kept
    under its name.
    """
    with safe_open(path, framework="pt") as file:
        stated = file.metadata()
    if stated != _stated(model, path):
        raise DataError(
            f"{path}: this file was altered or damaged, or belongs to another encoder: "
            f"{_TRAIN_AGAIN}"
        )


def _read(path: Path, remedy: str) -> dict[str, Tensor]:
    try:
        tensors = load(path.read_bytes())
    except (SafetensorError, OSError, ValueError) as error:
        raise DataError(f"{path}: this safetensors file is damaged ({error}): {remedy}") from None
    broken = _not_finite(tensors)
    if broken:
        raise DataError(f"{path}: {broken[0]} has NaN or infinite weights: {remedy}")
    return tensors


def _restore(model: BaseModel, path: Path, remedy: str) -> None:
    """Fill ``model`` from a file and freeze it.

    Raises DataError unless every tensor is there in its shape.
    """
    try:
        model.load_state_dict(_read(path, remedy), strict=True)
    except RuntimeError as error:
        fault = str(error).splitlines()[-1].strip()
        raise DataError(
            f"{path}: these weights are of another encoder ({fault}): {remedy}"
        ) from None
    model.requires_grad_(False).eval()


@contextmanager
def _deterministic() -> Iterator[None]:
    """Deterministic algorithms, in one thread: how a convolution's sums are split depends on how
    many there are.
    """
    before = torch.are_deterministic_algorithms_enabled()
    threads = torch.get_num_threads()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        torch.set_num_threads(threads)
