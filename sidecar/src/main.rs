//! `lockkeeper`: parses, prepares the process, and hands over.

use std::io::Write;
use std::process::{ExitCode, Termination};

use lockkeeper_sidecar::args::{self, Command, Parsed};
use lockkeeper_sidecar::exit::{Exit, Failure};
use lockkeeper_sidecar::{client, install};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run() -> Result<(), Failure> {
    match args::parse(std::env::args_os())? {
        Parsed::Print(text) => print(&text),
        Parsed::Do(command) => dispatch(command),
    }
}

fn dispatch(command: Command) -> Result<(), Failure> {
    match command {
        Command::Install(args) => {
            let copy = install::install(&args.directory)?;
            print(&format!("installed {}\n", copy.display()))
        }
        Command::Status(args) => {
            let status = client::status(&args.keeper.socket, args.output)?;
            print(&format!("{status}\n"))
        }
        Command::Wait(args) => {
            let notice = |notice: &str| eprintln!("lockkeeper: {notice}");
            client::wait(&args.keeper.socket, args.wait_for, args.timeout, notice)
        }
        Command::Release(args) => {
            let outcome = client::release(&args.keeper.socket)?;
            print(&format!("{outcome}\n"))
        }
        Command::Run(args) => {
            args.check()?;
            Err(not_in_this_build("run"))
        }
        Command::Sidecar(args) => {
            args.check()?;
            Err(not_in_this_build("sidecar"))
        }
        Command::Guard(_) => Err(not_in_this_build("guard")),
    }
}

fn not_in_this_build(command: &str) -> Failure {
    Failure::software(format!("this build of lockkeeper cannot do `{command}`"))
}

/// `println!` would panic when the reader is gone.
fn print(text: &str) -> Result<(), Failure> {
    std::io::stdout()
        .lock()
        .write_all(text.as_bytes())
        .map_err(|error| Failure::new(Exit::CannotCreate, format!("cannot write to stdout: {error}")))
}
