"""Sphinx's settings for the book. Everything it needs is installed; nothing is loaded from elsewhere."""

project = "PassLab"
author = "the PassLab authors"
extensions = ["myst_nb"]
html_theme = "sphinx_book_theme"
html_title = "PassLab"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
html_sidebars = {"**": ["search-button-field.html", "sbt-sidebar-nav.html"]}
html_theme_options = {
    "show_toc_level": 2,
    "use_download_button": False,
    "use_fullscreen_button": True,
    "home_page_in_toc": True,
    "show_navbar_depth": 1,
    "navbar_persistent": [],
}
nb_execution_mode = "off"
nb_merge_streams = True
nb_output_stderr = "remove"
myst_heading_anchors = 4
suppress_warnings = ["myst.header", "mystnb.unknown_mime_type", "config.cache"]
exclude_patterns = ["_build"]
