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
# # Day 10 · The polyhedral model: exercises
#
# Seven questions. Read the lesson first: [day10_polyhedral.ipynb](../../course/day10_polyhedral.ipynb).
#
# Write each answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading asks the same on more cases, drawn anew each time. `hint("day10.domains")` opens a
# hint, three for each question.

# %%
import islpy as isl

from passlab import check, progress

# %%
progress("day10")

# %% [markdown]
# ## 1 · Domains and accesses
#
# SECTION domains [G]

# %% [markdown]
# ## 2 · Dependences
#
# SECTION dependences [G]

# %% [markdown]
# ## 3 · Is this order legal?
#
# SECTION legality [G]

# %% [markdown]
# ## 4 · Skew a stencil
#
# SECTION skew [G]

# %% [markdown]
# ## 5 · From a schedule to a loop nest
#
# SECTION generate [H]

# %% [markdown]
# ## 6 · A schedule that is fast
#
# SECTION tile [H]

# %% [markdown]
# ## 7 · The same order in TVM
#
# SECTION tvm [H]
