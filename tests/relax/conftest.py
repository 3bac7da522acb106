"""Tests that use Relax directly: pytest holds its TVM (`--tvm relax`)."""

from passlab.relax import relax  # noqa: F401  (before anything imports the other TVM)
