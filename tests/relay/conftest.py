"""Tests that use Relay directly: pytest holds its TVM (`--tvm relay`)."""

from passlab.relay import relay  # noqa: F401  (before anything imports the other TVM)
