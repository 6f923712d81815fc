"""States at the ends of a training's stages, kept so that a later training begins at one of them (batches.py, SISA).

Formal guarantees
    The state at the end of stage s is a function of the settings and of the records of slices 1..s, in the order that
    ``training.ensemble.parts`` gives them: no other record has been in a batch, and nothing else of the data decides a
    constant (``BatchPlan``). A training that begins there takes the same further steps as one that came by (checkpoint.py:
    a state is all that later steps depend on). So where slices 1..s are the same records, the two end with the same bits.
    A run that was killed goes on with the states that it had kept: they are part of its checkpoints.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from safetensors.torch import load, save

from agt.errors import UnsoundError
from agt.training.checkpoint import Checkpoints, State, Tensors, apart, header_of

_STAGE = "stage"


@dataclass
class Stages:
    """Checkpoints that keep what a training reached at the end of each stage but the last (``Checkpoints``).

    Attributes:
        inner: what a killed run goes on from.
        ends: how many steps were taken at each of those ends (``BatchPlan.ends``).
        reached: the states so far; a training that has nothing to go on from begins at the last of them.
        parts: the same of those that ``part`` gives, by name.
    """

    inner: Checkpoints
    ends: tuple[int, ...]
    reached: tuple[State, ...] = ()
    parts: Mapping[str, tuple[State, ...]] = field(default_factory=dict)

    def part(self, name: str) -> "Stages":
        """As ``Checkpoints``."""
        return Stages(self.inner.part(name), self.ends, self.parts.get(name, ()))

    def last(self) -> State | None:
        """As ``Checkpoints``."""
        state = self.inner.last()
        if state is None:
            return State(self.reached[-1].step, apart(self.reached[-1].tensors)) if self.reached else None
        self.reached = tuple(State(end, _taken_out(state.tensors, end)) for end in self.ends if end <= state.step)
        return State(state.step, {name: t for name, t in state.tensors.items() if not name.startswith(f"{_STAGE}/")})

    def offer(self, step: int, tensors: Callable[[], Tensors], last: bool = False) -> None:
        """As ``Checkpoints``."""
        if step in self.ends:
            self.reached = (*self.reached, State(step, apart(tensors())))
        self.inner.offer(step, lambda: {**tensors(), **self._packed()}, last)

    def number(self, name: str, draw: Callable[[], int]) -> int:
        """As ``Checkpoints``."""
        return self.inner.number(name, draw)

    def _packed(self) -> Tensors:
        return {f"{_STAGE}/{s.step}/{name}": tensor for s in self.reached for name, tensor in s.tensors.items()}


def _taken_out(tensors: Tensors, end: int) -> Tensors:
    start = f"{_STAGE}/{end}/"
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def written(state: State) -> bytes:
    """A state as a file."""
    return save(state.tensors, metadata={"step": str(state.step)})


def read_state(content: bytes, step: int) -> State:
    """The state after so many steps, from a file that ``written`` made.

    Raises:
        UnsoundError: it is after another number of steps, or a tensor is not finite.
    """
    said, tensors = header_of(content).get("step"), apart(load(content))
    if said != str(step):
        raise UnsoundError(f"a state kept on the way says it is after {said} steps, expected {step}: train again")
    if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
        raise UnsoundError(f"the state after {step} steps has a number that is NaN or infinite: train again")
    return State(step, tensors)
