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
# # Day 7 · TVM Relay: exercises
#
# Eight questions, about 150 minutes. Read the lesson first: [day07_relay.ipynb](../../course/day07_relay.ipynb).
#
# Write each answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading asks the same on more cases, drawn anew each time. `hint("day07.batchnorm")` opens
# a hint, three for each question. All modules are modules of the real Relay (TVM 0.17), and what your pass returns is
# built and run. A Relay module is never edited: a pass returns a new one. Pictures stay away until there is an answer.

# %%
from contextlib import suppress

from IPython.display import display

from passlab import check, diff, draw, models, progress
from passlab.relay import relay, tvm

# %%
progress("day07")
