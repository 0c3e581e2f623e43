"""The Spark pipeline: pure transforms of frames, and the edges where records and positions come in."""
