// Refreshes the room every three seconds while the page is visible.
import { morph } from "/static/morph.js";

const live = document.getElementById("live");
const trouble = document.getElementById("trouble");

async function look() {
  if (!document.hidden) {
    const answer = await fetch("/learners").catch(() => null);
    if (answer?.ok) morph(live, await answer.text());
    trouble.hidden = Boolean(answer?.ok);
    trouble.textContent = answer?.ok ? "" : "The collector does not answer. Trying again …";
  }
  setTimeout(look, 3000);
}

setTimeout(look, 3000);
