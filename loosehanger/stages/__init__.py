"""Stages: their steps, the conditions before a switch, and the snapshots that each step keeps."""
