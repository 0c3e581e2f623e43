"""The search by night: random schedules of faults, what must follow from them, and what did."""
