"""Faults that break mirrors on purpose: a catalogue as data, and the changes that it is made of."""
