"""Settings of commands, without the runs and the data that they name: a module for each command.

Nothing here loads NumPy or PyTorch, and a command's module loads the settings of that command
alone, so that a mistake in a setting is answered at once (agt_cli/checks.py). The commands' own
classes inherit from those here.
"""
