"""``Change``, one thing that a fault does to a lab and that healing undoes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from loosehanger.faults.site import FaultSite
from loosehanger.lab.manifests.validation import Entry

Undo = Mapping[str, Any]
"""What healing needs to know, as JSON; it is written down before the change is made."""


class Change(Entry, ABC):
    """One thing that a fault does, with its settings from the catalogue.

    ``prepare`` changes nothing. Its answer is recorded before ``inject`` begins, so that healing works after an
    interrupted injection too: ``heal`` must accept a change that was never made, and one that was undone already.
    """

    @abstractmethod
    def prepare(self, site: FaultSite) -> Undo:
        """Returns what healing needs.

        Raises:
            WrongUseError: it cannot be made here; nothing was changed.
        """

    @abstractmethod
    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Makes the change, and returns when it is in effect.

        Raises:
            LabError: it failed.
        """

    @abstractmethod
    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Undoes the change, and returns when that is in effect.

        Raises:
            LabError: it failed.
        """
