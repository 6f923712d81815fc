"""Choosing the device and the kernel (the code that sums gradients) of a run."""

from functools import cache
from itertools import pairwise

import torch

from agt.errors import AgtError, ConfigError
from agt.kernels.memory import keep_freed_memory
from agt.kernels.reference import ReferenceKernel
from agt.kernels.selftest import check_kernel as check_kernel, warn_of_replacement
from agt.messages import Message
from agt.settings import KERNELS, ComputeConfig


def pick_device(compute: ComputeConfig) -> torch.device:
    """Return the PyTorch device that the configuration ``compute.device`` names.

    Args:
        compute: the run's settings of device and kernel.

    Raises:
        ConfigError: compute.device=cuda and there is no usable GPU.
    """
    if compute.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            Message(
                (
                    "{config:compute.device}=cuda: PyTorch finds no GPU (torch.cuda.is_available() "
                    "is False): use {config:compute.device}=cpu"
                ),
            )
        )
    return torch.device(compute.device)


def pick_kernel(compute: ComputeConfig) -> ReferenceKernel:
    """Return the kernel that ``compute.kernel`` names; for "auto" the fastest one of the device.

    All kernels return the same numbers. A kernel that does not work here (an import, a compiler or
    a launch fails) is replaced by the next slower one, with a warning. The choice is made once in a
    process. A kernel that tests each of its functions when it is first used is not tested here.

    Args:
        compute: the run's settings of device and kernel, as ``pick_device`` accepts them.

    Raises:
        UnsoundError: the kernel runs, but a number of its self-test is not the reference kernel's.
    """
    keep_freed_memory()  # for speed: kernels allocate and free the same memory again and again
    kernels: tuple[str, ...] = KERNELS[compute.device]
    if compute.kernel != "auto":
        kernels = kernels[kernels.index(compute.kernel) :]
    return _first_working(kernels, compute.device)


@cache
def _first_working(names: tuple[str, ...], device: str) -> ReferenceKernel:
    """Return the first kernel that can be loaded and that passes its self-test.

    A kernel that tests each function when it is first used passes or fails then.

    Args:
        names: the kernels to try, in this order. The last one is returned without a self-test.
        device: the device that the self-tests run on, "cpu" or "cuda".

    Raises:
        UnsoundError: a kernel runs, but a number of its self-test is not the reference kernel's.
    """
    for name, next_name in pairwise(names):
        try:
            kernel = load_kernel(name)
            if not kernel.tests_functions_when_used:
                check_kernel(kernel, device)
            return kernel
        except AgtError:
            raise  # the kernel runs and returns wrong numbers, which no other kernel may hide
        except Exception as error:
            # Compilers raise exceptions of any class. The warning names the cause, and the next
            # kernel gives the same numbers.
            warn_of_replacement(name, next_name, error)
    return load_kernel(names[-1])


def load_kernel(name: str) -> ReferenceKernel:
    """Return a new kernel, of which no function has been tested yet.

    Args:
        name: "cpu" (Numba) or "gpu" (Triton); every other name gives the reference kernel
            (PyTorch).

    Raises:
        ImportError: the library that the kernel is written in is not installed.
    """
    # Imported here, because Numba takes a second and Triton may not be installed.
    if name == "cpu":
        from agt.kernels.cpu import CpuKernel

        return CpuKernel()
    if name == "gpu":
        from agt.kernels.gpu import GpuKernel

        return GpuKernel()
    return ReferenceKernel()
