
// When holders have renewed, as the page's server has seen it from outside. It is asked once a second, only while a story is
// open, and only where it knows renewals.

// {CONTENDER: {age, isSeen}} of the lock `key`: milliseconds at the moment `at` of this page's own clock.
let renewals = { key: null, at: 0, holders: {} };
let isAsking = false;
// So long after the last answer nothing is known any more, in milliseconds.
const RENEWALS_OLD = 5000;

/** A cell that counts a lease down. */
function renewalCell(holder) {
  const cell = make("td");
  cell.dataset.contender = holder.contender;
  return cell;
}

/** When a holder has renewed, and from when on the next one may take its place, in words. */
function renewal(lock, holder) {
  if (holder.isUnreadable) return "unknown: it may not be read";
  if (!holder.leaseDuration) return "its session decides";
  const passed = performance.now() - renewals.at;
  const isTold = renewals.key === lock.key && Object.hasOwn(renewals.holders, holder.contender);
  if (!isTold || passed > RENEWALS_OLD) return "unknown at the moment";
  const { age, isSeen } = renewals.holders[holder.contender];
  const left = millis(holder.leaseDuration) - age - passed;
  const ago = span(age + passed);
  if (left <= 0) return `${isSeen ? `renewed ${ago} ago` : `no renewal seen for ${ago}`}, may be taken over now`;
  if (!isSeen) return `no renewal seen for ${ago}, may be taken over in ${span(left)} or sooner`;
  return `renewed ${ago} ago, may be taken over at the earliest in ${span(left)}`;
}

function drawRenewals(lock) {
  // The story may be drawn anew a moment after its lock has changed.
  for (const cell of element("story").querySelectorAll("td[data-contender]")) {
    const holder = holders(lock).find((one) => one.contender === cell.dataset.contender);
    if (holder) put(cell, renewal(lock, holder));
  }
}

async function askRenewals() {
  const lock = locks.get(chosen);
  if (!lock || lock.renewals === undefined || document.hidden || isAsking) return;
  isAsking = true;
  try {
    const answer = await fetch(`renewals${location.search}&lock=${lock.renewals}`);
    const told = answer.ok ? await answer.json() : {};
    if (told.seal === SEAL) renewals = { key: lock.key, at: performance.now(), holders: told.holders };
  } catch {
    // The stream of events ends as well, and that is told.
  }
  isAsking = false;
  if (chosen === lock.key && locks.has(chosen)) drawRenewals(locks.get(chosen));
}
