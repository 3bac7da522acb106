"""`make book`: the course as a web book, with the outputs of its lessons.

    stored.py     runs lessons, and keeps their outputs for as long as their cells and the pinned versions stay the same
    pages.py      writes what Sphinx reads: lessons with outputs, exercises without answers, the front page, the library
    look/         the style of the pages, and Sphinx's settings
    check.py      links that lead nowhere, and pages that are too large

Nothing is downloaded: Sphinx, MyST-NB and the theme are packages, and pages load from their own folder only.
"""
