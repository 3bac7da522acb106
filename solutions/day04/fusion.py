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
# # Day 4 · Fusion: exercises
#
# Seven questions. Read the lesson first: [day04_fusion.ipynb](../../course/day04_fusion.ipynb).
#
# Write each answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading asks the same on more cases, drawn anew each time. `hint("day04.chains")` opens a
# hint, three for each question.

# %%
import torch
from torch import fx

from passlab import check, diff, draw, progress, trace

# %%
progress("day04")

# %% [markdown]
# ## 1 · Chains of element-wise operations
#
# SECTION chains [B]

# %% [markdown]
# ## 2 · May this group be one kernel?
#
# SECTION convex [B]

# %% [markdown]
# ## 3 · Linear, bias and activation
#
# SECTION linear-act [C]

# %% [markdown]
# ## 4 · Attention
#
# SECTION attention [C]

# %% [markdown]
# ## 5 · From a group to a kernel
#
# SECTION codegen [D]

# %% [markdown]
# ## 6 · To fuse or not
#
# SECTION cost [D]

# %% [markdown]
# ## 7 · What fusion saves
#
# SECTION measure [D]
