"""Example programs: PROGRAMS["matmul"] and others."""

from __future__ import annotations

from passlab.polyhedral.parse import parse
from passlab.polyhedral.program import Program

_SOURCES = {
    "matmul": """
for i in range(M):
    for j in range(N):
        C[i, j] = 0
        for k in range(K):
            C[i, j] += A[i, k] * B[k, j]
""",
    "conv2d": """
for y in range(H):
    for x in range(W):
        O[y, x] = 0
        for r in range(R):
            for s in range(R):
                O[y, x] += I[y + r, x + s] * K[r, s]
""",
    "jacobi1d": """
for t in range(T):
    for i in range(1, N - 1):
        A[t + 1, i] = (A[t, i - 1] + A[t, i] + A[t, i + 1]) / 3
""",
    "jacobi1d_two_rows": """
for t in range(T):
    for i in range(1, N - 1):
        A[(t + 1) % 2, i] = (A[t % 2, i - 1] + A[t % 2, i] + A[t % 2, i + 1]) / 3
""",
    "jacobi2d": """
for t in range(T):
    for i in range(1, N - 1):
        for j in range(1, N - 1):
            A[t + 1, i, j] = (A[t, i, j] + A[t, i - 1, j] + A[t, i + 1, j] + A[t, i, j - 1] + A[t, i, j + 1]) / 5
""",
    "jacobi2d_two_planes": """
for t in range(T):
    for i in range(1, N - 1):
        for j in range(1, N - 1):
            A[(t + 1) % 2, i, j] = (
                A[t % 2, i, j] + A[t % 2, i - 1, j] + A[t % 2, i + 1, j] + A[t % 2, i, j - 1] + A[t % 2, i, j + 1]
            ) / 5
""",
    "seidel": """
for t in range(T):
    for i in range(1, N - 1):
        A[i] = (A[i - 1] + A[i] + A[i + 1]) / 3
""",
    "lu": """
for k in range(N):
    for i in range(k + 1, N):
        A[i, k] = A[i, k] / A[k, k]
        for j in range(k + 1, N):
            A[i, j] -= A[i, k] * A[k, j]
""",
    "trisolve": """
for i in range(N):
    x[i] = b[i]
    for j in range(i):
        x[i] -= L[i, j] * x[j]
    x[i] = x[i] / L[i, i]
""",
    # small ones, for questions
    "copy": """
for i in range(N):
    for j in range(N):
        B[i, j] = A[i, j]
""",
    "transpose": """
for i in range(N):
    for j in range(N):
        B[j, i] = A[i, j]
""",
    "prefix_sum": """
for i in range(1, N):
    A[i] = A[i] + A[i - 1]
""",
    "shift": """
for i in range(N - 1):
    A[i] = A[i + 1] + 1
""",
    "diagonal": """
for i in range(1, N):
    for j in range(N - 1):
        A[i, j] = A[i - 1, j + 1] + 1
""",
    "two_loops": """
for i in range(N):
    B[i] = A[i] * 2
for i in range(N):
    C[i] = B[i] + 1
""",
    "two_loops_ahead": """
for i in range(N):
    B[i] = A[i] * 2
for i in range(N - 1):
    C[i] = B[i] + B[i + 1]
""",
    "overwrite": """
for i in range(N):
    B[i] = A[i] * 2
    A[i] = B[i] + 1
    B[i] = A[i] * A[i]
""",
}

#: Name → loop nest, with its domain, accesses and schedule.
PROGRAMS: dict[str, Program] = {name: parse(source, name) for name, source in _SOURCES.items()}
