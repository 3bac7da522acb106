"""`make gpu`: what can be checked only on a machine with an NVIDIA GPU, and its figures.

    make gpu PYTHON=/path/to/python         # any Python 3.11 to 3.13 with torch, numpy and triton
    python -m autograder.gpu --interpret    # without a GPU: what a CPU and Triton's interpreter can do

It reads no network, needs no `make setup`, and takes less than nine minutes: each part has a process and a budget of
its own. A part that lacks something names it in the table. Each part is a module here.
"""
