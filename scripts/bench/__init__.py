"""Benchmarks: run by hand on a quiet machine; what they saw stands in docs/performance.md."""
