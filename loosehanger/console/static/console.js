import { morph } from "./morph.js";
import { follow } from "./stream.js";
import { arrange, furnish } from "./tables.js";
import { showTimes } from "./times.js";

showTimes(document);
furnish();
// A row of pages that is wider than a phone begins where the reader is.
document.querySelector(".bar nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

const live = document.getElementById("live");
const { view, of } = document.body.dataset;
if (live && view) {
  follow(() => `/events/views/${view}?of=${encodeURIComponent(of)}`, {
    view(html) {
      const wanted = document.createElement("template");
      wanted.innerHTML = html;
      arrange(wanted.content);
      morph(live, wanted.innerHTML);
      showTimes(live);
      furnish();
      live.dispatchEvent(new Event("changed"));
    },
  });
}
