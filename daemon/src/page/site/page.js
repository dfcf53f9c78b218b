
// What the server tells, and what the user does.

function draw() {
  isDrawing = false;
  const now = Date.now();
  for (const key of dirty) {
    const lock = locks.get(key);
    const known = rows.get(key);
    if (!lock) {
      if (!known) continue;
      watcher.unobserve(known.row);
      if (known.row.contains(document.activeElement)) element("filter").focus();
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
  if (isDrawing) return;
  isDrawing = true;
  // A page that nobody sees has no frames, and would remember all that has changed.
  const next = document.hidden ? draw : () => requestAnimationFrame(draw);
  setTimeout(next, locks.size === 0 || rows.size > 0 ? 250 : 0);
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
  leftOut = news.leftOut;
  isRead = news.read;
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
  drawTrouble();
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
  if (chosen !== null && locks.has(chosen)) drawStoryTime(locks.get(chosen), now);
  askRenewals();
}, 1000);
document.addEventListener("visibilitychange", drawTrouble);

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
const gone = `${WORDS.program} has ended; start it again, and open its new address`;
source.addEventListener("open", () => {
  isSealed = false;
});
source.addEventListener("seal", (event) => {
  isSealed = event.data === SEAL;
  if (isSealed) return;
  // Another program has got the port.
  source.close();
  trouble = gone;
  drawTrouble();
});
source.addEventListener("alive", () => {
  if (isSealed) heard = Date.now();
});
source.addEventListener("message", (event) => {
  if (!isSealed) return;
  heard = Date.now();
  hear(JSON.parse(event.data));
});
source.addEventListener("error", () => {
  trouble = gone;
  drawTrouble();
});
