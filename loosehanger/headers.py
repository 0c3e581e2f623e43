"""The record headers that the kit's producer sets."""

from typing import Final

RUN: Final = "lh-run"
"""The producer's run."""
SEQ: Final = "lh-seq"
"""The number of the event within its run, topic and partition."""
ORIGIN: Final = "lh-origin"
"""The region that the event comes from."""
TIME: Final = "lh-time"
"""When the event was sent, in milliseconds since the epoch."""
