"""The front door: training on arrays and on one's own network, saving, loading, refusing."""

import json
import re
import warnings
from collections import OrderedDict
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import members_in_processes
from records import reseal
from torch import nn

import agt
from agt.data.digests import fingerprint
from agt.errors import DataError
from agt.facts import Standing
from agt.fit_problem import NETWORK_FORM
from agt.mechanisms.objective import ObjectivePerturbation
from agt.mechanisms.statistics import NoisyStatistics
from agt.models.heads import describe_layers, from_layers
from agt.training.loop import Progress
from agt_audit.edited_records import without
from agt_audit.neighbours import neighbour_of
from agt_audit.shadows import Pool
from agt_cli.networks import FORM

RNG = np.random.default_rng(7)
Y = np.arange(60) % 2
X = RNG.normal(size=(60, 3)) + 1.5 * Y[:, None]
QUERIES = RNG.normal(size=(9, 3)) + 0.75
SAID = agt.Declared(classes=[0, 1], size=60, features=True, settings=True)
OWN = nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.2), nn.Linear(4, 2))
STEPS = {"epochs": 4, "lr": 2.0, "clip": 0.06}  # of a network, which has no defaults
KINDS: dict[str, dict[str, Any]] = {
    "linear": {},
    "minimiser": {"certificate": "erm"},
    "removal": {"certificate": {"name": "removal", "sigma": 0.1, "seed": 1}},
    "boxes": {"network": (4,), "ks": 3, **STEPS},
    "sparse grid": {"network": (4,), "ks": [0, 2, 7], **STEPS},
    "own network": {"network": OWN, "ks": 2, **STEPS},
    "ensemble": {"members": 3, "compute": None},
    "ensemble of boxes": {"members": 2, "network": (3,), "ks": 2, **STEPS},
    "nothing declared": {"declared": None},
    "nothing declared, boxes": {"declared": None, "network": (3,), "ks": 2, **STEPS},
}


def fit(**settings: Any) -> agt.Fitted:
    return agt.fit(**({"x": X, "y": Y, "declared": SAID} | settings))


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_answers_as_before_without_the_data(kind: str, tmp_path: Path) -> None:
    with members_in_processes():
        model = fit(**KINDS[kind])
    answers = model.certify(QUERIES)
    digest = model.save(tmp_path / "model")
    again = agt.load(tmp_path / "model", digest)
    later = again.certify(QUERIES)
    assert (later.labels == answers.labels).all()
    assert (later.stable_distance == answers.stable_distance).all()
    assert [c.as_json() for c in later.conditions] == [c.as_json() for c in answers.conditions]
    assert (again.predict(QUERIES) == model.predict(QUERIES)).all()
    digests = {again.save(tmp_path / name) for name in ("second", "third")}
    assert digests == {digest}, "saving what was loaded gives other files"


@pytest.mark.parametrize("kind", ["linear", "removal", "boxes", "own network", "ensemble"])
def test_no_certified_label_flips_when_a_record_goes(kind: str) -> None:
    answers = fit(**KINDS[kind]).certify(QUERIES)
    sure = answers.stable_distance >= 1
    for gone in range(0, 60, 7):
        rest = np.arange(60) != gone
        there = agt.fit(X[rest], Y[rest], declared=SAID, **KINDS[kind]).predict(QUERIES)
        assert (there == answers.labels)[sure].all(), (
            f"record {gone} changed a label that was certified"
        )


@pytest.mark.parametrize("kind", [*KINDS, "votes"])
def test_a_declared_class_need_not_occur(kind: str) -> None:
    """A set with one record of a class has a neighbour with none: that trains, and labels
    certified at 1 are the same.
    """
    settings = {
        **KINDS.get(kind, {"certificate": kind, "members": 3 if kind == "votes" else 1}),
        "declared": SAID,
    }
    single = (np.arange(60) == 7).astype(int)
    with_one = agt.fit(X, single, **settings).certify(QUERIES)
    rest = single == 0
    without = agt.fit(X[rest], single[rest], **settings)
    sure = with_one.stable_distance >= 1
    assert (without.predict(QUERIES)[sure] == with_one.labels[sure]).all()
    back = without.certify(QUERIES)
    assert (back.labels == with_one.labels)[back.stable_distance >= 1].all()


def test_labels_are_the_callers_own() -> None:
    words = np.array(["no", "yes"])[Y]
    model = agt.fit(X, words, declared=agt.Declared(classes=["yes", "no"]))
    assert model.classes.tolist() == ["yes", "no"]
    assert set(model.predict(QUERIES)) <= {"yes", "no"}
    assert (
        model.predict(QUERIES) == np.array(["no", "yes"])[agt.fit(X, Y).predict(QUERIES)]
    ).mean() > 0.7


def test_what_nobody_declared_is_not_held_and_what_was_declared_says_so() -> None:
    void = {c.letter for c in agt.fit(X, Y).conditions if not c.held}
    assert void == {"b", "c", "e"}
    assert {c.letter: str(c.standing) for c in fit().conditions} == {
        **dict.fromkeys("adfg", "proved"),
        **dict.fromkeys("bce", "declared"),
    }
    for name, letter in (("classes", "e"), ("size", "c"), ("features", "b"), ("settings", "e")):
        rest = {**SAID.__dict__, name: False if name in ("features", "settings") else None}
        held = {c.letter for c in fit(declared=agt.Declared(**rest)).conditions if not c.held}
        assert held == {letter}, name


def test_given_ids_are_the_records_own_only_where_somebody_says_so() -> None:
    def held(ids: np.ndarray, permanent: bool) -> bool:
        said = agt.Declared(**{**SAID.__dict__, "ids": permanent})
        return {c.letter: c.held for c in fit(ids=ids, declared=said).conditions}["b"]

    for ids in (np.arange(60), RNG.permutation(60), 3 * np.arange(60)):
        assert not held(ids, False)
        assert held(ids, True)


def facts_of_e(model: agt.Fitted) -> dict[str, Standing]:
    """The standing of each fact of condition e, by its code."""
    (condition,) = (c for c in model.conditions if c.letter == "e")
    return {fact.code: fact.standing for fact in condition.evidence.facts}


def test_own_initial_parameters_are_public_only_where_the_user_declares_it(tmp_path: Path) -> None:
    said = replace(SAID, network=True)
    declared = fit(network=OWN, ks=1, declared=said, **STEPS)
    assert facts_of_e(declared)["initial_parameters_declared"] is Standing.DECLARED
    undeclared = fit(network=OWN, ks=1, **STEPS)
    assert facts_of_e(undeclared)["initial_parameters_undeclared"] is Standing.VOID
    for number, model in enumerate((declared, undeclared)):
        model.save(tmp_path / str(number))
        assert facts_of_e(agt.load(tmp_path / str(number))) == facts_of_e(model)
    with pytest.raises(agt.ConfigError, match=r"declared\.network=True"):
        undeclared.release(X[:1], agt.RandomizedResponse(eps=1.0))


def test_hidden_layers_start_from_parameters_that_nobody_has_to_declare() -> None:
    codes = facts_of_e(fit(network=(4,), ks=1, **STEPS))
    assert not [code for code in codes if code.startswith("initial_parameters")]


def test_own_initial_parameters_stay_as_they_are() -> None:
    before = deepcopy(OWN.state_dict())
    fit(network=OWN, ks=1, **STEPS)
    assert all(torch.equal(before[name], tensor) for name, tensor in OWN.state_dict().items())


def first_weight_of(network: nn.Sequential) -> torch.Tensor:
    """The first layer's weight, trained without bounds."""
    model: Any = fit(network=network, ks=0, **STEPS).model
    weight: torch.Tensor = model.box.nominal["0.weight"]
    return weight


def test_training_starts_from_the_networks_own_parameters() -> None:
    other = deepcopy(OWN)
    with torch.no_grad():
        next(other.parameters()).add_(1.0)
    weights = [first_weight_of(network) for network in (OWN, OWN, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


class Twisted(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = -super().forward(x)
        return result


HOOKED = deepcopy(OWN)
FROZEN = deepcopy(OWN)
HOOKED[0].register_forward_hook(lambda layer, x, y: -y)
FROZEN[0].weight.requires_grad = False
NETWORKS = [
    (Twisted(nn.Linear(3, 2)), "neg() (line "),
    (HOOKED, "has hooks"),
    (FROZEN, "0.weight"),
    (
        nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 2)),
        "layer 1 (LayerNorm)",
    ),
    (nn.Sequential(nn.Linear(3, 5)), "loss=cross_entropy"),
    (nn.Sequential(nn.Linear(3, 1)), "nn.Linear(3, 2) as the last layer, or give loss=binary_cro"),
    (nn.Sequential(nn.Linear(3, 2), nn.Sigmoid()), "Leave out what follows the last nn.Linear"),
    (nn.ReLU(), "The last layer must be nn.Linear, but it is nn.ReLU"),
    (nn.Sequential, "network=Sequential()"),
    (lambda: OWN, "network=make_net()"),
    ("my_net.make_net", "and not its name"),
    (64, "network=(64,)"),
    ([nn.Linear(3, 4), nn.Linear(4, 2)], "nn.Sequential(*layers)"),
    (nn.Sequential(nn.Linear(4, 2)), "(3,)"),
]
SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"lr_rate": 1.0}, "did you mean 'lr'"),
    ({"lr": -1.0}, "lr"),
    ({"certificate": "boxes"}, "certificate: unknown value 'boxes'"),
    ({"relation": "replace"}, "relation: unknown value 'replace'"),
    ({"network": (4,), "certificate": "stability"}, "network=[4]"),
    ({"network": OWN, "certificate": "erm"}, "certificate=erm"),
    ({"members": 2, "declared": None}, "declared=agt.Declared(size="),
    ({"chosen_on": "public"}, "declared=agt.Declared(settings=True)"),
    ({"network": (4,)}, "agt.fit(x, y, network=(4,), epochs=4, lr=1, clip=0.1, ks=5)"),
    ({"network": OWN, "epochs": 7}, "agt.fit(x, y, network=network, epochs=7, lr=1, clip=0.1, ks"),
    ({"network": (4,), "activation": "swish"}, "activation: unknown value 'swish'"),
    ({"network": OWN, "activation": "tanh"}, "activation='tanh' is for hidden layers"),
    ({"ks": -1}, "ks"),
    ({"ks": True}, "ks: expected a number"),
    ({"compute": {"gpu": 1}}, 'compute["gpu"]: unknown key'),
    ({"ks": []}, "values is empty"),
]
DATA: list[tuple[Any, Any, dict[str, Any], str]] = [
    (X[:, 0], Y, {}, "(60,)"),
    (X.astype(str), Y, {}, "expected numbers"),
    (np.where(np.arange(60)[:, None] == 4, np.nan, X), Y, {}, "NaN"),
    (X, Y[:-1], {}, "(59,)"),
    (X, np.where(np.arange(60) == 5, 2, Y), {}, "y: row 5"),
    (X, np.zeros(60, dtype=int), {"declared": None}, "at least two classes"),
    (np.tile(X, (2, 1)), RNG.normal(size=120), {"declared": None}, "declared.classes"),
    (X, np.where(Y, np.nan, 1.0), {"declared": None}, "y: row 1"),
    (X, Y, {"ids": np.zeros(60, dtype=int)}, "60 times"),
    (X, Y, {"public": Y}, "public= must be"),
    (X, Y, {"units": np.arange(60) // 2}, "unit_rows is 1"),
    (X[:0], Y[:0], {}, "train split"),
    (X, Y, {"declared": agt.Declared(classes=[0])}, "two distinct values"),
]


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        *(
            (agt.ConfigError, {"network": network, "ks": 1, **STEPS}, words)
            for network, words in NETWORKS
        ),
        *((agt.ConfigError, settings, words) for settings, words in SETTINGS),
        *((agt.AgtError, {"x": x, "y": y, **more}, words) for x, y, more, words in DATA),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name_and_row(
    kind: type[agt.AgtError], settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        fit(**settings)


def test_the_line_for_a_network_trains_and_has_the_numbers_of_the_command_line() -> None:
    typed_names = {"clip": "clip_elementwise"}
    words = {
        f"training.{typed_names.get(name, name)}={value}" for name, value in NETWORK_FORM.items()
    }
    assert words == {*FORM.values()}
    assert fit(network=(4,), **NETWORK_FORM, ks=5).certify(X).labels.shape == (60,)


@pytest.mark.parametrize(
    "said",
    [{"size": 0}, {"size": 60.0}, {"size": True}, {"size": 2**31}, {"features": "no"}, {"ids": 1}],
)
def test_a_declaration_that_says_nothing_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(agt.ConfigError, match=rf"declared\.{next(iter(said))}="):
        agt.Declared(**said)


def test_distances_that_the_grid_cuts_off_are_marked_as_censored() -> None:
    short = fit(network=(4,), ks=1, **STEPS).certify(X)
    longer = fit(network=(4,), ks=6, **STEPS).certify(X)
    assert np.array_equal(short.censored, short.stable_distance == 1)
    assert longer.stable_distance[short.censored].max() > 1, "no distance is cut off at 1"
    assert "are at least 1, the end of the grid (censored)" in repr(short)
    assert not fit().certify(X).censored.any(), "a formula knows every k"


def test_a_network_has_no_weights_to_release_and_python_names_its_own_mechanisms() -> None:
    with pytest.raises(agt.ConfigError) as error:
        fit(network=OWN, ks=1, **STEPS).release_weights(agt.ReleaseWeights(mu=1.0))
    assert "agt.ReleaseWeights releases" in str(error.value)
    assert "agt.RandomizedResponse or agt.GaussianMargin" in str(error.value)


def test_images_for_an_estimator_are_answered_with_how_to_give_them() -> None:
    classifier = agt.CertifiedClassifier(network=OWN, ks=1, **STEPS)
    with pytest.raises(ValueError, match=r"\(1, 3\).*reshape.*nn\.Unflatten"):
        classifier.fit(X[:, None], Y)


@pytest.mark.parametrize(("training_scale", "warns"), [(1.0, True), (100.0, False)])
def test_a_loaded_model_warns_of_large_queries_only_if_its_training_records_were_smaller(
    training_scale: float, warns: bool, tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", agt.Doubtful)
        digest = fit(x=X * training_scale).save(tmp_path / "model")
    model = agt.load(tmp_path / "model", digest)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.predict(QUERIES * 100)
    assert ["as the training records were scaled" in str(each.message) for each in caught] == (
        [True] if warns else []
    )


def test_a_model_that_an_earlier_version_saved_warns_of_large_queries_with_the_exception(
    tmp_path: Path,
) -> None:
    fit().save(tmp_path / "model")
    description = tmp_path / "model" / "model.json"
    content = json.loads(description.read_text())
    del content["large_features"]
    description.write_text(json.dumps(content))
    reseal(tmp_path / "model")
    with pytest.warns(agt.Doubtful, match="unless the training records were as large"):
        agt.load(tmp_path / "model").predict(QUERIES * 100)


def test_progress_is_told_to_whoever_asks() -> None:
    seen: list[Progress] = []
    model = fit(network=(4,), ks=2, on_progress=seen.append, **STEPS)
    assert seen[-1].step == seen[-1].steps
    assert seen[-1].done == seen[-1].total
    seen.clear()
    model.certify(QUERIES, on_progress=seen.append)
    assert seen[-1].done == seen[-1].total


def test_another_model_than_the_digest_names_is_refused(tmp_path: Path) -> None:
    """That every spoilt file is, test_tampering.py asks."""
    digest = fit(**KINDS["boxes"]).save(tmp_path / "model")
    other = fit(**KINDS["boxes"], seed=1)
    other.save(tmp_path / "other")
    with pytest.raises(agt.ConfigError, match=r"manifest\.json.*sha256:"):
        agt.load(tmp_path / "other", digest)
    with pytest.raises(agt.ConfigError, match="/model: "):
        other.save(tmp_path / "model")


def test_a_folder_that_holds_no_model_says_so(tmp_path: Path) -> None:
    with pytest.raises(agt.ConfigError, match="/nowhere"):
        agt.load(tmp_path / "nowhere")
    with pytest.raises(agt.ConfigError, match=r"manifest\.json"):
        agt.load(tmp_path)


def test_a_description_of_another_version_is_refused(tmp_path: Path) -> None:
    from agt.fitted import COMMAND
    from agt.store.folder import NewFolder

    fit().save(tmp_path / "model")
    node = json.loads((tmp_path / "model" / "model.json").read_text())
    for change in ({"format": 99}, {"settings": {}}, {"conditions": [{}]}):
        store = NewFolder(tmp_path / f"changed-{'-'.join(change)}", COMMAND)
        store.write("model.json", json.dumps({**node, **change}).encode())
        store.finish()
        with pytest.raises(agt.ConfigError, match=r"model\.json"):
            agt.load(tmp_path / f"changed-{'-'.join(change)}")


@pytest.mark.parametrize("units", [None, "yes"])
def test_members_of_units_that_nothing_names_are_not_loaded(
    tmp_path: Path, units: str | None
) -> None:
    """Earlier versions did not say whether units were named, and only true says so."""
    names = np.arange(60).astype(str)
    model = fit(members=2, unit_rows=2, ids=names, units=np.arange(60) // 2)
    model.save(tmp_path / "model")
    assert agt.load(tmp_path / "model").predict(QUERIES).tolist() == model.predict(QUERIES).tolist()
    node = json.loads((tmp_path / "model" / "model.json").read_text())
    del node["units"]
    if units is not None:
        node["units"] = units
    (tmp_path / "model" / "model.json").write_text(json.dumps(node))
    reseal(tmp_path / "model")
    with pytest.raises(agt.ConfigError, match=r"unit_rows=2"):
        agt.load(tmp_path / "model")


def test_layers_are_described_and_built_again() -> None:
    shared = nn.ReLU()
    network = nn.Sequential(
        OrderedDict(
            flat=nn.Flatten(),
            a=nn.Linear(6, 5, bias=False),
            r=shared,
            b=nn.Linear(5, 5),
            r2=shared,
            s=nn.Softplus(2.0, 9.0),
            g=nn.GELU(approximate="tanh"),
            last=nn.Linear(5, 2),
        )
    )
    again = from_layers(json.loads(json.dumps(describe_layers(network))))
    assert repr(again) == repr(network)
    assert [name for name, _ in again.state_dict().items()] == [
        name for name, _ in network.state_dict().items()
    ]


def test_released_labels_carry_their_guarantee_and_what_it_rests_on() -> None:
    release = fit().release(QUERIES, agt.RandomizedResponse(eps=2.0))
    assert release.claim.proved
    assert set(release.labels) <= {0, 1}
    assert release.claim.guarantee == agt.RandomizedResponse(eps=2.0).guarantee
    assert any("declared.features=True" in line for line in release.words)
    assert any("declared.size" in line for line in release.words)


def test_no_release_without_what_the_guarantee_rests_on() -> None:
    with pytest.raises(agt.ConfigError, match="condition b"):
        agt.fit(X, Y).release(QUERIES, agt.RandomizedResponse(eps=2.0))
    published = agt.fit(X, Y).release(QUERIES, agt.RandomizedResponse(eps=2.0), accounting="paper")
    assert not published.claim.proved
    assert "b" in published.claim.reasons


def test_what_was_not_held_when_saved_is_not_held_when_loaded(tmp_path: Path) -> None:
    agt.fit(X, Y).save(tmp_path / "model")
    with pytest.raises(agt.ConfigError, match="condition b"):
        agt.load(tmp_path / "model").release(QUERIES, agt.RandomizedResponse(eps=2.0))


def test_a_simulation_says_so_and_repeats() -> None:
    drawn = [fit().release(QUERIES, agt.RandomizedResponse(eps=0.1), seed=seed) for seed in (5, 5)]
    assert (drawn[0].labels == drawn[1].labels).all()
    assert drawn[0].simulated
    assert drawn[0].words[0].startswith("SIMULATION")


def test_the_mechanism_must_fit_the_model() -> None:
    with pytest.raises(agt.ConfigError, match=r"mechanism\.classes=3"):
        fit().release(QUERIES, agt.RandomizedResponse(eps=1.0, classes=3))
    with pytest.raises(agt.ConfigError, match=r"mechanism=noisy_argmax.*members=T"):
        fit().release(QUERIES, agt.NoisyArgmax(eps=1.0))
    budget = agt.Budget(eps=5.0, delta=1e-5, queries=9)
    assert fit().release(QUERIES, agt.afford(agt.GaussianMargin, budget, 2)).claim.proved


def test_everything_the_package_offers_is_there() -> None:
    assert {name for name in agt.__all__ if not hasattr(agt, name)} == set()
    assert set(agt.__all__) <= set(dir(agt))
    with pytest.raises(AttributeError, match="'train'"):
        agt.train  # noqa: B018


NAMES = np.array(["None", "nan", "True", *(f"p{row}" for row in range(57))])


def mapped(path: Path, rows: np.ndarray = X) -> np.memmap:
    """The records in a file that others may edit."""
    kept = np.memmap(path, np.float64, "w+", shape=rows.shape)
    kept[:] = rows
    return kept


EDITED = "memory-mapped"
MAPPED: dict[str, dict[str, Any]] = {
    "linear": {},
    "boxes": {"network": (3,), "ks": 2, **STEPS},
    "ensemble": {"members": 3},
    "votes": {"certificate": "votes", "members": 6},
}


@pytest.mark.parametrize("kind", MAPPED)
def test_who_is_unfit_from_records_that_were_edited_is_refused(kind: str, tmp_path: Path) -> None:
    """The new model would have learnt rows that the first one never saw, and promises to be
    exact.
    """
    x = mapped(tmp_path / "x")
    model = fit(x=x, units=NAMES, **MAPPED[kind])
    rest, _ = model.unfit(["p56"])  # the last row, so that what remains is a view of the map
    x[5] += 1
    for fitted in (model, rest):
        with pytest.raises(DataError, match=EDITED):
            fitted.unfit(["p1"])
    x[5] = X[5]
    assert rest.unfit(["p1"])[1].promise.exact


def test_weights_are_not_released_from_records_that_were_edited(tmp_path: Path) -> None:
    x = mapped(tmp_path / "x")
    model = fit(x=x, certificate="erm", weight_decay=0.5)
    x[0, 0] = 40
    for mechanism in (NoisyStatistics(mu=1.0), ObjectivePerturbation(eps=1.0, delta=1e-5)):
        with pytest.raises(DataError, match=EDITED):
            model.release_weights(mechanism)


def test_an_audit_trains_no_neighbour_of_records_that_were_edited(tmp_path: Path) -> None:
    x = mapped(tmp_path / "x")
    model = fit(x=x).model
    train = model.problem.dataset.train
    x[7] = 0
    with pytest.raises(DataError, match=EDITED):
        neighbour_of(model, without(train, np.array([3])))
    with pytest.raises(DataError, match=EDITED):
        Pool.of(model.problem.dataset)


def test_a_training_whose_records_are_edited_meanwhile_is_refused(tmp_path: Path) -> None:
    x = mapped(tmp_path / "x")

    def edit(progress: Progress) -> None:
        x[0] = 9

    with pytest.raises(DataError, match=EDITED):
        fit(x=x, network=(3,), ks=2, on_progress=edit, **STEPS)


def test_a_checkpoint_of_records_that_were_edited_is_not_gone_on_from(tmp_path: Path) -> None:
    x = mapped(tmp_path / "x")

    def kill(progress: Progress) -> None:
        raise KeyboardInterrupt

    settings = {"network": (3,), "ks": 2, "checkpoint": tmp_path / "kept"}
    settings |= {"compute": {"checkpoint_seconds": 0.0}, **STEPS}
    with pytest.raises(KeyboardInterrupt):
        fit(x=x, on_progress=kill, **settings)
    x[0] = 1
    with pytest.raises(agt.ConfigError, match=r"\bdata\b.*[0-9a-f]{32}"):
        fit(x=x, **settings)


def test_what_the_owner_edits_in_place_changes_no_record() -> None:
    given = {
        "x": X.copy(),
        "y": Y.copy(),
        "units": NAMES.copy(),
        "public": np.zeros(60, dtype=bool),
    }
    model = fit(**given)
    wanted = model.unfit(["p1"])[0].predict(QUERIES)
    digest = fingerprint(model.model.problem.dataset.train)
    for array in given.values():
        array[:] = array[::-1].copy()
    given["public"][:] = True
    assert fingerprint(model.model.problem.dataset.train) == digest
    assert (model.unfit(["p1"])[0].predict(QUERIES) == wanted).all()


@pytest.mark.parametrize(
    "name", [None, np.nan, True, np.True_, 1.5, b"p1", "a\ud800", "p1\0", ["p1"]]
)
def test_ids_that_are_asked_for_are_checked_as_ids_that_are_given(name: object) -> None:
    model = fit(units=NAMES)
    for asked in ([name], ["p1", name]):
        with pytest.raises(DataError, match="ids"):
            model.unfit(asked)
    with pytest.raises(DataError, match="units"):
        fit(units=[*NAMES[1:], name])


def test_people_are_asked_for_by_whole_numbers_and_by_text() -> None:
    assert fit(units=np.arange(60)).unfit([3, np.int64(5)])[1].facts["people"] == 2
    assert fit(units=NAMES).unfit(np.array(["None", "p3"]))[1].facts["people"] == 2
    for nobody in ("p1", 5, [], ["p99"]):
        with pytest.raises(agt.ConfigError, match="ids="):
            fit(units=NAMES).unfit(nobody)  # type: ignore[arg-type]


def test_a_missing_label_among_text_is_no_class() -> None:
    with pytest.raises(DataError, match=r"y: .*\b59\b"):
        agt.fit(X, ["a", "b"] * 29 + ["a", np.nan])  # type: ignore[arg-type]


def test_queries_on_another_scale_than_the_training_records_are_doubted() -> None:
    model = fit()
    queries = X[:3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.certify(queries)
    with pytest.warns(agt.Doubtful, match="scaled"):
        model.certify(queries * 1e4)
