"""The parts of ``agt start``: its settings, questions, remarks, plan and proposed commands."""
