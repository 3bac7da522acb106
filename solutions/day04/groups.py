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
# # Day 4 · Fusion groups: exercises
#
# One questions. Read the lesson first: [day04_fusion.ipynb](../../course/day04_fusion.ipynb).
#
# Write each answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading asks the same on more cases, drawn anew each time. `hint("day04.groups")` opens a
# hint, three for each question.

# %%
from torch import fx

from passlab import check, draw, progress, trace

# %%
progress("day04")

# %% [markdown]
# ## 1 · The groups of FuseOps, on FX
#
# SECTION groups [B]
