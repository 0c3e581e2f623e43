"""Proves that what had to be mirrored was mirrored: an ordinary Spark application, see README.md."""

from __future__ import annotations

import json
import sys

try:
    from loosehanger.jobs import prove
except Exception as error:
    if __name__ != "__main__":
        raise
    # A package that is missing, or a Python that is too old: found by spark-submit on a machine without the kit.
    _reason = f"the proof cannot start with {sys.executable}: {type(error).__name__}: {error}"
    if "--json" in sys.argv:
        _totals = (
            "source_records target_records after_cut missing never_mirrored duplicates reordered unexpected altered "
            "moved expired source_gaps config_differences"
        )
        _document = {
            "scenario": "",
            "verdict": "inconclusive",
            "reasons": [_reason],
            "claims": [],
            "cut": {},
            "flows": [],
            "only_at_target": [],
            "notes": [],
            "totals": dict.fromkeys(_totals.split(), 0),
            "seconds": 0.0,
            "records_per_second": None,
        }
        print(json.dumps(_document, indent=2, ensure_ascii=False))
    else:
        print(f"error: {_reason}; spark-jobs/README.md lists the packages", file=sys.stderr)
    # What 1 says of a proof is that something was disproved.
    sys.exit(4)

if __name__ == "__main__":
    sys.exit(prove.run())
