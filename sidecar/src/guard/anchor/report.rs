//! Reports to the guard, over a socket, so that the kernel identifies the sender.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags,
    SocketFlags, SocketType,
};
use rustix::process::Pid;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::guard) enum Report {
    /// The application says that it was forked.
    Forked,
    /// The anchor says that the main process ended so.
    Exited(u8),
}

/// A socket pair: the guard's end and that of all others.
pub(in crate::guard) fn channel() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (guards, others) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // unix(7), SO_PASSCRED: each report comes with the number of its sender in our PID namespace.
    rustix::net::sockopt::set_socket_passcred(&guards, true)?;
    Ok((guards, others))
}

pub(super) fn send(reports: &OwnedFd, report: Report) -> Result<(), Errno> {
    let bytes = match report {
        Report::Forked => [1, 0],
        Report::Exited(code) => [2, code],
    };
    let mut nothing = SendAncillaryBuffer::default();
    rustix::net::sendmsg(
        reports,
        &[IoSlice::new(&bytes)],
        &mut nothing,
        SendFlags::NOSIGNAL,
    )
    .map(drop)
}

/// What is to be read from the guard's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::guard) enum Received {
    Report(Report, Pid),
    /// Nothing at the moment.
    Nothing,
    /// Nothing ever again: nobody has the other end any more.
    End,
}

/// The next report and its sender, if there is one.
pub(in crate::guard) fn receive(reports: &OwnedFd) -> Received {
    let mut bytes = [0; 2];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        reports,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    );
    let report = match (received.map(|received| received.bytes), bytes) {
        (Ok(2), [1, _]) => Report::Forked,
        (Ok(2), [2, code]) => Report::Exited(code),
        (Err(Errno::AGAIN | Errno::INTR), _) => return Received::Nothing,
        _ => return Received::End,
    };
    let sender = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(sender) => Some(sender.pid),
        _ => None,
    });
    sender.map_or(Received::End, |sender| Received::Report(report, sender))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lockkeeper_lock::BootInstant;

    use super::*;

    #[test]
    fn the_end_of_all_that_could_report_is_told_from_a_silence() {
        let (guards, others) = channel().expect("a socket pair");
        assert_eq!(receive(&guards), Received::Nothing);
        send(&others, Report::Exited(3)).expect("sent");
        drop(others);
        let own = rustix::process::getpid();
        assert_eq!(receive(&guards), Received::Report(Report::Exited(3), own));
        // A child that another test forks meanwhile has the other end until it executes its program.
        let end = BootInstant::now() + Duration::from_secs(30);
        while receive(&guards) == Received::Nothing && BootInstant::now() < end {
            std::thread::yield_now();
        }
        assert_eq!(receive(&guards), Received::End);
    }
}
