"""Benchmarks: run by hand on a quiet machine; their results are in docs/performance.md."""
