"""Stages: the steps of a switch, what must hold before each, and what each leaves behind."""
