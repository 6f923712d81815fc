"""How Sphinx builds the site (make docs, scripts/site.py)."""

from importlib import metadata

project = "agt"
author = "the authors of agt"
copyright = "the authors of agt. Licence: Apache-2.0"
release = metadata.version("agt-certified")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

# Pages link to each other's headings in the way that GitHub does.
myst_heading_anchors = 4

napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_default_options = {
    "members": True,
    # scikit-learn adds these to every estimator, and documents them.
    "exclude-members": "set_fit_request, set_score_request, set_predict_request, "
    "set_predict_proba_request, set_decision_function_request, get_metadata_routing",
}

html_theme = "furo"
html_title = f"agt {release}"
html_show_sourcelink = False
