"""Sphinx configuration: `python -m sphinx -W -b html docs docs/_build`."""

import html
import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
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

# Docstrings are numpydoc; single backticks in them mark code, as in Markdown.
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

# Corrections of the MathML that docutils writes: browsers stretch bars and angle brackets that it
# does not pair (FENCES), the subscript of an accented letter is placed below it (ACCENTED), and
# there is no space after the name of a function (APPLIED).
FENCES = re.compile(r'<mo(?: class="mathopen")?>([|‖⟨⟩])</mo>')
FENCE = r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>'
ACCENTED = re.compile(
    r"<munderover>\s*(<mi.*?</mi>)\s*(.*?)\s*(<mo stretchy=\"false\">.</mo>)\s*</munderover>",
    re.DOTALL,
)
WITH_SUBSCRIPT = r'<msub><mover accent="true">\1\3</mover>\2</msub>'
APPLIED = re.compile(r"<mo>&ApplyFunction;</mo>(?=\s*<m[ins])")


def _mathml(node: nodes.math | nodes.math_block, as_block: bool) -> str:
    """Return a formula as MathML, or as code with a warning if docutils cannot convert it."""
    try:
        shown = tex2mathml(node.astext(), as_block)
    except MathError as error:
        logging.getLogger(__name__).warning("%s in %r", error, node.astext(), location=node)
        return f"<code>{html.escape(node.astext())}</code>"
    shown = APPLIED.sub('<mspace width="0.17em"/>', shown)
    return FENCES.sub(FENCE, ACCENTED.sub(WITH_SUBSCRIPT, shown))


def _inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(_mathml(node, as_block=False))
    raise nodes.SkipNode


def _block(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math">{_mathml(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Render formulas as MathML with docutils, so that pages need no script and no network."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
