
// The page: what the server tells, in a table.

const locks = new Map();
const rows = new Map();
const seen = new Set();
const dirty = new Set();
let chosen = null;
let trouble = null;
let drawing = false;

const element = (id) => document.getElementById(id);
const body = element("locks").tBodies[0];

/** An element with a text. All that the server tells becomes text, never markup. */
function make(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const window_ = () => Number(element("span").value) * 1000;
const condition = (lock, type) => (lock.status.conditions || []).find((one) => one.type === type);
const holders = (lock) => lock.status.holders || [];
const waiting = (lock) => lock.status.waiting || 0;

/** What is wrong with a lock, the worst first; null if nothing is. */
function wrong(lock) {
  if (lock.doubt) return { text: "not followed", more: lock.doubt, className: "bad" };
  const ready = condition(lock, "Ready");
  if (ready && ready.status === "False") return { text: ready.reason, more: ready.message, className: "bad" };
  if (holders(lock).length === 0 && waiting(lock) > 0)
    return { text: "wanted, and held by nobody", more: "", className: "bad" };
  if (ready && ready.reason === "PodsOutdated") return { text: ready.reason, more: ready.message, className: "warn" };
  if (holders(lock).some((holder) => holder.survivors))
    return { text: "kept by survivors", more: "processes of the application outlive SIGKILL", className: "bad" };
  return null;
}

function isShown(lock) {
  const show = element("show").value;
  const isHeld = holders(lock).length > 0;
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
  const holding = holders(lock);
  const named = holding.slice(0, 3).map((holder) => holder.pod + (holder.node ? ` on ${holder.node}` : ""));
  const more = holding.length > 3 ? ` and ${holding.length - 3} more` : "";
  put(cells[0], holding.length > 0 ? named.join(", ") + more : "nobody");
  cells[0].className = holding.length > 0 ? "" : "soft";
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
  const found = parts(lock.status, start, now);
  bar.style.backgroundImage = gradient(found, start, now);
  bar.setAttribute("aria-label", inWords(found));
}

function drawSummary() {
  const all = [...locks.values()];
  const held = all.filter((lock) => holders(lock).length > 0).length;
  const wanted = all.filter((lock) => holders(lock).length === 0 && waiting(lock) > 0).length;
  const problems = all.filter(wrong).length;
  const nobody = `${(all.length - held).toLocaleString("en")} held by nobody` + (wanted ? ` (${wanted} wanted)` : "");
  element("nothing").hidden = [...rows.values()].some(({ row }) => !row.hidden);
  put(
    element("summary"),
    `${count(all.length, "lock")}: ${held.toLocaleString("en")} held, ${nobody}` +
      (problems ? `, ${problems.toLocaleString("en")} with something wrong` : ""),
  );
  element("trouble").hidden = !trouble;
  put(element("trouble"), trouble ? `What follows may be over: ${trouble}` : "");
}

function drawShown() {
  // A lock that is gone keeps its row until the next drawing.
  for (const [key, { row }] of rows) if (locks.has(key)) row.hidden = !isShown(locks.get(key));
  drawSummary();
}

/** A table of the story. */
function table(title, heads, lines) {
  const made = make("table");
  const caption = make("caption", title, "aside");
  const head = make("tr");
  for (const text of heads) {
    const cell = make("th", text);
    cell.scope = "col";
    head.append(cell);
  }
  const thead = make("thead");
  thead.append(head);
  const tbody = make("tbody");
  for (const line of lines) {
    const row = make("tr");
    for (const text of line) row.append(make("td", text || "-"));
    tbody.append(row);
  }
  made.append(caption, thead, tbody);
  return [make("h3", title), made];
}

const clock = (time) => (time ? new Date(time).toLocaleString("sv") : "-");

function lease(holder) {
  return holder.leaseDuration ? `next one runs after a silence of ${span(millis(holder.leaseDuration))}` : "its session decides";
}

function story(lock, now) {
  const head = make("header");
  const name = make("h2", lock.key);
  name.id = "story-name";
  const close = make("button", "Close");
  close.type = "button";
  close.addEventListener("click", close_);
  head.append(name, close);
  const bar = make("div", undefined, "bar");
  bar.setAttribute("role", "img");
  drawBar(bar, lock, now);
  const scale = make("div", undefined, "scale");
  scale.append(make("span", clock(now - window_())), make("span", "now"));
  const kind = lock.maxHolders > 1 ? `up to ${lock.maxHolders} holders` : lock.mode;
  const found = [head, make("p", `${kind}. ${inWords(parts(lock.status, now - window_(), now))}.`), bar, scale];
  const problem = wrong(lock);
  if (problem) found.push(make("p", problem.more ? `${problem.text}: ${problem.more}` : problem.text, problem.className));
  found.push(
    ...table(
      "Holders",
      ["Pod", "Node", "Token", "Since", "If it falls silent", "Took over from"],
      holders(lock).map((holder) => [
        holder.pod,
        holder.node,
        String(holder.fencingToken),
        clock(holder.since),
        lease(holder),
        holder.takenFrom ? `${holder.takenFrom.pod}, silent for ${span(millis(holder.takenFrom.silence))}` : "",
      ]),
    ),
  );
  const queue = lock.status.queue || [];
  const rest = waiting(lock) - queue.length;
  const places = queue.map((one, index) => [String(index + 1), one.pod, one.node, one.revision]);
  if (rest > 0) places.push(["", `and ${rest} more`, "", ""]);
  found.push(...table("Queue", ["Place", "Pod", "Node", "Revision"], places));
  found.push(
    ...table(
      "Former holders",
      ["Pod", "Node", "Token", "Since", "Until", "Held", "Ended"],
      (lock.status.history || []).map((hold) => [
        hold.pod,
        hold.node,
        String(hold.fencingToken),
        clock(hold.since),
        clock(hold.until),
        hold.since ? span(Date.parse(hold.until) - Date.parse(hold.since)) : "",
        hold.ended + (hold.takenBy ? ` by ${hold.takenBy} after ${span(millis(hold.silence))}` : ""),
      ]),
    ),
  );
  found.push(
    ...table(
      "Conditions",
      ["Type", "Status", "Reason", "Message"],
      (lock.status.conditions || []).map((one) => [one.type, one.status, one.reason, one.message]),
    ),
  );
  const ask = make("p", "In a terminal: ");
  ask.append(make("code", `kubectl lockkeeper status ${lock.name} -n ${lock.namespace}`));
  found.push(ask);
  return found;
}

function drawStory() {
  const lock = locks.get(chosen);
  const place = element("story");
  if (!lock) return close_();
  const had = place.contains(document.activeElement) && document.activeElement !== place;
  const top = place.scrollTop;
  place.replaceChildren(...story(lock, Date.now()));
  place.scrollTop = top;
  // The only thing in it that can have the focus.
  if (had) place.querySelector("button").focus();
}

function open_(key) {
  const before = chosen;
  chosen = key;
  element("story").hidden = false;
  document.body.classList.add("has-story");
  for (const one of [before, key]) if (locks.has(one)) drawRow(locks.get(one), Date.now());
  drawStory();
  element("story").focus();
}

function close_() {
  const before = chosen;
  chosen = null;
  element("story").hidden = true;
  element("story").replaceChildren();
  document.body.classList.remove("has-story");
  if (!locks.has(before)) return;
  drawRow(locks.get(before), Date.now());
  rows.get(before).button.focus();
}

function draw() {
  drawing = false;
  const now = Date.now();
  for (const key of dirty) {
    const lock = locks.get(key);
    const known = rows.get(key);
    if (!lock) {
      if (!known) continue;
      watcher.unobserve(known.row);
      known.row.remove();
      rows.delete(key);
      seen.delete(key);
      continue;
    }
    if (!known) {
      makeRow(lock);
      place(key);
    }
    drawRow(lock, now);
  }
  const isChosen = chosen !== null && dirty.has(chosen);
  dirty.clear();
  drawSummary();
  if (isChosen) drawStory();
}

/** Changes of a quarter of a second are drawn together; the first ones at once. */
function later() {
  if (drawing) return;
  drawing = true;
  setTimeout(() => requestAnimationFrame(draw), locks.size === 0 || rows.size > 0 ? 250 : 0);
}

function hear(news) {
  if (news.all) {
    const there = new Set(news.changed.map((lock) => lock.key));
    for (const key of locks.keys()) if (!there.has(key)) news.gone.push(key);
  }
  for (const lock of news.changed) {
    locks.set(lock.key, lock);
    dirty.add(lock.key);
  }
  for (const key of news.gone) {
    locks.delete(key);
    dirty.add(key);
  }
  trouble = news.trouble;
  later();
}

// Only rows that are in view are drawn again as time goes by.
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const key = entry.target.dataset.key;
    if (!entry.isIntersecting) seen.delete(key);
    else if (locks.has(key)) {
      seen.add(key);
      drawTime(locks.get(key), Date.now());
      drawBar(rows.get(key).bar, locks.get(key), Date.now());
    }
  }
});

let barsDrawn = 0;

setInterval(() => {
  if (document.hidden) return;
  const now = Date.now();
  // A timeline moves by a thousandth of its width.
  const isTime = now - barsDrawn >= window_() / 1000;
  if (isTime) barsDrawn = now;
  for (const key of seen) {
    if (!locks.has(key)) continue;
    drawTime(locks.get(key), now);
    if (isTime) drawBar(rows.get(key).bar, locks.get(key), now);
  }
}, 1000);

for (const id of ["filter", "show"]) element(id).addEventListener("input", drawShown);
element("span").addEventListener("input", () => {
  for (const [key, { bar }] of rows) if (locks.has(key)) drawBar(bar, locks.get(key), Date.now());
  if (chosen !== null) drawStory();
});
element("controls").addEventListener("submit", (event) => event.preventDefault());

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && chosen !== null) return close_();
  const row = event.target.closest?.("#locks tbody tr");
  if (!row || !["ArrowDown", "ArrowUp"].includes(event.key)) return;
  let next = row;
  do next = event.key === "ArrowDown" ? next.nextElementSibling : next.previousElementSibling;
  while (next?.hidden);
  if (!next) return;
  event.preventDefault();
  next.querySelector("button").focus();
});

const source = new EventSource(`events${location.search}`);
source.addEventListener("message", (event) => hear(JSON.parse(event.data)));
source.addEventListener("error", () => {
  trouble = "kubectl lockkeeper ui does not answer; start it again, and open its new address";
  later();
});
