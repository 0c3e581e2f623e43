import { Idiomorph } from "./vendor/idiomorph.js";

// Replaces a part of the page, changing only nodes that differ: focus, selection, scroll positions and unfolded details
// stay, the latter by their ids.
export function morph(here, html) {
  Idiomorph.morph(here, html, {
    morphStyle: "innerHTML",
    callbacks: {
      // Details stay as the reader left them.
      beforeAttributeUpdated: (name) => name !== "open",
      beforeNodeMorphed(old, wanted) {
        // A time's text is in the reader's zone, so only its attribute is compared.
        if (old.nodeName === "TIME") return old.dateTime !== wanted.dateTime;
        if (old.dataset?.points === undefined || wanted.dataset?.points === undefined) return true;
        // A plot's content was drawn by a script here.
        Object.assign(old.dataset, wanted.dataset);
        return false;
      },
    },
  });
}
