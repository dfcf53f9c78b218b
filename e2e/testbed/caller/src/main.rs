//! The test application of pods that talk to one another: a server that returns its name, and a client that
//! requests it.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use clap::Parser;

const BOUND: Duration = Duration::from_secs(5);

/// Answers every connection with one line, or requests that line.
#[derive(Parser)]
#[command(name = "lockkeeper-caller")]
enum Args {
    /// Print and answer TEXT on a port until it is killed.
    Serve {
        /// The port, on all addresses.
        port: u16,
        /// The line.
        text: String,
    },
    /// Print what a server answers.
    Ask {
        /// Address of the server, as `host:port`; the name is resolved.
        address: String,
    },
}

fn main() -> io::Result<()> {
    match Args::parse() {
        Args::Serve { port, text } => {
            let listener = TcpListener::bind(("0.0.0.0", port))?;
            println!("{text} serves");
            for stream in listener.incoming() {
                // The client may be gone.
                let _ = writeln!(stream?, "{text}");
            }
            Ok(())
        }
        Args::Ask { address } => {
            let resolved = address
                .to_socket_addrs()?
                .next()
                .ok_or_else(|| io::Error::other(format!("{address} has no address")))?;
            let mut stream = TcpStream::connect_timeout(&resolved, BOUND)?;
            stream.set_read_timeout(Some(BOUND))?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            print!("{answer}");
            Ok(())
        }
    }
}
