"""Violations planted on purpose, each small: an auditor that misses one is broken, and says nothing about anybody else.

Each module has ``PLANTED``: a name -> a function of a seed that plants the violation, audits it as a run would be audited,
and returns the finding, whose outcome must be ``violated``. ``agt audit selftest`` runs them all.
"""
