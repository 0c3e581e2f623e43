"""Buckets of record time, by which both the proof and the audit sum up records."""

from __future__ import annotations

BUCKET_MS = 10_000
"""How much time a bucket spans, in milliseconds."""
