"""The programs that are compared: every one computes the models of `_models` in its own way."""

from benchmarks.peers._protocol import PEERS as PEERS
from benchmarks.peers._protocol import Program as Program
from benchmarks.peers._protocol import build as build
