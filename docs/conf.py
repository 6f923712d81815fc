"""How Sphinx builds the site: make docs."""

from importlib.metadata import version

project = "agt"
author = "the authors of agt"
copyright = "the authors of agt, Apache-2.0"
release = version("agt-certified")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"agt {release}"
