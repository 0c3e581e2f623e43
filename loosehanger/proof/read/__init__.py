"""Where records and positions come into the proof."""
