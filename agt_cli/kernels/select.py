"""Which device and which kernel a run uses."""

import torch

from agt_cli.errors import ConfigError
from agt_cli.kernels.contract import Kernel
from agt_cli.kernels.reference import ReferenceKernel
from agt_cli.schema import ComputeConfig


def pick_device(compute: ComputeConfig) -> torch.device:
    """The device asked for.

    Raises:
        ConfigError: compute.device=cuda and there is no usable GPU.
    """
    if compute.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "compute.device=cuda: this PyTorch sees no GPU (torch.cuda.is_available() is False); use compute.device=cpu"
        )
    return torch.device(compute.device)


def pick_kernel(compute: ComputeConfig) -> Kernel:
    """The kernel asked for, or the fastest for the device.

    Raises:
        ConfigError: the kernel does not run on this device.
    """
    if compute.kernel == "gpu":
        raise ConfigError("compute.kernel=gpu is not built yet: use compute.kernel=reference, which runs on the GPU too")
    if compute.kernel == "cpu" and compute.device != "cpu":
        raise ConfigError(f"compute.kernel=cpu does not run on compute.device={compute.device}")
    if compute.kernel == "reference" or compute.device != "cpu":
        return ReferenceKernel()
    from agt_cli.kernels.cpu import CpuKernel  # Numba takes a second to import, and only this kernel needs it

    return CpuKernel()
