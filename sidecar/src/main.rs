//! `lockkeeper`: parses, prepares the process, and hands over.

use std::io::Write;
use std::process::{ExitCode, Termination};

use lockkeeper_daemon::exit::{self, Exit, Failure};
use lockkeeper_sidecar::args::{self, Command, Parsed};
use lockkeeper_sidecar::{client, install, remote, run, sidecar};

fn main() -> ExitCode {
    lockkeeper_sidecar::prepare();
    let code = match args::parse(std::env::args_os()) {
        Ok(Parsed::Print(text)) => print(&text),
        Ok(Parsed::Do(command)) => dispatch(command),
        Err(failure) => Err(failure),
    };
    code.map_or_else(Termination::report, ExitCode::from)
}

fn dispatch(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Run(args) => run::run(*args),
        Command::Sidecar(args) => sidecar::sidecar(*args),
        Command::Guard(args) => sidecar::guard(args),
        Command::Install(args) => {
            let copy = install::install(&args.directory)?;
            print(&format!("installed {}\n", copy.display()))
        }
        Command::Status(args) if args.watch => {
            let print = |text: &str| print(text).map(drop);
            client::watch(&args.keeper.socket, args.output.output, print).map(|()| 0)
        }
        Command::Status(args) => {
            let status = client::status(&args.keeper.socket, args.output.output)?;
            print(&format!("{status}\n"))
        }
        Command::Wait(args) => {
            client::wait(&args.keeper.socket, args.wait_for, args.timeout, exit::tell).map(|()| 0)
        }
        Command::Release(args) => {
            let outcome = if args.abandon_survivors {
                client::abandon_survivors(&args.keeper.socket)?
            } else {
                client::release(&args.keeper.socket)?
            };
            print(&format!("{outcome}\n"))
        }
        Command::Terminating(args) => {
            let outcome = client::terminating(&args.socket)?;
            print(&format!("{outcome}\n"))
        }
        Command::Probe(args) => {
            client::exec::probe(args.kind, &args.keeper.socket, &args.guard_socket, &args.command)
        }
        Command::List(args) => print(&remote::list(*args)?),
        Command::Inspect(args) => print(&remote::inspect(*args)?),
        Command::History(args) => print(&remote::history(*args)?),
        Command::Watch(args) => remote::watch(*args, |text| print(text).map(drop)).map(|()| 0),
        Command::Handoff(args) => {
            let outcome = remote::handoff(*args)?;
            print(&format!("{outcome}\n"))
        }
        Command::Ui(args) => remote::ui(*args, |text| print(text).map(drop)).map(|()| 0),
    }
}

/// `println!` would panic when the reader is gone.
fn print(text: &str) -> Result<u8, Failure> {
    std::io::stdout()
        .lock()
        .write_all(text.as_bytes())
        .map(|()| 0)
        .map_err(|error| Failure::new(Exit::CannotCreate, format!("cannot write to stdout: {error}")))
}
