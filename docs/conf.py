"""Build the site: sphinx-build -W --keep-going -b html docs docs/_build/html."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import sklode

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS / "_ext"))

project = "sklode"
author = "the sklode developers"
project_copyright = author
version = release = sklode.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "code_host_links",
    "gallery_settings",
    "reference_members",
]
exclude_patterns = ["_build", "gallery/*.ipynb", "sg_execution_times.rst"]
templates_path = ["_templates"]
# A link of a page that does not resolve is a warning, and so an error of the build; the
# types in docstrings, which nitpicky asks pages of, are words.
nitpicky = False
# The gallery shows no folder below examples, but looks there for names used twice.
suppress_warnings = ["sphinx_gallery.duplicate_filename"]

# Pages: Markdown that reads well on a code host too, hence dollars for mathematics
# and anchors made of headings as there.
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

# Reference: one page per class or function, from its docstring.
autosummary_generate = True
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"  # the docstrings give types, shapes and units
numpydoc_show_class_members = False  # the templates list them
numpydoc_use_plots = False
default_role = "py:obj"  # what a docstring has in backticks is code

# Gallery: every script is run, and one that fails fails the build.
sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"\.py$",
    "nested_sections": False,
    "within_subsection_order": "gallery_settings.AsListed",
    "reset_argv": "gallery_settings.output_elsewhere",
    "reset_modules": ("matplotlib", "gallery_settings.compile_first"),
    "min_reported_time": 1,
    "download_all_examples": False,
    "show_memory": False,
    "parallel": os.cpu_count(),
    "remove_config_comments": True,
}

html_theme = "pydata_sphinx_theme"
html_title = f"sklode {release}"
html_static_path = ["_static"]
html_css_files = ["sklode.css"]
html_js_files = ["pictures.js"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "sklode"},
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
}
html_sidebars = {  # pages without others below them
    page: []
    for page in (
        "index",
        "install",
        "tour",
        "troubleshooting",
        "from_*",
        "optuna",
        "comparison",
        "glossary",
        "changelog",
    )
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
