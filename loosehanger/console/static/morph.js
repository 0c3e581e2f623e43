import { Idiomorph } from "./vendor/idiomorph.js";

// Changes a part of the page into another one, touching only what differs: focus, selection, scrolling and what was
// folded open stay, by the ids of what is folded.
export function morph(here, html) {
  Idiomorph.morph(here, html, {
    morphStyle: "innerHTML",
    callbacks: {
      // What readers opened or closed is theirs.
      beforeAttributeUpdated: (name) => name !== "open",
      beforeNodeMorphed(old, wanted) {
        // A time is shown in the reader's zone, and only its attribute tells whether it is another one.
        if (old.nodeName === "TIME") return old.dateTime !== wanted.dateTime;
        if (old.dataset?.points === undefined || wanted.dataset?.points === undefined) return true;
        // What is in a plot was drawn here.
        Object.assign(old.dataset, wanted.dataset);
        return false;
      },
    },
  });
}
