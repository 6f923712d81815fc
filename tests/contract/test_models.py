"""What every model owes (agt/models/model.py), for each certificate, alone and as an ensemble: a
new kind inherits it.

Certificates are compared with brute force: train again without each record, and with each of some
others, and look.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from records import reseal
from safetensors.numpy import load_file, save, save_file
from synthetic import refused
from torch import nn

import agt
from agt.certificates.box import Certificates
from agt.certificates.vote_certificates import VoteCertificates
from agt.errors import UnsoundError
from agt.models.closed_form import read_features
from agt.models.erm import ErmKind
from agt.models.features import FeatureMap
from agt.models.kinds import KINDS
from agt.models.model import accuracy
from agt.models.votes import VotesKind, VotesModel
from agt.settings import FeaturesConfig

KS = (0, 1, 2, 3)
# How to train a model of each kind of certificate; a new kind adds a line.
TRAINED: dict[str, dict[str, Any]] = {
    "box": {"network": (4,), "epochs": 4, "lr": 4.0, "clip": 0.06},
    "stability": {"epochs": 5},
    "erm": {"weight_decay": 0.05},
    # the same draw always
    "removal": {"weight_decay": 0.05, "certificate": {"name": "removal", "sigma": 0.1, "seed": 1}},
    "votes": {"members": 7},
}
MARGINS = {"vote": "margins", "margin_clip": 0.5}
# kinds that an ensemble may have for members
VOTING = tuple(name for name in TRAINED if name not in ("removal", "votes"))


@dataclass(frozen=True)
class Example:
    """How to train on a few records, and what to ask: ``settings`` are those of ``agt.fit``."""

    settings: dict[str, Any]
    x: np.ndarray
    y: np.ndarray
    queries: np.ndarray

    @classmethod
    def of(cls, classes: int = 2, shape: tuple[int, ...] = (2,), **settings: Any) -> "Example":
        """Classes lie around a circle through two directions of the features, and queries go
        once round it.
        """
        n = 42
        plain = np.ones(shape)
        ramp = plain * np.linspace(-1, 1, shape[-1])

        def around(angles: np.ndarray) -> np.ndarray:
            turned = angles.reshape(-1, *[1] * len(shape))
            return 2 * (np.cos(turned) * plain + np.sin(turned) * ramp)

        y = np.arange(n) % classes
        x = around(2 * np.pi * y / classes) + np.random.default_rng(3).normal(size=(n, *shape)) / 2
        queries = around(np.linspace(0.05, 2 * np.pi, 40))
        declared = agt.Declared(
            classes=list(range(classes)), size=n, features=True, settings=True, network=True
        )
        compute = {"threads": 1, "kernel": "reference"}
        return cls({"declared": declared, "ks": KS, "compute": compute, **settings}, x, y, queries)

    def fit(self, x: np.ndarray | None = None, y: np.ndarray | None = None) -> agt.Fitted:
        return agt.fit(self.x if x is None else x, self.y if y is None else y, **self.settings)

    @property
    def alone(self) -> bool:
        return self.settings.get("members", 1) == 1


POOLED = nn.Sequential(nn.AvgPool2d(2, padding=1), nn.Flatten(), nn.Linear(8, 2))
EXAMPLES = {
    **{name: Example.of(**{"certificate": name} | settings) for name, settings in TRAINED.items()},
    **{
        f"{name} ensemble": Example.of(certificate=name, members=3, **TRAINED[name])
        for name in VOTING
    },
    **{
        f"{name} margins": Example.of(certificate=name, members=3, **MARGINS, **TRAINED[name])
        for name in VOTING
    },
    **{
        f"{name} of 3 classes": Example.of(3, **{"certificate": name} | settings)
        for name, settings in TRAINED.items()
    },
    "stability on random features": Example.of(
        certificate="stability", features="relu", **TRAINED["stability"]
    ),
    "erm on random features": Example.of(certificate="erm", features="relu", **TRAINED["erm"]),
    "votes under substitute": Example.of(certificate="votes", members=14, relation="substitute"),
    "one head under flip": Example.of(certificate="votes", relation="flip"),
    "erm under flip": Example.of(certificate="erm", relation="flip", **TRAINED["erm"]),
    "stability of 3 classes under flip": Example.of(
        3, certificate="stability", relation="flip", **TRAINED["stability"]
    ),
    "stability ensemble under flip": Example.of(
        certificate="stability", members=3, relation="flip", **TRAINED["stability"]
    ),
    "votes under flip": Example.of(3, certificate="votes", members=4, relation="flip"),
    "votes of logistic regressions": Example.of(
        3, certificate="votes", members=9, learner="logistic"
    ),
    "votes on random features": Example.of(3, certificate="votes", members=9, features="relu"),
    "box of images": Example.of(shape=(2, 3, 3), **{**TRAINED["box"], "network": POOLED}),
}
examples = pytest.mark.parametrize("name", EXAMPLES)


@cache
def fitted(name: str) -> agt.Fitted:
    return EXAMPLES[name].fit()


@cache
def known(name: str) -> Certificates:
    return fitted(name).model.certify(EXAMPLES[name].queries)


# -- fitted


def test_every_certificate_has_a_model_and_an_example() -> None:
    assert {kind.name for kind in KINDS} == set(TRAINED)


@examples
def test_it_answers_with_labels_distances_and_margins(name: str) -> None:
    model = fitted(name).model
    certificates = known(name)
    queries = EXAMPLES[name].queries
    labels = model.predict(queries)
    margins = model.margins(queries)
    classes = model.problem.classes
    assert (labels.shape, labels.dtype) == (queries.shape[:1], np.int64)
    assert set(labels.tolist()) <= set(range(classes))
    assert np.array_equal(certificates.prediction, labels)
    assert certificates.certified.shape == (len(certificates.ks), len(queries))
    assert (certificates.certified[1:] <= certificates.certified[:-1]).all(), (
        "certified for more changes, not for fewer"
    )
    assert certificates.stable_distance.max() >= 3, "a check of nothing would not show"
    assert certificates.stable_distance.min() <= 1
    assert accuracy(model, model.problem.dataset.train) > 0.9
    assert margins.shape == (1 if classes == 2 else classes, len(queries))
    if classes == 2:
        assert np.array_equal(margins[0] > 0, labels == 1)
    else:
        assert (margins[labels, np.arange(len(queries))] >= 0).all()


@examples
def test_shares_of_every_kind_are_on_one_scale(name: str) -> None:
    """Shares of votes where members vote; elsewhere probabilities whose log odds are the margins.

    None is patched.
    """
    model = fitted(name).model
    certificates = known(name)
    queries = EXAMPLES[name].queries
    shares = model.shares(queries)
    margins = model.margins(queries)
    assert shares.shape == (len(queries), model.problem.classes)
    assert (shares >= 0).all()
    assert shares.sum(axis=1) == pytest.approx(np.ones(len(queries)))
    assert np.array_equal(shares.round(12).argmax(axis=1), certificates.prediction)
    voted = isinstance(certificates, VoteCertificates) and len(certificates.members) > 1
    if voted and not certificates.by_margins:
        counted = [
            (certificates.members == label).mean(axis=0) for label in range(model.problem.classes)
        ]
        assert pytest.approx(np.stack(counted)) == shares.T
        return
    odds = np.log(np.maximum(shares, 1e-300))
    best_other = np.stack(
        [np.delete(odds, label, axis=1).max(axis=1) for label in range(odds.shape[1])]
    )
    lead = odds.T - best_other
    inner = np.abs(margins) < 30  # beyond, a probability is 1 to the last digit
    assert (lead[1:] if len(margins) == 1 else lead)[inner] == pytest.approx(
        margins[inner], abs=1e-6
    )


@examples
def test_some_k_of_the_grid_and_one_query_say_the_same_and_it_says_how_it_stands(name: str) -> None:
    model = fitted(name).model
    queries = EXAMPLES[name].queries
    certificates = known(name)
    some = model.certify(queries, ks=(0, 2))
    one = model.certify(queries[5:6])
    if EXAMPLES[name].alone:
        assert some.ks == (0, 2)
        assert np.array_equal(some.certified, certificates.certified[[0, 2]])
    assert (some.stable_distance <= certificates.stable_distance).all()
    assert one.stable_distance[0] == certificates.stable_distance[5]
    assert one.prediction[0] == certificates.prediction[5]
    assert [condition.letter for condition in model.conditions if condition.held] == list("abcdefg")
    assert all(isinstance(value, int | float | str) for value in model.metrics.values())
    assert model.metrics["parameters"] > 0  # type: ignore[operator]
    assert model.plan.steps == model.plan.epochs * model.plan.count > 0


@examples
def test_it_refuses_what_it_cannot_answer(name: str) -> None:
    example = EXAMPLES[name]
    model = fitted(name)
    refused(
        (agt.AgtError, "the model was trained on", lambda: model.certify(example.queries[..., :1])),
        (
            agt.ConfigError,
            r"\b(features|window)\b",
            lambda: model.model.certify(example.queries[..., :1]),
        ),
    )
    for wrong in (np.nan, np.inf):
        with pytest.raises(agt.AgtError, match=r"NaN|finite"):
            model.model.certify(np.full_like(example.queries, wrong))


# -- brute force


def neighbours(example: Example) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Datasets with one record gone, every one or every sixth of an ensemble's, and some with one
    come, loud and wrong; or with one label that is another.
    """
    if example.settings.get("relation") == "flip":
        for row in range(len(example.x)):
            yield (
                example.x,
                np.where(
                    np.arange(len(example.x)) == row,
                    (example.y + 1) % (1 + example.y.max()),
                    example.y,
                ),
            )
        return
    for gone in range(0, len(example.x), 2 if example.alone else 6):
        rest = np.arange(len(example.x)) != gone
        yield example.x[rest], example.y[rest]
    for label in range(len(np.unique(example.y))):
        for side in (-30.0, 30.0):
            yield (
                np.append(example.x, np.full_like(example.x[:1], side), axis=0),
                np.append(example.y, label),
            )


def broken_promises(example: Example, certificates: Certificates) -> int:
    """Certified labels that a neighbour turns, and distances that are not 1-Lipschitz between
    the two.
    """
    count = 0
    distance = certificates.stable_distance
    for x, y in neighbours(example):
        there = example.fit(x, y).model.certify(example.queries)
        turned = there.prediction != certificates.prediction
        count += int(turned[distance >= 1].sum()) + int(
            (turned & (there.stable_distance > 0)).sum()
        )
        count += int((abs(there.stable_distance - distance) > 1).sum())
    return count


@pytest.mark.sampled(2)
@examples
def test_no_neighbour_turns_a_certified_label_and_distances_move_by_one(name: str) -> None:
    assert broken_promises(EXAMPLES[name], known(name)) == 0


def test_the_check_catches_a_model_that_certifies_too_much() -> None:
    for name in ("stability", "box"):
        certificates = known(name)
        everything = Certificates(
            KS, certificates.relation, certificates.prediction, np.ones((len(KS), 40), dtype=bool)
        )
        assert broken_promises(EXAMPLES[name], everything) > 0


# -- kept


@examples
def test_what_is_saved_is_read_back_to_the_bit(name: str, tmp_path: Path) -> None:
    model = fitted(name)
    queries = EXAMPLES[name].queries
    digest = model.save(tmp_path / "model")
    again = agt.load(tmp_path / "model", digest, {"threads": 1, "kernel": "reference"})
    assert type(again.model) is type(model.model)
    assert np.array_equal(again.model.margins(queries), model.model.margins(queries))
    later = again.model.certify(queries)
    now = known(name)
    assert (later.ks, later.relation) == (now.ks, now.relation)
    for field in ("prediction", "certified", "stable_distance"):
        assert np.array_equal(getattr(later, field), getattr(now, field))
    assert again.model.metrics == model.model.metrics
    assert again.save(tmp_path / "again") == digest


def metadata(path: Path) -> dict[str, str]:
    content = path.read_bytes()
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get(
        "__metadata__", {}
    )


def undefined(path: Path) -> None:
    save_file(
        {name: tensor * np.nan for name, tensor in load_file(path).items()}, path, metadata(path)
    )


def renamed(path: Path) -> None:
    save_file(
        {f"{name}x": tensor for name, tensor in load_file(path).items()}, path, metadata(path)
    )


def cut(path: Path) -> None:
    save_file(
        {name: tensor[..., :-1].copy() for name, tensor in load_file(path).items()},
        path,
        metadata(path),
    )


def swapped(path: Path) -> None:
    """Another k's box under this one's name; of a file that has no brothers, nothing of it."""
    brothers = [other for other in sorted(path.parent.glob("*.safetensors")) if other != path]
    path.write_bytes(brothers[0].read_bytes() if brothers else b"")


SPOILING: tuple[Callable[[Path], None], ...] = (undefined, renamed, cut, swapped, Path.unlink)


def test_settings_take_no_memory_before_the_files_have_as_much() -> None:
    """Members, features and landmarks of petabytes in config.yaml, beside files of a few bytes."""
    many = FeaturesConfig(map="relu", count=2**20)
    for name, members in (("votes", 9999), ("erm", 1)):
        problem = fitted(name).model.problem
        settings = replace(
            problem.settings, ensemble=replace(problem.settings.ensemble, members=members)
        )
        made = replace(problem, settings=settings)
        features = FeatureMap(many, 2)
        if name == "votes":
            weight = VotesModel.untrained(VotesKind(), made, features).weight
        else:
            weight = ErmKind().untrained_head(made, features).trained.weight
        assert (weight.shape[-1], weight.untyped_storage().nbytes()) == (2**20 + 1, weight.itemsize)
    shelf: Any = SimpleNamespace(folder=Path("folder"), read=lambda name: save({}))
    landmarks = FeaturesConfig(map="landmarks", count=2**20, root=1.0, public="test")
    problem = fitted("erm").model.problem
    certificate = replace(problem.settings.certificate, features=landmarks)
    with pytest.raises(UnsoundError, match="'projection', 'root'"):
        read_features(
            replace(problem, settings=replace(problem.settings, certificate=certificate)), shelf
        )


@pytest.mark.sampled(2)
@examples
def test_files_that_contradict_the_model_are_refused_behind_the_manifest_too(
    name: str, tmp_path: Path
) -> None:
    """The manifest is written anew each time, so that what is read is checked for itself."""
    fitted(name).save(tmp_path / "model")
    files = [
        path for path in sorted((tmp_path / "model").rglob("*.safetensors")) if load_file(path)
    ]
    assert files
    for path in files:
        content = path.read_bytes()
        for spoil in SPOILING:
            spoil(path)
            reseal(tmp_path / "model")
            with pytest.raises(agt.AgtError, match=path.name):
                agt.load(tmp_path / "model")
            path.write_bytes(content)
    reseal(tmp_path / "model")
    agt.load(tmp_path / "model")
