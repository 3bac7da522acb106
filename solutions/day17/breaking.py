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
# # Day 17 · Breaking compilers: exercises
#
# Six questions. The core is questions 1, 2 and 3; the rest is stretch: harder, and for extra credit. Read the lesson
# first: [day17_breaking.ipynb](../../course/day17_breaking.ipynb).
#
# Write each answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading uses more cases, newly drawn each time. `hint("day17.oracle")` opens a hint, three
# for each question. For each test case an answer has five seconds of computing time, unless its text says otherwise.

# %%
import torch
from torch import fx

from passlab import check, hint, progress

# %%
progress("day17")
