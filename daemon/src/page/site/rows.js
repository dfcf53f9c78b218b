
// The state of the page, and its table of locks: a row for each.

const locks = new Map();
const rows = new Map();
const seen = new Set();
const dirty = new Set();
let chosen = null;
let trouble = null;
let leftOut = null;
let isRead = false;
let isDrawing = false;
// When the server was heard last, and what this page and its server alone know.
let heard = Date.now();
let isSealed = false;
const SEAL = "{{seal}}";
// In which pages differ: `Words` of daemon/src/page.rs.
const WORDS = {{words}};
// Longer than the server's signs of life are apart, in milliseconds.
const SILENCE = 30000;

const element = (id) => document.getElementById(id);
const body = element("locks").tBodies[0];

/** Characters that nobody sees may turn a text round, or hide in it. */
const plain = (text) => text.replace(/[\p{Cc}\p{Cf}]/gu, "\ufffd");

/** An element with a text. All that the server tells becomes text, never markup. */
function make(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = plain(text);
  if (className) made.className = className;
  return made;
}

function put(node, text) {
  if (node.textContent !== plain(text)) node.textContent = plain(text);
}

/** Names that others choose, each in an element of its own: none of them can look like two, or like words of this page. */
function putHolders(cell, lock) {
  const [known, holding] = [isKnown(lock), holders(lock)];
  const said = JSON.stringify([known, holding.map((holder) => [holder.pod, holder.node])]);
  if (cell.dataset.said === said) return;
  cell.dataset.said = said;
  const nodes = holding.slice(0, 3).flatMap((holder, index) => [
    index > 0 ? ", " : "",
    make("bdi", holder.pod),
    ...(holder.node ? [" on ", make("bdi", holder.node)] : []),
  ]);
  if (holding.length > 3) nodes.push(` and ${holding.length - 3} more`);
  if (holding.length === 0) nodes.push(make("em", known ? "nobody" : "unknown"));
  cell.replaceChildren(...nodes);
  cell.className = holding.length > 0 && known ? "" : "soft";
}

const window_ = () => Number(element("span").value) * 1000;
const condition = (lock, type) => (lock.status.conditions || []).find((one) => one.type === type);
const holders = (lock) => lock.status.holders || [];
const waiting = (lock) => lock.status.waiting || 0;

/** Whether it is known who holds: the operator, or this page's server, follows the lock. */
function isKnown(lock) {
  const held = condition(lock, "Held");
  return !lock.doubt && (Boolean(lock.isFollowed) || (Boolean(held) && held.status !== "Unknown"));
}

/** What is wrong with a lock, the worst first; null if nothing is. */
function wrong(lock) {
  if (lock.doubt) return { text: "not followed", more: lock.doubt, className: "bad" };
  const ready = condition(lock, "Ready");
  if (ready && ready.status === "False") return { text: ready.reason, more: ready.message, className: "bad" };
  if (isKnown(lock) && holders(lock).length === 0 && waiting(lock) > 0)
    return { text: "wanted, and held by nobody", more: "", className: "bad" };
  if (holders(lock).some((holder) => holder.survivors))
    return { text: "kept by survivors", more: "processes of the application outlive SIGKILL", className: "bad" };
  if (lock.problem) return { ...lock.problem, className: "warn" };
  // The lock can be taken, and the operator has something to say.
  if (ready && ready.reason !== "Provisioned") return { text: ready.reason, more: ready.message, className: "warn" };
  return null;
}

function isShown(lock) {
  const show = element("show").value;
  const isHeld = holders(lock).length > 0 || !isKnown(lock);
  if (show === "nobody" && isHeld) return false;
  if (show === "wanted" && (isHeld || waiting(lock) === 0)) return false;
  if (show === "trouble" && !wrong(lock)) return false;
  const words = element("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return true;
  const people = [...holders(lock), ...(lock.status.queue || [])];
  const text = [lock.key, ...people.flatMap((one) => [one.pod, one.node || ""])].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

function makeRow(lock) {
  const row = make("tr");
  row.dataset.key = lock.key;
  // With another display than a table's, the roles have to be said.
  row.setAttribute("role", "row");
  const name = make("th");
  name.scope = "row";
  name.setAttribute("role", "rowheader");
  const button = make("button", lock.key);
  button.type = "button";
  button.addEventListener("click", () => open_(lock.key));
  name.append(button);
  const bar = make("div", undefined, "bar");
  bar.setAttribute("role", "img");
  const cells = [make("td"), make("td"), make("td"), make("td"), make("td")];
  for (const cell of cells) cell.setAttribute("role", "cell");
  cells[3].append(bar);
  row.append(name, ...cells);
  rows.set(lock.key, { row, button, bar, cells });
  watcher.observe(row);
}

/** In the order of their keys. */
function place(key) {
  const { row } = rows.get(key);
  let low = 0;
  let high = body.rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (body.rows[middle].dataset.key < key) low = middle + 1;
    else high = middle;
  }
  body.insertBefore(row, body.rows[low] || null);
}

function drawRow(lock, now) {
  const { row, bar, cells } = rows.get(lock.key);
  putHolders(cells[0], lock);
  put(cells[2], String(waiting(lock)));
  const problem = wrong(lock);
  put(cells[4], problem ? problem.text : condition(lock, "Ready") ? "ready" : "-");
  cells[4].className = problem ? problem.className : "soft";
  cells[4].title = problem ? problem.more : "";
  row.classList.toggle("chosen", lock.key === chosen);
  row.hidden = !isShown(lock);
  drawTime(lock, now);
  drawBar(bar, lock, now);
}

/** For how long it has been held: this changes with time alone. */
function drawTime(lock, now) {
  const since = holders(lock)[0]?.since;
  put(rows.get(lock.key).cells[1], since ? span(now - Date.parse(since)) : "-");
}

function drawBar(bar, lock, now) {
  const start = now - window_();
  const found = parts(lock, start, now);
  bar.style.backgroundImage = gradients(found, start, now);
  bar.setAttribute("aria-label", inWords(found, start));
}

const shownRows = () => [...rows.values()].filter(({ row }) => !row.hidden).length;

function drawSummary() {
  const all = [...locks.values()];
  const number = (is) => all.filter(is).length;
  const [unknown, problems] = [number((lock) => !isKnown(lock)), number(wrong)];
  const held = number((lock) => isKnown(lock) && holders(lock).length > 0);
  const nobody = number((lock) => isKnown(lock) && holders(lock).length === 0);
  const wanted = number((lock) => isKnown(lock) && holders(lock).length === 0 && waiting(lock) > 0);
  const said = [`${held.toLocaleString("en")} held`, `${nobody.toLocaleString("en")} held by nobody${wanted ? ` (${wanted} wanted)` : ""}`];
  if (unknown > 0) said.push(`${unknown.toLocaleString("en")} unknown`);
  if (problems > 0) said.push(`${problems.toLocaleString("en")} with something wrong`);
  element("nothing").hidden = !isRead || shownRows() > 0;
  put(element("summary"), isRead ? `${count(all.length, "lock")}: ${said.join(", ")}` : "Reading the locks…");
  drawTrouble();
}

/** That what is shown may be over: the API server is away, or this page's server is. */
function drawTrouble() {
  const silence = Date.now() - heard;
  const why = silence > SILENCE ? `nothing has been heard from ${WORDS.program} since ${clock(heard)}` : trouble;
  element("trouble").hidden = !why;
  put(element("trouble"), why ? `What follows may be over: ${why}` : "");
  element("left-out").hidden = !leftOut;
  put(element("left-out"), leftOut ? `Not shown: ${leftOut}` : "");
}

function drawShown() {
  // A lock that is gone keeps its row until the next drawing.
  for (const [key, { row }] of rows) if (locks.has(key)) row.hidden = !isShown(locks.get(key));
  drawSummary();
  put(element("shown"), `${shownRows().toLocaleString("en")} of ${count(rows.size, "lock")} shown`);
}
