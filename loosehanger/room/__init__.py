"""A room's progress on one page: what ``./lab learn --collect`` serves to the learners and to the person in front."""
