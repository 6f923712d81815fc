"""The streaming reductions: one contract, several implementations, one test suite."""
