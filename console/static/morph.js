import { Idiomorph } from "./vendor/idiomorph.js";

// Changes a part of the page into another one, touching only what differs: focus, selection, scrolling and what was
// folded open stay, by the ids of what is folded.
export function morph(here, html) {
  Idiomorph.morph(here, html, {
    morphStyle: "innerHTML",
    callbacks: {
      // What readers opened or closed is theirs.
      beforeAttributeUpdated: (name) => name !== "open",
      // A time is shown in the reader's zone, and only its attribute tells whether it is another one.
      beforeNodeMorphed: (old, wanted) => old.nodeName !== "TIME" || old.dateTime !== wanted.dateTime,
    },
  });
}
