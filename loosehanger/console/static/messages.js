import { reading, whenChanged } from "./record.js";
import { follow, say } from "./stream.js";
import { arrange } from "./tables.js";
import { clockTime } from "./times.js";

const MOST_ROWS = 200;
const rows = document.getElementById("messages");
const counts = document.getElementById("counts");
const filter = document.getElementById("filter");
const pause = document.getElementById("pause");
const existing = document.getElementById("existing");
const regions = Number(rows.dataset.regions);
let paused = false;
let seen = 0;
let dropped = 0;
let held = [];
// Set by a stream that restarted while paused: its messages replace the rows when they are shown.
let anew = false;
// As they arrived, the latest first, however the table is sorted.
let arrived = [];

// Every part of a record is inserted as text.
function cell(content, className = "") {
  const made = document.createElement("td");
  made.className = className;
  made.append(content);
  return made;
}

function link(message) {
  const made = document.createElement("a");
  const { region, topic, partition, offset } = message;
  made.href = `/record?${new URLSearchParams({ region, topic, partition, offset })}`;
  made.dataset.record = "";
  made.textContent = message.summary || "(empty)";
  return made;
}

function key(message) {
  const made = document.createElement("span");
  made.textContent = message.key;
  return made;
}

function row(message) {
  const made = document.createElement("tr");
  made.dataset.row = "";
  made.append(cell(clockTime(message.timestamp), "when"));
  if (regions > 1) made.append(cell(message.region));
  made.append(
    cell(message.topic),
    cell(`${message.partition}/${message.offset}`, "number"),
    cell(key(message), "key"),
    cell(link(message), "what"),
    cell(message.latency_ms === null ? "–" : `${message.latency_ms} ms`, "number"),
  );
  return made;
}

function show(messages) {
  if (anew) empty();
  anew = false;
  const newest = messages.slice(-MOST_ROWS).reverse().map(row);
  rows.prepend(...newest);
  arrived.unshift(...newest);
  for (const old of arrived.splice(MOST_ROWS)) old.remove();
  arrange(document);
}

function empty() {
  rows.replaceChildren();
  arrived = [];
}

function count() {
  const left = dropped ? `; ${dropped.toLocaleString()} more arrived too fast to be shown` : "";
  const still = paused ? "Paused" : reading() ? "Still while a message is open" : "";
  const waiting = still ? `${still}, ${held.length} waiting. ` : "";
  counts.textContent = `${waiting}${seen.toLocaleString()} messages${left}.`;
}

function query() {
  const given = new URLSearchParams(new FormData(filter));
  for (const [name, value] of [...given]) if (!value) given.delete(name);
  return given.toString();
}

const restart = follow(() => `/events/messages?${query()}`, {
  messages(batch) {
    seen += batch.messages.length;
    dropped += batch.dropped;
    if (paused || reading()) held = [...held, ...batch.messages].slice(-MOST_ROWS);
    else show(batch.messages);
    count();
  },
  problem: say,
}, () => {
  // Every new stream begins with the recent records again.
  anew = true;
  held = [];
});

filter.addEventListener("submit", (event) => {
  event.preventDefault();
  const wanted = query();
  // The address can be shared.
  history.replaceState(null, "", wanted ? `?${wanted}` : location.pathname);
  existing.href = `/search?${wanted ? `${wanted}&` : ""}order=newest`;
  seen = dropped = 0;
  empty();
  counts.textContent = "Waiting for messages that fit …";
  restart();
});

function goOn() {
  if (!paused && !reading()) {
    show(held);
    held = [];
  }
  count();
}

pause.addEventListener("click", () => {
  paused = !paused;
  pause.setAttribute("aria-pressed", String(paused));
  goOn();
});
// While a record is open, new rows must not move the one that it comes from.
whenChanged(goOn);
