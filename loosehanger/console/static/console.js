import { morph } from "./morph.js";
import { follow } from "./stream.js";
import { showTimes } from "./times.js";

showTimes(document);

const live = document.getElementById("live");
const { view, of } = document.body.dataset;
if (live && view) {
  follow(() => `/events/views/${view}?of=${encodeURIComponent(of)}`, {
    view(html) {
      morph(live, html);
      showTimes(live);
      live.dispatchEvent(new Event("changed"));
    },
  });
}
