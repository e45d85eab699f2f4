"""Sphinx settings: `python -m sphinx -W -b html docs docs/_build`."""

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

import greatcircle

project = "greatcircle"
author = "The greatcircle developers"
copyright = "the greatcircle developers"
version = release = greatcircle.__version__
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build"]

myst_enable_extensions = ["amsmath", "dollarmath"]
myst_heading_anchors = 3

# Docstrings are numpydoc; a single pair of backticks in them means code, as in Markdown.
default_role = "code"
napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autosummary_generate = False
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"greatcircle {release}"
html_static_path = ["_static"]
html_css_files = ["math.css"]
html_show_sphinx = False
html_copy_source = False
html_math_renderer = "mathml"


def _inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _block(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Formulas as MathML, by docutils: they need no script and no network to be shown."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
