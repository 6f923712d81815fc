"""Audits of a run: each kind opens what it needs, attacks with agt.audit, and says what it found."""
