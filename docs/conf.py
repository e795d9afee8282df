"""How `make docs` builds the site: Sphinx, offline, every warning an error."""

import re
from typing import Any

from docutils import nodes
from sphinx.util.matching import patfilter

import prefermab

project = "prefermab"
author = "the authors of prefermab"
version = release = prefermab.__version__
html_title = f"prefermab {release}"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme = "furo"
html_copy_source = False
html_show_copyright = False
myst_heading_anchors = 3
# Short entries stand right below the title of the decisions.
suppress_warnings = ["myst.header"]

# Docstrings write `names` in single backticks, as Markdown does.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
# What fills in an abstract method is documented there.
autodoc_inherit_docstrings = False
python_maximum_signature_line_length = 88
smartquotes = False  # s' is a next state, not a quotation

# Files at the root of the project that have a page here: the page that includes each.
_INCLUDED = {"README.md": "index", "CONTRIBUTING.md": "contributing", "CHANGELOG.md": "changelog"}
_KEY = "Key[Array, ''] | UInt32[Array, '2'] | UInt32[Array, '4']"


def links_from_the_root(_app: Any, _path: Any, docname: str, content: list[str]) -> None:
    """Links in a file at the root are written from there; the site's root is docs/."""
    if docname in _INCLUDED.values():
        text = re.sub(r"\]\(docs/", "](", content[0])
        text = text.replace("](CITATION.cff)", "](../CITATION.cff)")
        for name, page in _INCLUDED.items():
            text = text.replace(f"]({name})", f"]({page}.md)")
        content[0] = text


def pages_that_are_there(app: Any, docname: str, source: list[str]) -> None:
    """Leaves out of the contents what has not been written, such as a study that was not run."""
    if docname == "index":
        source[0] = "\n".join(
            line
            for line in source[0].splitlines()
            if not re.fullmatch(r"[\w/*-]+", line) or patfilter(app.env.found_docs, line)
        )


def anchors(_app: Any, _docname: str, source: list[str]) -> None:
    """An anchor in HTML, which Markdown knows everywhere, as one that links are checked against."""
    source[0] = re.sub(r'^<a id="([\w-]+)"></a>$', r"(\1)=", source[0], flags=re.MULTILINE)


def plain_text(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: Any) -> None:
    """A bar or a star in a docstring is one; reStructuredText would read them as markup."""
    example = False
    for i, line in enumerate(lines):
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        if not example:
            parts = re.split(r"(`[^`]*`)", line)
            lines[i] = "".join(
                part if part.startswith("`") else re.sub(r"([|*])", r"\\\1", part) for part in parts
            )


def short_types(
    _app: Any, _what: str, _name: str, _object: Any, _options: Any, given: str, returned: str
) -> tuple[str | None, str | None]:
    """Key for all the forms of a key, and … for a default that is made when needed."""

    def shorter(text: str | None) -> str | None:
        text = text and short_arrays(text).replace(_KEY, "Key")
        return text and re.sub(r"<\w+>", "...", text)

    return shorter(given), shorter(returned)


def short_arrays(text: str) -> str:
    """Array, without the module that JAX keeps it in."""
    return text.replace("jaxlib._jax.Array", "Array")


def short_properties(_app: Any, doctree: nodes.document) -> None:
    """The types of properties, which pass no other hook."""
    for text in list(doctree.findall(nodes.Text)):
        if "jaxlib." in text:
            text.parent.replace(text, nodes.Text(short_arrays(str(text))))


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("include-read", links_from_the_root)
    app.connect("source-read", pages_that_are_there)
    app.connect("source-read", anchors)
    app.connect("autodoc-process-docstring", plain_text, priority=400)  # before Args are parsed
    app.connect("autodoc-process-signature", short_types)
    app.connect("doctree-read", short_properties)
