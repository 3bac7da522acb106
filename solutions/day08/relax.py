# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Day 8 · TVM today: exercises
#
# Six questions, about 120 minutes. Read the lesson first: [day08_relax.ipynb](../../course/day08_relax.ipynb).
#
# Write each answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading asks the same on more cases, drawn anew each time. `hint("day08.port")` opens a
# hint, three for each question. A process can hold one TVM: this notebook holds today's (0.27). To go back to day 7,
# open that notebook, which has a kernel of its own.

# %%
from contextlib import suppress

from IPython.display import display

from passlab import check, diff, draw, progress
from passlab.relax import relax, tvm

# %%
progress("day08")
