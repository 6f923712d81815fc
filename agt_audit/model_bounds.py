"""Bounds on the parameters of each kind of model, as an audit of certificates measures them.

A certificate claims that the parameters of a model trained on a neighbour within distance k lie
within a bound, and that no parameters within that bound give another label. Each kind of model has
a class here (``BOUNDS``) that measures both: a neighbour's deviation as a share of the bound, and
whether a label changes at parameters that are moved as far as the bound allows.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agt.bounds.network import Network
from agt.certificates.vote_costs import count_votes
from agt.data.records import Records
from agt.models.box import BoxModel
from agt.models.features import to_integers
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.models.votes import FlipModel, VotesModel
from agt.relations import RELATIONS

SLACK = 1 - 2.0**-30  # factor on a computed distance between heads, so that it is rounded down
NEVER_ZERO = 1e-300  # the smallest divisor
Deviations = dict[str, float]
"""Name of a parameter -> its deviation divided by the bound; above 1: it is out of bounds."""
Parameters = Mapping[str, Tensor]
Move = Callable[[Parameters], Parameters]
"""Gradients by parameter -> parameters, moved against the gradients as far as a bound allows."""


def steepest_changes(model: Any, queries: np.ndarray, ks: np.ndarray) -> np.ndarray:
    """Return which labels change when parameters move within the bound for k, [n] bool.

    For each query, the parameters move in the direction in which the lead of its label falls most
    steeply. A certificate for k claims that no label changes.

    Args:
        model: a model whose class of bounds has ``parameters``, ``logits`` and ``move_within``.
        queries: [n, ...] queries.
        ks: [n] the distance k for each query; without a bound for it, the label does not change.
    """
    bounds = bounds_of(model)
    labels = torch.from_numpy(model.predict(queries))
    changed = np.zeros(len(queries), dtype=bool)
    for row, k in enumerate(ks.tolist()):
        query = queries[row : row + 1]
        label = labels[row : row + 1]
        move = bounds.move_within(model, k)
        if move is None:
            continue
        worst_parameters = move(lead_gradient(model, query, label))
        with torch.no_grad():
            lead = label_leads(bounds.logits(model, query, worst_parameters), label)
        changed[row] = float(lead) < 0
    return changed


def lead_gradient(model: Any, query: np.ndarray, label: Tensor) -> dict[str, Tensor]:
    """Return the gradient of a label's lead with respect to each parameter, by name.

    Args:
        model: a model whose class of bounds has ``parameters`` and ``logits``.
        query: [1, ...] one query.
        label: [1] the label.
    """
    bounds = bounds_of(model)
    leaves = {
        name: parameter.detach().clone().requires_grad_()
        for name, parameter in bounds.parameters(model).items()
    }
    label_leads(bounds.logits(model, query, leaves), label).sum().backward()
    return {
        name: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        for name, leaf in leaves.items()
    }


def label_leads(logits: Tensor, labels: Tensor) -> Tensor:
    """Return each label's lead, [n]: its logit minus the largest logit of another label.

    Args:
        logits: [n, J]. With J = 1 (two classes), the lead is the logit, with the sign changed for
            label 0.
        labels: [n] the labels.
    """
    if logits.shape[1] == 1:
        return logits[:, 0] * (2 * labels - 1)
    column = labels[:, None]
    of_label = logits.gather(1, column)[:, 0]
    of_others = logits.scatter(1, column, -math.inf).amax(dim=1)
    return of_label - of_others


def uphill(model: Any, records: Records) -> np.ndarray:
    """Return the signs of the direction in which each record's label loses its lead, [n, ...].

    Args:
        model: a model whose parameters are bounded by boxes.
        records: n records, whose features are moved and whose labels are theirs.
    """
    features = torch.from_numpy(np.array(records.features)).double().requires_grad_()
    logits = BoxBounds.logits(model, features, model.box.nominal)
    lead = label_leads(logits, torch.from_numpy(records.labels))
    (gradient,) = torch.autograd.grad(lead.sum(), features)
    return -gradient.sign().numpy()


class Bounds:
    """The base class of bounds; it has no stored bounds that depend on the records.

    Subclasses have ``parameters(model)``, the parameters by name; ``logits(model, query,
    parameters)``, [n, J], minus thresholds; ``move_within(model, k)``, a ``Move`` as far as the
    bound for k; and ``deviations(model, neighbour, k)``, a neighbour's deviations as shares of
    the bounds for k. The last two return None where the model has no bound for k.
    """

    @staticmethod
    def labels_changed(model: Any, queries: np.ndarray, ks: np.ndarray) -> np.ndarray:
        """Return which labels change at parameters within the bound for k, [n] bool."""
        return steepest_changes(model, queries, ks)

    @staticmethod
    def bound_tensors(model: Any) -> list[Tensor]:
        """Return the stored bounds that depend on the records; here, none."""
        return []

    @staticmethod
    def largest_drift(recorded: Any, again: Any) -> float:
        """Return the largest difference between a run's stored bounds and those of ``again``.

        Here it is 0, because no bounds are stored.

        Args:
            recorded: the run's model.
            again: the model that another training on the same records gave.
        """
        return 0.0


class BoxBounds(Bounds):
    """Parameters are bounded one by one, by boxes."""

    @staticmethod
    def parameters(model: BoxModel) -> Parameters:
        """Return the nominal parameters."""
        return model.box.nominal

    @staticmethod
    def logits(model: BoxModel, query: np.ndarray | Tensor, parameters: Parameters) -> Tensor:
        """Return the network's logits with the given parameters, [n, J], minus thresholds."""
        training = model.settings.training
        network = Network.from_head(model.head, training.loss, model.problem.classes)
        features = query if isinstance(query, Tensor) else torch.from_numpy(np.array(query))
        features = features.to(getattr(torch, training.dtype))
        return network.logits(features, dict(parameters)) - network.loss.threshold

    @staticmethod
    def move_within(model: BoxModel, k: int) -> Move:
        """Return a move to a corner of the box of the largest k of the grid that is at most k."""
        box = model.box
        index = max(index for index, grid_k in enumerate(box.ks) if grid_k <= k)

        def move(gradients: Parameters) -> Parameters:
            return {
                name: torch.where(gradient > 0, box.lower[name][index], box.upper[name][index])
                for name, gradient in gradients.items()
            }

        return move

    @staticmethod
    def deviations(model: BoxModel, neighbour: BoxModel, k: int) -> Deviations | None:
        """Return how far each of a neighbour's parameters moved, as a share of its box for k.

        Args:
            model: the run's model, with its boxes.
            neighbour: the model that was trained on a neighbouring dataset.
            k: the distance of this dataset. The boxes are those of the smallest k of the grid that
                is at least as large.

        Returns:
            Name of a parameter -> the largest share of its elements, which is above 1 exactly if
            an element lies outside of its box; None: the grid has no such k.
        """
        box = model.box
        index = next((index for index, grid_k in enumerate(box.ks) if grid_k >= k), None)
        if index is None:
            return None
        return {
            name: _largest_share(
                value, box.nominal[name], lower=box.lower[name][index], upper=box.upper[name][index]
            )
            for name, value in neighbour.box.nominal.items()
        }

    @staticmethod
    def ends_outside(outer: BoxModel, inner: BoxModel) -> tuple[int, int]:
        """Count the ends of ``inner``'s boxes for k - 1 that lie outside of ``outer``'s for k.

        The grid of k must be dense.

        Returns:
            How many ends lie outside, and how many were compared.
        """
        outside_count = 0
        compared = 0
        for name in outer.box.lower:
            outer_lower = outer.box.lower[name][1:]
            outer_upper = outer.box.upper[name][1:]
            below = (outer_lower > inner.box.lower[name][:-1]).sum()
            above = (inner.box.upper[name][:-1] > outer_upper).sum()
            outside_count += int(below + above)
            compared += 2 * outer_lower.numel()
        return outside_count, compared

    @staticmethod
    def bound_tensors(model: BoxModel) -> list[Tensor]:
        """Return both ends of every box."""
        return [*model.box.lower.values(), *model.box.upper.values()]

    @staticmethod
    def largest_drift(recorded: BoxModel, again: BoxModel) -> float:
        """Return the largest difference between ends of stored boxes and of boxes trained again.

        Each is divided by the width of the box that was trained again. k = 0 is left out, because
        its boxes may have no width.

        Args:
            recorded: the run's model.
            again: the model that another training on the same records gave.
        """
        largest = 0.0
        for name, lower in again.box.lower.items():
            upper = again.box.upper[name]
            width = (upper.double() - lower.double()).clamp(min=NEVER_ZERO)
            for old, new in ((recorded.box.lower[name], lower), (recorded.box.upper[name], upper)):
                difference = (old.double() - new.double()).abs()
                drift = torch.where(difference == 0, 0.0, difference / width)[1:]
                if drift.numel():  # a grid whose only k is 0 has none
                    largest = max(largest, float(drift.max().nan_to_num()))
        return largest


def _largest_share(value: Tensor, nominal: Tensor, lower: Tensor, upper: Tensor) -> float:
    """Return the largest deviation of any element of a parameter, as a share of its box.

    The share of an element is its distance from the nominal value, divided by the distance of that
    end of the box towards which it moved.

    Args:
        value: the neighbour's parameter.
        nominal: the run's own parameter, in the same shape.
        lower: the lower end of each element's box.
        upper: the upper end of each element's box.

    Returns:
        The share, above 1 exactly if an element lies outside of its box; 0 without elements.
    """
    if not value.numel():
        return 0.0
    deviation = (value - nominal).double()
    end = torch.where(deviation > 0, upper, lower)
    allowed = (end.double() - nominal.double()).abs().clamp(min=NEVER_ZERO)
    share = torch.where(deviation == 0, 0.0, deviation.abs() / allowed)
    # the comparison with the box decides on which side of 1 it is, whatever was rounded
    is_inside = (lower <= value) & (value <= upper)
    share = torch.where(is_inside, share.clamp(max=1.0), share.clamp(min=1 + 2.0**-20))
    return float(share.max())


class HeadBounds(Bounds):
    """Weights of a linear head are bounded by an l2 ball, whose radius depends on k.

    The ball is of all weights together; with one-vs-all classifiers, each classifier has its own.
    """

    @staticmethod
    def parameters(model: LinearModel) -> Parameters:
        """Return the weights."""
        return {"weight": model.trained.weight}

    @staticmethod
    def logits(model: LinearModel, query: np.ndarray, parameters: Parameters) -> Tensor:
        """Return the logits of the head with the given weights, [n, J]."""
        return torch.from_numpy(model.phi(query)).double() @ parameters["weight"].T

    @classmethod
    def move_within(cls, model: LinearModel, k: int) -> Move | None:
        """Return a move almost to the surface of the ball for k; None: its radius is infinite."""
        radius = cls.radius(model, k)
        if not np.isfinite(radius):
            return None

        def move(gradients: Parameters) -> Parameters:
            gradient = gradients["weight"]
            norms = cls.norms(model, gradient).clamp(min=NEVER_ZERO)
            return {"weight": model.trained.weight - SLACK * radius * gradient / norms}

        return move

    @classmethod
    def deviations(cls, model: LinearModel, neighbour: LinearModel, k: int) -> Deviations | None:
        """Return the distance of the weights, rounded down, divided by the radius for k.

        None: the radius is infinite.
        """
        radius = cls.radius(model, k)
        if not np.isfinite(radius):
            return None
        weight_difference = neighbour.trained.weight - model.trained.weight
        distance = float(cls.norms(model, weight_difference).max()) * SLACK
        return {"weight": distance / radius}

    @staticmethod
    def norms(model: LinearModel, weight: Tensor) -> Tensor:
        """Return the norms that the radius bounds: [J, 1] of one-vs-all, otherwise [1, 1]."""
        if model.trained.loss.kind == "one_vs_all":
            return torch.linalg.vector_norm(weight, dim=1, keepdim=True)
        return torch.linalg.vector_norm(weight).reshape(1, 1)

    @staticmethod
    def radius(model: LinearModel, k: int) -> float:
        """Return the radius of the ball for k: how far k edits can move the weights at most.

        If the bound is 0, as for k = 0, it is instead the largest distance that rounding explains.
        """
        sensitivity = model.trained.sensitivity
        distance = k * sensitivity.per_k
        return distance if distance else sensitivity.rounding


class VotesBounds(Bounds):
    """The number of members of a vote that k edits change is bounded, as the relation says."""

    @staticmethod
    def parameters(model: VotesModel) -> Parameters:
        """Return the weights of all members."""
        return {"weight": model.weight}

    @staticmethod
    def labels_changed(model: VotesModel, queries: np.ndarray, ks: np.ndarray) -> np.ndarray:
        """Return which labels change when k moves votes from the winner to a rival, [n] bool."""
        member_labels = model.labels(model.phi(queries))
        counts = count_votes(member_labels, model.problem.classes)  # [classes, n]
        rows = np.arange(len(queries))
        winner = counts.argmax(axis=0)
        votes_moved = np.minimum(ks * _members_changed_per_edit(model), counts[winner, rows])
        changed = np.zeros(len(queries), dtype=bool)
        for rival in range(len(counts)):
            edited = counts.copy()
            edited[winner, rows] -= votes_moved
            edited[rival] += votes_moved
            changed |= edited.argmax(axis=0) != winner
        return changed

    @staticmethod
    def deviations(model: VotesModel, neighbour: VotesModel, k: int) -> Deviations | None:
        """Return the number of members that changed, divided by the largest that k may change."""
        members_changed = int((model.weight != neighbour.weight).flatten(1).any(dim=1).sum())
        # k = 0 allows none: any change then gives a share far above 1
        allowed = max(k * _members_changed_per_edit(model), 1e-9)
        return {"weight": members_changed / allowed}


def _members_changed_per_edit(model: VotesModel) -> int:
    """Return the largest number of members of a vote that one edit can change."""
    return RELATIONS[model.settings.relation.name].members_changed_per_edit


class FlipBounds(VotesBounds):
    """Labels of k training records flip: a search finds what so many flips do to a vote."""

    @staticmethod
    def labels_changed(model: Any, queries: np.ndarray, ks: np.ndarray) -> np.ndarray:
        """Return which labels change when k training labels flip, [n] bool.

        For each rival class, the members that need the fewest flips to answer it are changed. The
        audit searches for these flips itself, as an oracle for agt/certificates/flips.py, which
        computes their number.
        """
        scaled_queries = to_integers(model.phi(queries).astype(np.float64))
        changed = np.zeros(len(queries), dtype=bool)
        for row, k in enumerate(ks.tolist()):
            members = [
                MemberInfluence(member.influence @ scaled_queries[row], member.labels)
                for member in model.members
            ]
            changed[row] = flips_change_vote(members, model.problem.classes, k)
        return changed


@dataclass(frozen=True)
class MemberInfluence:
    """What each training record of a member adds to the member's answer to one query.

    Attributes:
        influence: [n] integers, what each record adds to the score of its class.
        labels: [n] the records' labels before any flip.
    """

    influence: np.ndarray
    labels: np.ndarray


def flips_change_vote(members: Sequence[MemberInfluence], classes: int, max_flips: int) -> bool:
    """Return whether a search finds at most ``max_flips`` flips that give a vote another winner.

    For each rival class, the members that need the fewest flips to answer it are changed, as long
    as all their flips together are at most ``max_flips``.

    Args:
        members: the members, which vote on one query.
        classes: how many classes there are.
        max_flips: the largest number of training labels that may flip.
    """
    answers = np.array(
        [scores_of(member.influence, member.labels, classes).argmax() for member in members]
    )
    winner = np.bincount(answers, minlength=classes).argmax()
    for rival in range(classes):
        flips = [
            flips_to_rival(member.influence, member.labels, rival, classes, max_flips)
            for member in members
        ]
        cheapest_first = np.argsort(flips, kind="stable")
        is_affordable = np.array(flips)[cheapest_first].cumsum() <= max_flips
        edited = answers.copy()
        edited[cheapest_first[is_affordable]] = rival
        if np.bincount(edited, minlength=classes).argmax() != winner:
            return True
    return False


def scores_of(influence: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """Return each class's score, [C]: the sum of its records' influence [n] on a query."""
    return np.bincount(labels, weights=influence, minlength=classes)


def flips_to_rival(
    influence: np.ndarray, own_labels: np.ndarray, rival: int, classes: int, max_flips: int
) -> int:
    """Search for flips of training labels after which a member answers ``rival``.

    The labels with the largest gain of the rival on the leading class are flipped until it is past
    that class; then the scores are computed again, until the rival leads.

    Args:
        influence: [n] integers, what each record adds to the score of its class.
        own_labels: [n] the records' labels before any flip.
        rival: the class that the member should answer.
        classes: how many classes there are.
        max_flips: the largest number of flips to try.

    Returns:
        The number of flips; ``max_flips + 1`` if none of at most ``max_flips`` were found.
    """
    labels = own_labels.copy()
    for _ in range(2 * classes):  # once the rival is past one class, another may lead
        scores = scores_of(influence, labels, classes)
        leader = int(scores.argmax())
        flips = int((labels != own_labels).sum())
        if flips > max_flips:
            break
        if leader == rival:
            return flips
        # by how much the rival gains on the leader if a label becomes the rival's or the leader's
        to_rival = np.where(labels != rival, influence * (1 + (labels == leader)), 0)
        to_leader = np.where(labels != leader, -influence * (1 + (labels == rival)), 0)
        gain = np.maximum(to_rival, to_leader)
        strongest_first = np.argsort(-gain, kind="stable")
        # of equal scores the lower class answers
        lead = scores[leader] - scores[rival] + (leader < rival)
        count = int(np.searchsorted(gain[strongest_first].cumsum(), lead)) + 1
        chosen = strongest_first[:count]
        labels[chosen] = np.where(to_rival >= to_leader, rival, leader)[chosen]
    return max_flips + 1


BOUNDS: Mapping[type, Any] = {
    BoxModel: BoxBounds,
    LinearModel: HeadBounds,
    FlipModel: FlipBounds,
    VotesModel: VotesBounds,
}


def bounds_of(model: Model) -> Any:
    """Return the class of ``BOUNDS`` for a model, or for the nearest of its base classes."""
    return next(BOUNDS[kind] for kind in type(model).__mro__ if kind in BOUNDS)
