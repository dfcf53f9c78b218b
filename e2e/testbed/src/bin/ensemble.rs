//! Starts real ZooKeeper servers for a program, or for a developer.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use lockkeeper_testbed::{Config, Ensemble};
use signal_hook::consts::{SIGINT, SIGTERM};

/// How soon an end is noticed.
const POLL: Duration = Duration::from_millis(50);

/// Starts real ZooKeeper servers, and ends them with the command that it runs beside them.
///
/// The command finds the servers in ZOOKEEPER_CONNECT. The command may be a shell. If the kernel allows
/// network namespaces, it runs on a host of its own. Without a command the servers run until standard input
/// ends.
#[derive(Parser)]
#[command(name = "lockkeeper-ensemble")]
struct Args {
    /// How many servers.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    servers: u8,
    /// ZooKeeper's tickTime in milliseconds; session timeouts are 2 to 20 of them.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    tick: u64,
    /// Use loopback addresses, which programs started elsewhere reach, too.
    #[arg(long)]
    loopback: bool,
    /// The command and its arguments.
    #[arg(last = true)]
    command: Vec<String>,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let ensemble = Ensemble::start(Config {
        servers: args.servers.into(),
        tick: Duration::from_millis(args.tick),
        loopback: args.loopback,
        ..Config::default()
    })?;
    let connect = ensemble.connect_string();
    let over = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&over))?;
    }
    let Some((program, arguments)) = args.command.split_first() else {
        println!("{connect}");
        let at_end = Arc::clone(&over);
        std::thread::spawn(move || {
            // An unreadable standard input counts as ended.
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            at_end.store(true, Ordering::Relaxed);
        });
        while !over.load(Ordering::Relaxed) {
            std::thread::sleep(POLL);
        }
        return Ok(ExitCode::SUCCESS);
    };
    let mut command = Command::new(program);
    command.args(arguments).env("ZOOKEEPER_CONNECT", &connect);
    let mut process = ensemble.client("command")?.spawn(program, command)?;
    while !over.load(Ordering::Relaxed) {
        if let Some(status) = process.wait(POLL)? {
            // As a shell does: 128 + signal for a command that was killed.
            let code = status
                .code()
                .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
            return Ok(ExitCode::from(code as u8));
        }
    }
    Ok(ExitCode::FAILURE)
}
