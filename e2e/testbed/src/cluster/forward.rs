//! Makes a port of the control plane reachable from this machine, on 127.0.0.1, and the other way round,
//! without changing the machine's network: it copies bytes between two connections.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::Host;

const CONNECT: Duration = Duration::from_secs(5);

/// Forwards connections from `port` of 127.0.0.1 to an address as `host` sees it, for as long as this
/// process lives.
///
/// # Errors
/// When another program has the port.
pub(crate) fn forward(port: u16, host: &Host, to: SocketAddrV4) -> anyhow::Result<()> {
    let listener = match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => bail!(
            "port {port} of 127.0.0.1 is in use; the cluster needs it to be reached from this machine: see `ss -ltnp`"
        ),
        other => other.with_context(|| format!("cannot listen on 127.0.0.1:{port}"))?,
    };
    let host = host.clone();
    serve(listener, move || host.connect(to, CONNECT))?;
    Ok(())
}

/// Forwards connections from a port of `host` to an address of this machine, for as long as this process
/// lives. Returns the address at which it listens.
///
/// # Errors
/// When it cannot listen there.
pub(crate) fn lead_out(host: &Host, to: SocketAddrV4) -> anyhow::Result<SocketAddrV4> {
    let listener = host.run(|| TcpListener::bind((host.address(), 0)))??;
    let port = listener.local_addr()?.port();
    serve(listener, move || TcpStream::connect_timeout(&to.into(), CONNECT))?;
    Ok(SocketAddrV4::new(host.address(), port))
}

/// Joins each connection with one that `connect` makes for it.
fn serve(
    listener: TcpListener,
    connect: impl Fn() -> io::Result<TcpStream> + Clone + Send + 'static,
) -> io::Result<()> {
    thread::Builder::new()
        .name(format!("forward {}", listener.local_addr()?.port()))
        .spawn(move || {
            for one in listener.incoming().flatten() {
                let connect = connect.clone();
                // If that connection cannot be made, this closes the first one, as the server itself would.
                thread::spawn(move || join(one, connect()?));
            }
        })?;
    Ok(())
}

/// Copies in both directions until both have ended.
fn join(outside: TcpStream, inside: TcpStream) -> io::Result<()> {
    let (from, to) = (inside.try_clone()?, outside.try_clone()?);
    let back = thread::spawn(move || copy(from, to));
    copy(outside, inside);
    // It has no result, and does not panic.
    let _ = back.join();
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    // Both ends learn of an end or an error of one side by the end of their stream.
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}
