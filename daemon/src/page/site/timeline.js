"use strict";
// Who held a lock, and when nobody did. Nothing here touches the page.

/** Milliseconds of a duration as the status has it: 8500ms, 1.5s, 2m, 1h. */
function millis(text) {
  const units = { ms: 1, s: 1e3, m: 6e4, h: 36e5 };
  let sum = 0;
  for (const [, number, unit] of (text || "").matchAll(/([\d.]+)(ms|s|m|h)/g)) sum += Number(number) * units[unit];
  return sum;
}

/** The holds of a lock, the oldest first: {from, to, pod}. `from` is null where the beginning is not known. */
function holds(status, now, isExclusive) {
  const time = (text) => (text ? Date.parse(text) : NaN);
  const past = (status.history || [])
    .map((hold) => ({ from: time(hold.since), to: time(hold.until), pod: hold.pod }))
    .filter((hold) => Number.isFinite(hold.to));
  const last = Math.max(-Infinity, ...past.map((hold) => hold.to));
  const present = (status.holders || []).map((hold) => {
    const since = time(hold.since);
    // By the clock of its node, which may be ahead. Nobody holds an exclusive lock before the one before has ended.
    return { from: since <= now ? (isExclusive ? Math.max(since, last) : since) : NaN, to: now, pod: hold.pod };
  });
  const all = [...past, ...present].map((hold) => ({
    ...hold,
    // The clocks of two machines differ: then a hold may seem to end before it began.
    from: Number.isFinite(hold.from) ? Math.min(hold.from, hold.to) : null,
  }));
  return all.sort((a, b) => (a.from ?? a.to) - (b.from ?? b.to) || a.to - b.to);
}

/** Since when nobody follows the lock, so that nothing is known; null if it is followed. */
function unknownSince(status) {
  const unseen = (status.unseen || []).find((one) => !one.until);
  if (unseen) return Date.parse(unseen.from) || 0;
  const condition = (type) => (status.conditions || []).find((one) => one.type === type);
  const [reached, held] = [condition("EnsembleReachable"), condition("Held")];
  const lost = reached && reached.status !== "True" ? reached : held && held.status === "Unknown" ? held : null;
  return lost ? Date.parse(lost.lastTransitionTime) || 0 : null;
}

/** The same parts; that nobody held is unknown for a time in which nobody followed the lock and which is over. */
function doubted(found, status) {
  const spans = (status.unseen || []).filter((one) => one.until).map((one) => [Date.parse(one.from), Date.parse(one.until)]);
  if (spans.length === 0) return found;
  return found.flatMap((part) => {
    if (part.kind !== "nobody") return [part];
    const pieces = [];
    let at = part.from;
    for (const [start, end] of spans) {
      const [from, to] = [Math.max(start, at), Math.min(end, part.to)];
      if (!(from < to)) continue;
      if (from > at) pieces.push({ ...part, from: at, to: from });
      pieces.push({ ...part, from, to, kind: "unknown" });
      at = to;
    }
    if (at < part.to) pieces.push({ ...part, from: at });
    return pieces;
  });
}

/**
 * What a timeline from `start` to `now` shows: {from, to, kind, pod}, without overlaps. The kind is "held", "nobody" or
 * "unknown". Before the oldest hold that is remembered nothing is known either: that time is in no part.
 */
function parts(lock, start, now) {
  const { status } = lock;
  const isExclusive = lock.mode === "Exclusive" && lock.maxHolders === 1;
  const end = Math.min(now, unknownSince(status) ?? now);
  const found = [];
  let reached = null;
  const reach = (to, kind, pod) => {
    if (reached !== null && to > reached) found.push({ from: reached, to, kind, pod: pod ?? null });
    reached = Math.max(reached ?? to, to);
  };
  for (const hold of holds(status, now, isExclusive)) {
    // Of a hold without a beginning only the end is known: before it, somebody held for some time.
    if (hold.from === null) reach(hold.to, "unknown");
    else {
      if (reached === null) reached = hold.from;
      reach(hold.from, "nobody");
      reach(hold.to, "held", hold.pod);
    }
  }
  if (reached !== null) reach(now, "nobody");
  const known = doubted(found, status).map((part) => ({ ...part, to: Math.min(part.to, end) })).filter((part) => part.to > part.from);
  if (end < now && found.length > 0) known.push({ from: Math.max(end, found[0].from), to: now, kind: "unknown", pod: null });
  return known.filter((part) => part.to > start);
}

/** In words, for those who do not see it. */
function inWords(found, start) {
  if (found.length === 0) return "no hold is remembered";
  const gaps = found.filter((part) => part.kind === "nobody");
  const held = found.filter((part) => part.kind === "held").length;
  const longest = gaps.reduce((one, gap) => (gap.to - gap.from > one.to - one.from ? gap : one), { from: 0, to: 0 });
  // What reaches the edge of the timeline began before it.
  const least = longest.from < start ? "at least " : "";
  const length = span(longest.to - Math.max(longest.from, start));
  const words = [count(held, "hold"), gaps.length === 0 ? "no gap" : `${count(gaps.length, "gap")}, the longest ${least}${length}`];
  if (found.some((part) => part.kind === "unknown")) words.push("some of it unknown");
  if (found[0].from > start) words.push(`nothing remembered before ${clock(found[0].from)}`);
  return words.join(", ");
}

/** A time as `kubectl lockkeeper history` prints it. */
function clock(time) {
  return time ? `${new Date(time).toISOString().slice(0, 19)}Z` : "-";
}

function count(number, what) {
  return `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
}

/** A span of time for people, as kubectl writes ages; below ten seconds with tenths. */
function span(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)}s`;
  if (seconds < 120) return `${Math.floor(seconds)}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

/**
 * Gradients that draw the parts, one for each kind, since each has a height of its own: a hold fills the bar, a gap is a
 * low strip, and what is unknown a thin line. A gap is two thousandths wide at least, so that it is seen.
 */
function gradients(found, start, now) {
  const least = (now - start) / 500;
  // Two shades, so that a change of holders is seen. Counted from the newest, so that they stay as time goes by.
  let left = found.filter((part) => part.kind === "held").length;
  const layers = { nobody: [], unknown: [], held: [] };
  const at = (time) => `${((100 * (time - start)) / (now - start)).toFixed(2)}%`;
  for (const part of found) {
    let from = Math.max(part.from, start);
    let to = part.to;
    let colour = part.kind;
    if (part.kind === "nobody") {
      to = Math.min(Math.max(to, from + least), now);
      from = Math.max(Math.min(from, to - least), layers.nobody.at(-1)?.to ?? start);
    } else if (part.kind === "held") {
      left -= 1;
      if (left % 2 === 1) colour = "held-too";
    }
    layers[part.kind].push({ from, to, colour });
  }
  // A widened gap cuts into the holds beside it, but not into those that would vanish: then it is drawn over them.
  const gaps = layers.nobody;
  const held = layers.held.map((one) => {
    if (one.to - one.from < 2 * least) return one;
    const before = gaps.findLast((gap) => gap.from <= one.from && gap.to > one.from);
    const after = gaps.find((gap) => gap.from < one.to && gap.to >= one.to);
    return { ...one, from: before ? before.to : one.from, to: after ? after.from : one.to };
  });
  const draw = (all) => {
    const stops = all
      .filter((one) => one.to > one.from)
      .flatMap(({ from, to, colour }) => [
        `transparent ${at(from)}`,
        `var(--${colour}) ${at(from)} ${at(to)}`,
        `transparent ${at(to)}`,
      ]);
    return stops.length === 0 ? "none" : `linear-gradient(to right, ${stops.join(", ")})`;
  };
  return [draw(gaps), draw(layers.unknown), draw(held)].join(", ");
}
