
// The story of one lock: all that is known of it.

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
    for (const cell of line) row.append(cell instanceof Node ? cell : make("td", cell || "-"));
    tbody.append(row);
  }
  made.append(caption, thead, tbody);
  return [make("h3", title), made];
}

function lease(holder) {
  if (holder.isUnreadable) return "unknown: it may not be read";
  return holder.leaseDuration ? `next one runs after a silence of ${span(millis(holder.leaseDuration))}` : "its session decides";
}

// What outsiders know of a lease.
const COUNTED =
  "Leases are counted as seen from outside, by this browser's clock. The news of a renewal takes a moment to get here: so a " +
  "renewal is at least as old as shown, and at most the time that is shown is left. The holder stops before it is over.";

function story(lock) {
  const head = make("header");
  const name = make("h2", lock.key);
  name.id = "story-name";
  const close = make("button", "Close");
  close.type = "button";
  close.addEventListener("click", close_);
  head.append(name, close);
  const words = make("p");
  words.id = "story-words";
  const bar = make("div", undefined, "bar");
  bar.id = "story-bar";
  bar.setAttribute("role", "img");
  const from = make("span");
  from.id = "story-from";
  const scale = make("div", undefined, "scale");
  scale.append(from, make("span", "now"));
  const found = [head, words, bar, scale];
  const problem = wrong(lock);
  if (problem) found.push(make("p", problem.more ? `${problem.text}: ${problem.more}` : problem.text, problem.className));
  const isCounted = lock.renewals !== undefined;
  found.push(
    ...table(
      "Holders",
      [WORDS.who, WORDS.place, "Token", "Since", "If it falls silent", "Took over from", ...(isCounted ? ["Lease"] : [])],
      holders(lock).map((holder) => [
        holder.pod,
        holder.node,
        String(holder.fencingToken ?? ""),
        clock(holder.since),
        lease(holder),
        holder.takenFrom ? `${holder.takenFrom.pod}, silent for ${span(millis(holder.takenFrom.silence))}` : "",
        ...(isCounted ? [renewalCell(holder)] : []),
      ]),
    ),
  );
  if (isCounted) found.push(make("p", COUNTED, "soft"));
  const queue = lock.status.queue || [];
  const rest = waiting(lock) - queue.length;
  const places = queue.map((one, index) => [String(index + 1), one.pod, one.node, one.revision]);
  if (rest > 0) places.push(["", `and ${rest} more`, "", ""]);
  found.push(...table("Queue", ["Place", WORDS.who, WORDS.place, "Revision"], places));
  found.push(
    ...table(
      WORDS.past,
      [WORDS.who, WORDS.place, "Token", "Since", "Until", "Held", "Ended"],
      (lock.status.history || []).map((hold) => [
        hold.pod,
        hold.node,
        String(hold.fencingToken ?? ""),
        clock(hold.since),
        clock(hold.until),
        hold.since ? span(Date.parse(hold.until) - Date.parse(hold.since)) : "",
        hold.ended + (hold.takenBy ? ` by ${hold.takenBy} after ${span(millis(hold.silence))}` : ""),
      ]),
    ),
  );
  const conditions = (lock.status.conditions || []).map((one) => [one.type, one.status, one.reason, one.message]);
  if (!lock.isFollowed) found.push(...table("Conditions", ["Type", "Status", "Reason", "Message"], conditions));
  const ask = make("p", "In a terminal: ");
  ask.append(make("code", lock.command));
  found.push(ask);
  return found;
}

function drawStory() {
  const lock = locks.get(chosen);
  const place = element("story");
  if (!lock) return close_();
  const had = place.contains(document.activeElement) && document.activeElement !== place;
  const top = place.scrollTop;
  place.replaceChildren(...story(lock));
  drawStoryTime(lock, Date.now());
  place.scrollTop = top;
  // The only thing in it that can have the focus.
  if (had) place.querySelector("button").focus();
}

/** What of the story changes with time alone. */
function drawStoryTime(lock, now) {
  const start = now - window_();
  const kind = lock.maxHolders > 1 ? `up to ${lock.maxHolders} holders` : lock.mode;
  put(element("story-words"), `${kind}. ${inWords(parts(lock, start, now), start)}.`);
  drawBar(element("story-bar"), lock, now);
  drawRenewals(lock);
  put(element("story-from"), clock(start));
}

function open_(key) {
  const before = chosen;
  chosen = key;
  element("story").hidden = false;
  document.body.classList.add("has-story");
  for (const one of [before, key]) if (locks.has(one)) drawRow(locks.get(one), Date.now());
  drawStory();
  askRenewals();
  element("story").focus();
}

function close_() {
  const before = chosen;
  chosen = null;
  element("story").hidden = true;
  element("story").replaceChildren();
  document.body.classList.remove("has-story");
  if (locks.has(before)) drawRow(locks.get(before), Date.now());
  const known = rows.get(before);
  // A row that a filter hides cannot have the focus.
  (known && !known.row.hidden ? known.button : element("filter")).focus();
}
