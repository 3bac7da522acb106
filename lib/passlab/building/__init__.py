"""Build and run modules of any compiler in another process, because a compiler may end the one it runs in.

Reading order: compiler (what the package of an IR offers), requests (this process), server (the other one), arrays
(tensors as bytes), cache (results on disk). `passlab.tvm.builds` and `passlab.mlir.run` make the requests.
"""
