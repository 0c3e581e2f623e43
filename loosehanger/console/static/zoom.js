// The part of the time axis that every chart of the page shows: dragged over with a pointer, or set by the buttons,
// which a keyboard and a finger reach, too. It stays where it is while new samples arrive.
import { secondOf } from "./times.js";

const LEAST_S = 20;
const bar = document.getElementById("zoom");
const said = document.getElementById("zoomed");
const hint = said.textContent;
let chosen = null;
let range = [0, 0];
let changed = () => {};

export const zoom = () => chosen;
export const whenZoomed = (handler) => { changed = handler; };

function show() {
  for (const button of bar.querySelectorAll("button")) {
    // A button that has the focus stays usable: disabling it would lose the focus.
    button.setAttribute("aria-disabled", String(!chosen && button.dataset.zoom !== "in"));
  }
  said.textContent = chosen
    ? `The charts show ${secondOf(chosen[0])} to ${secondOf(chosen[1])}; the tables cover the whole range.`
    : hint;
}

// Chooses a part; one that is as long as the whole range, or null, ends the zoom.
export function choose(from, to) {
  const length = Math.max(LEAST_S, to - from);
  const middle = (from + to) / 2;
  chosen = from == null || length >= range[1] - range[0] ? null : [middle - length / 2, middle + length / 2];
  show();
  changed();
}

// The whole range of the charts, which moves with the samples; null where there is no chart.
export function cover(whole) {
  bar.hidden = said.hidden = !whole;
  range = whole ?? range;
}

const steps = {
  in: (from, to) => [from + (to - from) / 4, to - (to - from) / 4],
  out: (from, to) => [from - (to - from) / 2, to + (to - from) / 2],
  earlier: (from, to) => moved(from, to, -1),
  later: (from, to) => moved(from, to, 1),
  whole: () => [null, null],
};

function moved(from, to, way) {
  const half = way * (to - from) / 2;
  const step = Math.min(Math.max(half, range[0] - from), range[1] - to);
  return [from + step, to + step];
}

bar.addEventListener("click", ({ target }) => {
  const name = target.closest("button")?.dataset.zoom;
  if (name && (chosen || name === "in")) choose(...steps[name](...(chosen ?? range)));
});
show();
