// Shows a record beside the list that it is chosen from; on a phone, over it. Without scripts, the links lead to the
// record's own page.
import { showTimes } from "./times.js";

const panel = document.getElementById("record");
const narrow = matchMedia("(max-width: 60rem)");
let from = null;
let wanted = 0;
let changed = () => {};

export const reading = () => panel?.open === true;
export const whenChanged = (handler) => { changed = handler; };

function prepare(within) {
  showTimes(within);
  if (navigator.clipboard) within.querySelectorAll("[data-copy]").forEach((button) => { button.hidden = false; });
}

function mark(link) {
  from?.closest("tr")?.classList.remove("own");
  link?.closest("tr")?.classList.add("own");
}

function show(html) {
  const place = panel.querySelector(".place");
  place.innerHTML = html;
  prepare(place);
  if (!panel.open) {
    // Over the list, it must keep the focus.
    if (narrow.matches) panel.showModal();
    else panel.show();
  }
  (place.querySelector("h2") ?? panel).focus({ preventScroll: !narrow.matches });
  changed();
}

async function open(link) {
  const mine = ++wanted;
  const row = link.closest("tr");
  if (row) {
    mark(link);
    from = link;
  }
  let html = "";
  try {
    const answer = await fetch(`${link.getAttribute("href")}&alone=true`, { signal: AbortSignal.timeout(30000) });
    if (answer.redirected || answer.status === 401) return location.assign(link.href);
    html = await answer.text();
  } catch {
    html = '<p class="problem" role="alert">The console does not answer. Try again in a moment.</p>';
  }
  if (mine === wanted) show(html);
}

function close() {
  wanted += 1;
  panel.close();
}

async function copy(button) {
  const label = button.dataset.label ?? (button.dataset.label = button.textContent);
  try {
    const answer = await fetch(button.dataset.copy);
    if (!answer.ok) throw new Error(answer.statusText);
    await navigator.clipboard.writeText(await answer.text());
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not copied";
  }
  setTimeout(() => { button.textContent = label; }, 2000);
}

document.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  const button = event.target.closest("[data-copy]");
  if (button) copy(button);
  // Anywhere in a row, unless text is being selected there.
  const row = event.target.closest("tr[data-row]");
  const link = event.target.closest("a[data-record]")
    ?? (row && !event.target.closest("a") && getSelection().isCollapsed ? row.querySelector("a[data-record]") : null);
  if (!link || !panel) return;
  event.preventDefault();
  open(link);
});

if (panel) {
  const button = panel.querySelector(".close");
  button.hidden = false;
  button.addEventListener("click", close);
  panel.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && panel.open) {
      event.preventDefault();
      close();
    }
  });
  panel.addEventListener("close", () => {
    mark(null);
    from?.focus({ preventScroll: true });
    from = null;
    changed();
  });
}
prepare(document);
if (panel?.open && narrow.matches) {
  panel.removeAttribute("open");
  panel.showModal();
}
