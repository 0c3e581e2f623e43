"""The exercises of the labs as data: what a learner must reach, how it is judged, and the learner's progress."""
