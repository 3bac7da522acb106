"""`make book`: the course as a web book, with the outputs of its lessons.

    stored.py     runs lessons, and keeps their outputs for as long as their cells and the pinned versions stay the same
    charts.py     words for the pictures of matplotlib
    pages.py      writes what Sphinx reads: lessons with outputs, exercises without answers, the front page
    reference.py  the library: what notebooks use of it, from its docstrings
    look/         the style of the pages, and Sphinx's settings
    lighter.py    mends what Sphinx has written
    check.py      links that lead nowhere, pictures without words, and pages that are too large
    reading.py    every page in a browser: what axe finds, in light, in dark and on a phone (`--check`)

Nothing is downloaded: Sphinx, MyST-NB and the theme are packages, and pages load from their own folder only.
"""
