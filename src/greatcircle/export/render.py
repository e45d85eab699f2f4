"""Render exported source files from the Jinja templates in `templates/`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from greatcircle._runtime.extras import require
from greatcircle.export.rounded import RoundedModel
from greatcircle.export.text import literal, plain, table

__all__ = ["render"]


def render(
    template: str,
    model: RoundedModel,
    filters: Mapping[str, Callable[..., Any]],
    context: Mapping[str, Any],
) -> str:
    """Return the text of a template.

    Parameters
    ----------
    template
        File in `templates/`.
    model
        The model to write; templates also include `description.j2`, which describes it.
    filters
        Functions that write values in the language of the file.
    context
        Other variables of the template.
    """
    jinja2 = require("jinja2", "export", "export to C or Python")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # the filters escape what comes from outside
    )
    environment.filters |= {"literal": literal, "plain": plain, "table": table, **filters}
    return environment.get_template(template).render(model=model, **context)
