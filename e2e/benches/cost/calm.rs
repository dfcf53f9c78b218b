//! The cost of a lock while few are held.

use std::time::Duration;

use anyhow::Context as _;
use lockkeeper_testbed::{Ensemble, Host};

use super::crowd::{self, Size};
use super::meter::{Cost, Meter};
use super::tally::Fate;

/// Prints the cost of each number of locks, without and with waiters. Returns the least time that a holder had until
/// its deadline.
pub fn measure(
    ensemble: &Ensemble,
    clients: &Host,
    numbers: &[usize],
    hold: Duration,
) -> anyhow::Result<Duration> {
    println!(
        "\n## Cost in calm\n\n\
         Held for {hold:?}. Per lock and second: transactions, reads, and kB between clients and servers and between \
         servers, with the headers of TCP, IP and Ethernet. CPU in per cent of one core: the three servers, the one \
         process with all clients, and all others on this machine. Memory: one server.\n\n\
         | locks | waiters | writes | reads | kB, clients | kB, servers | CPU, servers | client | others | memory | p50 | p99 | least left |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    let idle = Size {
        locks: 0,
        with_waiters: false,
    };
    print(idle, &of(ensemble, clients, idle, hold)?);
    let mut calm = None;
    for &locks in numbers {
        for with_waiters in [false, true] {
            let size = Size { locks, with_waiters };
            let measured = of(ensemble, clients, size, hold)?;
            print(size, &measured);
            let fate = measured.1;
            anyhow::ensure!(
                fate.missing + fate.lost == 0,
                "of {locks} locks {} were never held, and {} were lost, in calm",
                fate.missing,
                fate.lost
            );
            calm.get_or_insert(fate.least_left);
        }
    }
    calm.context("--locks names no number of locks")
}

fn print(size: Size, (cost, fate): &(Cost, Fate)) {
    let locks = size.locks as f64;
    let is_held = size.locks > 0;
    let or_dash = |text: String| if is_held { text } else { "-".to_owned() };
    let each = |sum: f64| or_dash(format!("{:.2}", sum / locks));
    let kilo = |bytes: Option<f64>| bytes.map_or_else(|| "-".to_owned(), |bytes| each(bytes / 1e3));
    println!(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        size.locks,
        if size.with_waiters { size.locks } else { 0 },
        each(cost.writes),
        each(cost.reads),
        kilo(cost.bytes),
        kilo(cost.bytes_between_servers),
        cost.of_processors_and_memory(),
        or_dash(millis(fate.p50)),
        or_dash(millis(fate.p99)),
        or_dash(format!("{:.2?}", fate.least_left)),
    );
}

/// Holds that many locks for a while.
pub fn of(ensemble: &Ensemble, clients: &Host, size: Size, hold: Duration) -> anyhow::Result<(Cost, Fate)> {
    crowd::beside(ensemble, clients, size, |tally| {
        let meter = Meter::start(ensemble, clients)?;
        tally.begin();
        std::thread::sleep(hold);
        let fate = tally.end(size.locks);
        Ok((meter.stop()?, fate))
    })
}

/// In milliseconds, for tables.
pub fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}
