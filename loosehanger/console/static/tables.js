// Sorts a table by the header that is chosen, filters its rows, and hides columns. A row may name the section with its
// details, which is hidden with it. The server's HTML is arranged before it replaces what is shown, so that focus stays.
// Hidden columns are kept in this browser.
const states = new Map();
const sizes = { B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, ms: 1, s: 1e3, min: 6e4, h: 3.6e6, d: 8.64e7 };
const texts = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

function stored(id) {
  try {
    return new Set(JSON.parse(localStorage.getItem(`columns of ${id}`) ?? "[]"));
  } catch {
    return new Set();
  }
}

function stateOf(id) {
  if (!states.has(id)) states.set(id, { column: null, order: "ascending", text: "", hidden: stored(id) });
  return states.get(id);
}

const headsOf = (table) => [...table.tHead.rows[0].cells];
const nameOf = (head) => head.textContent.trim();

// A number in its smallest unit, or a partition and an offset; null for a dash and for text.
function numberOf(text) {
  const place = /^(\d+)\/(\d+)$/.exec(text);
  if (place) return Number(place[1]) * 2 ** 40 + Number(place[2]);
  const found = /^(-?[\d,]+(?:\.\d+)?)\s*([A-Za-z]*)/.exec(text);
  return found ? Number(found[1].replaceAll(",", "")) * (sizes[found[2]] ?? 1) : null;
}

const widthOf = (row) => [...row.cells].reduce((sum, cell) => sum + cell.colSpan, 0);

// The rows of a body, each with those below it that share a cell of it.
function groupsOf(body, columns) {
  const groups = [];
  for (const row of body.rows) {
    if (widthOf(row) === columns || !groups.length) groups.push([row]);
    else groups.at(-1).push(row);
  }
  return groups;
}

function valueOf(cell, numeric) {
  if (!cell) return null;
  const text = cell.querySelector("time")?.dateTime ?? cell.textContent.trim();
  return numeric ? numberOf(text) : text;
}

function sorted(groups, column, order, numeric) {
  const sign = order === "ascending" ? 1 : -1;
  const keyed = groups.map((group) => ({ group, value: valueOf(group[0].cells[column], numeric) }));
  keyed.sort((one, other) => {
    // What is not known comes last in both orders.
    if (one.value === null || other.value === null) return (one.value === null) - (other.value === null);
    return sign * (numeric ? one.value - other.value : texts.compare(one.value, other.value));
  });
  return keyed.flatMap(({ group }) => group);
}

// The sections with the rows' details: one is hidden when all rows that name it are.
function showDetails(root, rows) {
  const shown = new Set(rows.filter((row) => !row.hidden).map((row) => row.dataset.details));
  for (const row of rows) {
    const section = row.dataset.details && root.getElementById(row.dataset.details);
    if (section) section.hidden = !shown.has(row.dataset.details);
  }
}

function arrangeOne(root, table) {
  const state = stateOf(table.id);
  const heads = headsOf(table);
  heads.forEach((head, index) => {
    if (!head.querySelector("button") && head.dataset.sort !== "none") {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
    }
    if (index === state.column) head.setAttribute("aria-sort", state.order);
    else head.removeAttribute("aria-sort");
  });
  const body = table.tBodies[0];
  const rows = [...body.rows].filter((row) => row.cells.length === heads.length);
  if (state.column !== null) {
    const numeric = heads[state.column].classList.contains("number");
    body.append(...sorted(groupsOf(body, heads.length), state.column, state.order, numeric));
  }
  const wanted = state.text.toLowerCase();
  for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  showDetails(root, rows);
  // The first column names the row.
  const hidden = heads.map((head, index) => index > 0 && state.hidden.has(nameOf(head)));
  for (const row of [table.tHead.rows[0], ...rows]) {
    [...row.cells].forEach((cell, index) => { cell.hidden = hidden[index]; });
  }
  return `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
}

export function arrange(root) {
  for (const table of root.querySelectorAll("table[data-sort]")) {
    const count = arrangeOne(root, table);
    const said = document.getElementById(`${table.id}-count`);
    if (said && said.textContent !== count) said.textContent = stateOf(table.id).text ? count : "";
  }
}

function box(head, state, id) {
  const label = document.createElement("label");
  const input = document.createElement("input");
  const name = nameOf(head);
  label.className = "check";
  input.type = "checkbox";
  input.checked = !state.hidden.has(name);
  input.addEventListener("change", () => {
    state.hidden[input.checked ? "delete" : "add"](name);
    try {
      localStorage.setItem(`columns of ${id}`, JSON.stringify([...state.hidden]));
    } catch { /* The browser keeps nothing for this page: the choice holds until it is left. */ }
    arrange(document);
  });
  label.append(input, name);
  return label;
}

// The tools of a table, outside what the stream replaces.
function equip(table) {
  const { id } = table;
  const state = stateOf(id);
  const tools = document.createElement("div");
  tools.className = "tools";
  tools.id = `${id}-tools`;
  const label = document.createElement("label");
  const input = document.createElement("input");
  input.type = "search";
  input.addEventListener("input", () => { state.text = input.value.trim(); arrange(document); });
  label.append("Filter rows", input);
  const columns = document.createElement("details");
  const summary = document.createElement("summary");
  summary.textContent = "Columns";
  columns.append(summary, ...headsOf(table).slice(1).map((head) => box(head, state, id)));
  const count = document.createElement("span");
  count.id = `${id}-count`;
  count.className = "muted";
  count.setAttribute("role", "status");
  tools.append(label, columns, count);
  (table.closest("#live") ?? table.closest(".browse") ?? table.closest(".scroll")).before(tools);
}

export function furnish() {
  // A list that became short has lost its table.
  for (const tools of document.querySelectorAll(".tools")) {
    if (!document.getElementById(tools.id.replace(/-tools$/, ""))) tools.remove();
  }
  for (const table of document.querySelectorAll("table[data-tools]")) {
    if (!document.getElementById(`${table.id}-tools`)) equip(table);
  }
  arrange(document);
}

document.addEventListener("click", (event) => {
  const head = event.target.closest("button.sort")?.closest("th");
  const table = head?.closest("table[data-sort]");
  if (!table) return;
  const state = stateOf(table.id);
  const column = headsOf(table).indexOf(head);
  state.order = state.column === column && state.order === "ascending" ? "descending" : "ascending";
  state.column = column;
  arrange(document);
});
