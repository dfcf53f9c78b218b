//! What the command line says.

use std::str::FromStr;
use std::time::Duration;

use anyhow::Context as _;

/// What to measure, and for how long.
pub struct Arguments {
    /// Numbers of locks whose cost is measured in calm: `--locks=10,100`.
    pub locks: Vec<usize>,
    /// How long the locks are held in a step of the search: `--seconds=30`. Other measurements take a third of it.
    pub hold: Duration,
    /// The first number of locks in the search for the knee; 0: no search. `--knee=1000`.
    pub first: usize,
    /// A waiter behind each holder in the search: `--with-waiters`.
    pub with_waiters: bool,
    /// Pods in the measurement of one session for several locks; 0: no such measurement. `--pods=100`.
    pub pods: usize,
    /// Servers do not wait for the disk: `--no-fsync`.
    pub no_fsync: bool,
}

impl Arguments {
    /// Arguments of other benchmarks in the same command are theirs.
    ///
    /// # Errors
    /// When a value is no whole number.
    pub fn parse() -> anyhow::Result<Self> {
        let locks = value("--locks=").unwrap_or_else(|| "10,100".to_owned());
        let locks = locks.split(',').map(|number| parse("--locks", number));
        Ok(Self {
            locks: locks.collect::<anyhow::Result<_>>()?,
            hold: Duration::from_secs(number("--seconds", 30)?),
            first: number("--knee", 1000)?,
            with_waiters: is_given("--with-waiters"),
            pods: number("--pods", 100)?,
            no_fsync: is_given("--no-fsync"),
        })
    }
}

fn value(prefix: &str) -> Option<String> {
    std::env::args().find_map(|argument| argument.strip_prefix(prefix).map(str::to_owned))
}

fn is_given(flag: &str) -> bool {
    std::env::args().any(|argument| argument == flag)
}

fn number<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    name: &str,
    default: T,
) -> anyhow::Result<T> {
    value(&format!("{name}=")).map_or(Ok(default), |text| parse(name, &text))
}

fn parse<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    name: &str,
    text: &str,
) -> anyhow::Result<T> {
    text.trim()
        .parse()
        .with_context(|| format!("{name} has {text:?}, which is no whole number"))
}
