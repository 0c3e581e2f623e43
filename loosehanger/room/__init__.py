"""The progress of a room of learners on one page: what ``./lab learn --collect`` serves to them and to the trainer."""
