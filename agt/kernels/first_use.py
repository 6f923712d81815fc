"""Compiled functions are compared with the reference kernel when they are first used.

Compiling and comparing a function takes seconds, and a run uses few of a kernel's functions.
"""

from collections.abc import Callable, Mapping
from contextvars import Context
from threading import RLock
from typing import Any

from agt.errors import AgtError
from agt.kernels.reference import ReferenceKernel
from agt.kernels.selftest import CASES, check_cases, warn_of_replacement

CompiledFunction = Callable[..., Any]


class NotUsableError(Exception):
    """A compiled function does not work on this machine; the reference kernel must do its work."""


class FirstUseChecks:
    """Tests a kernel's compiled functions, each once in a process, before its first use.

    Formal guarantees:
        - ``require`` returns only for a function that gave the reference kernel's numbers, bit for
          bit, in each of its cases.
        - What it does for a function never changes in a process: a function that did not work once
          is not used later.
    """

    def __init__(
        self, kernel: ReferenceKernel, cases: Mapping[CompiledFunction, tuple[str, ...]]
    ) -> None:
        """Start with no function tested.

        Args:
            kernel: the kernel under test; it must run its functions without calling ``require``.
            cases: function -> the names of the cases of the self-test that run it.
        """
        self._kernel = kernel
        self._cases = cases
        self._works: dict[CompiledFunction, bool] = {}
        self._lock = RLock()  # a second thread waits for the test

    def require(self, function: CompiledFunction) -> None:
        """Return if a function may be used, which is tested unless it was before.

        Raises:
            UnsoundError: the function runs, but a number of its self-test is not the reference
                kernel's.
            NotUsableError: it cannot be compiled or run here. A warning names the cause once.
        """
        with self._lock:
            if function not in self._works:
                self._works[function] = self._test(function)
        if not self._works[function]:
            raise NotUsableError

    def _test(self, function: CompiledFunction) -> bool:
        """Run a function's cases; return False, with a warning, if it does not work here.

        Raises:
            UnsoundError: a number is not the reference kernel's.
        """
        cases = {name: CASES[name] for name in self._cases[function]}  # a wrong name is an error
        try:
            # In a context of its own: the caller may be recording overflows, and the intervals of
            # the test are none of its records.
            Context().run(check_cases, self._kernel, "cpu", cases)
        except AgtError:
            raise  # the function runs and returns wrong numbers, which no other code may hide
        except Exception as error:  # compilers raise exceptions of any class
            warn_of_replacement(self._kernel.name, ReferenceKernel.name, error)
            return False
        return True
