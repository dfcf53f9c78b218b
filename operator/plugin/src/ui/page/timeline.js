"use strict";
// Who held a lock, and when nobody did. Nothing here touches the page.

/** Milliseconds of a duration as the status has it: 8500ms, 1.5s, 2m, 1h. */
function millis(text) {
  const units = { ms: 1, s: 1e3, m: 6e4, h: 36e5 };
  let sum = 0;
  for (const [, number, unit] of (text || "").matchAll(/([\d.]+)(ms|s|m|h)/g)) sum += Number(number) * units[unit];
  return sum;
}

/** The holds of a lock, the oldest first: {from, to, pod, ended}; a hold that goes on ends now. */
function holds(status, now) {
  const past = (status.history || []).map((hold) => ({
    from: hold.since ? Date.parse(hold.since) : null,
    to: Date.parse(hold.until),
    pod: hold.pod,
    ended: hold.ended,
  }));
  const present = (status.holders || []).map((hold) => ({
    from: hold.since ? Date.parse(hold.since) : null,
    to: now,
    pod: hold.pod,
    ended: null,
  }));
  const all = [...past, ...present].filter((hold) => Number.isFinite(hold.to));
  // Without a beginning only its end is known.
  for (const hold of all) if (!Number.isFinite(hold.from)) hold.from = hold.to;
  // The clocks of two machines differ: then a hold may seem to end before it began.
  for (const hold of all) hold.from = Math.min(hold.from, hold.to);
  return all.sort((a, b) => a.from - b.from || a.to - b.to);
}

/**
 * What a timeline from `start` to `now` shows, without gaps and overlaps: {from, to, pod}, and pod is null where nobody held.
 * Before the oldest hold that is remembered nothing is known: that time is in no part.
 */
function parts(status, start, now) {
  const all = holds(status, now);
  if (all.length === 0) return [];
  const found = [];
  let reached = Math.max(start, all[0].from);
  for (const hold of all) {
    if (hold.to <= reached) continue;
    if (hold.from > reached) found.push({ from: reached, to: hold.from, pod: null });
    found.push({ from: Math.max(hold.from, reached), to: hold.to, pod: hold.pod });
    reached = hold.to;
  }
  if (reached < now) found.push({ from: reached, to: now, pod: null });
  return found.filter((part) => part.to > start);
}

/** In words, for those who do not see it. */
function inWords(found) {
  const nobody = found.filter((part) => part.pod === null);
  const held = found.length - nobody.length;
  if (found.length === 0) return "no hold is remembered";
  const longest = Math.max(0, ...nobody.map((part) => part.to - part.from));
  const gaps = nobody.length === 0 ? "no gap" : `${count(nobody.length, "gap")}, the longest ${span(longest)}`;
  return `${count(held, "hold")}, ${gaps}`;
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

/** A gradient that draws the parts. A gap is two thousandths wide at least, so that it is seen. */
function gradient(found, start, now) {
  const least = (now - start) / 500;
  const stops = [];
  let drawn = 0;
  // Two shades, so that a change of holders is seen. Counted from the newest, so that they stay as time goes by.
  let left = found.filter((part) => part.pod !== null).length;
  const at = (time) => ((100 * (time - start)) / (now - start)).toFixed(2);
  const draw = (colour, from, to) => {
    stops.push(`var(--${colour}) ${at(from)}% ${at(to)}%`);
    drawn = to;
  };
  for (const part of found) {
    if (part.pod !== null) left -= 1;
    const from = Math.max(part.from, start, drawn);
    const to = part.pod === null ? Math.max(part.to, from + least) : part.to;
    if (to <= from) continue;
    if (stops.length === 0 && from > start) draw("unknown", start, from);
    draw(part.pod === null ? "nobody" : left % 2 === 0 ? "held" : "held-too", from, to);
  }
  return stops.length === 0 ? "none" : `linear-gradient(to right, ${stops.join(", ")})`;
}
