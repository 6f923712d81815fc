"""Which queries an ensemble still answers while erasure requests wait in its shards (000 section 4.2).

Shards are disjoint, so a request concerns one member. Until that member was retrained its vote may not be used as it is.
Without certificates it is offline: nobody knows what it will say. With them it still votes wherever its label is certified
for as many removals as wait in its shard.

Formal guarantees of ``answerable``
    Let member i have label y_i and stable distance d_i, and k_i units of its shard to be removed. Its vote is known if
    k_i <= d_i: then every dataset with those k_i units removed gives it the label y_i, whichever they are, and so does the
    retrained member (the certificate's relation must cover removals). Let U be how many votes are not known, n_c how many
    known ones are for c, and y the class that wins among known votes, ties to the smaller class as in votes.py. The vote is
    y whatever the U say if and only if, for each rival r, n_y - n_r >= U + [r < y]:
    if: r gains at most U from them, and y loses none, so y stays ahead of r, or level with r > y, which y wins;
    only if: all U may say r, and then r is ahead of y, or level with r < y.
    With U >= 1 no other class can be certain either: it would have to win where the U vote y. So a query is answerable if
    and only if its label is the same for all votes of the unknown.
    It takes in whatever the ensemble's own stable distance L allows. Let sum_i k_i <= L. Each unknown member has
    k_i >= d_i + 1, so to change all of them costs at most sum_i k_i <= L < F (votes.py: F is the least sum of d_i + 1 over
    members whose change turns the vote), and the vote stands. The converse fails: requests that lie in many shards, a few
    in each, change nothing however many they are.
    Without certificates all distances are 0, and a member is known if and only if nothing waits for it.
"""

from collections.abc import Sequence

import numpy as np

from agt.certificates.votes import vote_counts


def answerable(distances: np.ndarray, labels: np.ndarray, pending: np.ndarray, classes: int = 2) -> np.ndarray:
    """[queries] bool: whether the vote's label is certain while requests wait.

    Args:
        distances: [members, queries] stable distances of the members, under a relation that covers removals; zeros: there
            are no certificates, and a member with a request is offline.
        labels: [members, queries] the members' labels, 0..classes-1 (``VoteCertificates.members``,
            ``VoteCertificates.member_distances``).
        pending: [members] how many units of each member's shard are to be removed.
        classes: how many there are.

    Raises:
        ConfigError: labels or distances are none (votes.py).
        ValueError: pending is not one count, at least 0, for each member.
    """
    pending = np.asarray(pending)
    if pending.shape != labels.shape[:1] or (pending < 0).any():
        raise ValueError(f"pending requests {pending} are not one count for each of {len(labels)} members")
    known = pending[:, None] <= distances
    counts = vote_counts(labels, distances, classes, known)
    unknown, winner = (~known).sum(axis=0), counts.argmax(axis=0)
    rivals = np.arange(classes)[:, None]
    ahead = counts.max(axis=0) - counts >= unknown + (rivals < winner)
    certain: np.ndarray = (ahead | (rivals == winner)).all(axis=0)
    return certain


def random_requests(home: np.ndarray, members: int, requests: int, rng: np.random.Generator) -> np.ndarray:
    """[members] how many of so many requests wait for each: requests of different units, chosen uniformly.

    Args:
        home: [units] the member of each unit (``training.ensemble.shards``).
        requests: at most as many as there are units.
    """
    chosen = rng.choice(len(home), size=requests, replace=False)
    return np.bincount(home[chosen], minlength=members)


def spread_requests(members: int, requests: int) -> np.ndarray:
    """[members] the same of somebody who knows the public key and takes the members in turn, one request for each."""
    return np.bincount(np.arange(requests) % members, minlength=members)


def availability(
    distances: np.ndarray,
    labels: np.ndarray,
    home: np.ndarray,
    requests: Sequence[int],
    rng: np.random.Generator,
    classes: int = 2,
    draws: int = 100,
) -> np.ndarray:
    """[len(requests)] the mean share of queries that are answered while so many random requests wait.

    Args:
        distances, labels, classes: as in ``answerable``.
        home: [units] the member of each unit.
        requests: how many wait at once.
        draws: of so many requests each, over which the mean is taken.
    """
    members = len(labels)

    def share(count: int) -> float:
        waiting = (random_requests(home, members, count, rng) for _ in range(draws))
        return float(np.mean([answerable(distances, labels, pending, classes).mean() for pending in waiting]))

    return np.array([share(count) for count in requests])
