//! Listener of the proxy in another network namespace.
//!
//! A socket belongs to the network namespace in which it was made, whoever uses it. So a small
//! program (this one, started with one argument) listens inside the namespace, sends the listening
//! socket over a Unix socket and ends. The proxy accepts the connections of the namespace; no
//! forwarder runs in it.
//!
//! **What can go wrong.** The listener must come from our program: who holds a copy could take its
//! connections, or make the proxy block on it. So the program runs before anything untrusted runs in
//! the namespace and without its variables, and the shell closes the channel before it goes on.

use std::{
    env,
    ffi::OsStr,
    io::{self, IoSlice, IoSliceMut, Write as _},
    mem::MaybeUninit,
    net::{Ipv4Addr, TcpListener},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net,
    },
    path::{Path, PathBuf},
    process::ExitCode,
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::{io::Interest, net::UnixStream};

/// Port of the proxy in a namespace of its own.
const NAMESPACE_PORT: u16 = 18_797;

/// URL of the proxy in a namespace of its own.
pub const NAMESPACE_URL: &str = "http://127.0.0.1:18797";

/// Argument with which the program is started.
const CHILD_ARGUMENT: &str = "holdfast-proxy-listener";

/// End of a listener's way from its namespace that is in the namespace.
#[derive(Debug)]
pub struct ListenerChannel {
    /// Standard input of the program.
    pub socket: OwnedFd,
    /// Program that listens: its `main` calls [`run_listener`] first.
    pub program: PathBuf,
}

impl ListenerChannel {
    /// Path of the program in the file system of a namespace.
    pub const PROGRAM: &str = "/run/holdfast-listener";

    /// Makes a channel, and returns the end of the proxy, too. Without a program the current
    /// executable listens.
    ///
    /// # Errors
    ///
    /// If sockets are exhausted, or the current executable is not known.
    pub fn open(program: Option<&Path>) -> io::Result<(UnixStream, Self)> {
        let program = match program {
            Some(program) => program.to_owned(),
            None => env::current_exe()?,
        };
        let (near, far) = net::UnixStream::pair()?;
        near.set_nonblocking(true)?;
        Ok((UnixStream::from_std(near)?, Self { socket: far.into(), program }))
    }

    /// Command of a shell that listens and closes the channel, which is its descriptor `fd`, and
    /// ends the shell if that fails.
    #[must_use]
    pub fn shell_command(fd: i32) -> String {
        format!("{} {CHILD_ARGUMENT} <&{fd} || exit 126\nexec {fd}<&-\n", Self::PROGRAM)
    }
}

/// Listens on the loopback interface and sends the listener over the socket on standard input, if
/// the program was started for that; otherwise returns `None`.
///
/// Call it first in `main`, before threads or other work begin.
#[must_use]
pub fn run_listener() -> Option<ExitCode> {
    if env::args_os().nth(1).as_deref() != Some(OsStr::new(CHILD_ARGUMENT)) {
        return None;
    }
    let listening = TcpListener::bind((Ipv4Addr::LOCALHOST, NAMESPACE_PORT));
    let sent = listening.and_then(|listener| send(io::stdin(), &listener));
    Some(match sent {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = format!("the proxy has no listener in this namespace: {error}\n");
            // The exit code says it, too.
            let _unwritten = io::stderr().write_all(text.as_bytes());
            ExitCode::FAILURE
        }
    })
}

fn send(channel: impl AsFd, listener: &TcpListener) -> io::Result<()> {
    let fds = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    sendmsg(channel, &[IoSlice::new(b"l")], &mut control, SendFlags::empty())?;
    Ok(())
}

/// Waits for the listener of a namespace.
pub(crate) async fn receive(channel: UnixStream) -> io::Result<tokio::net::TcpListener> {
    let receive_now = || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let into = &mut [IoSliceMut::new(&mut byte)];
        recvmsg(&channel, into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let fds = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let missing = || io::Error::other("no listener came from its namespace");
        fds.flatten().next().ok_or_else(missing)
    };
    let listener = TcpListener::from(channel.async_io(Interest::READABLE, receive_now).await?);
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

const _: () = assert!(NAMESPACE_PORT == 18_797, "`NAMESPACE_URL` names the port");

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_listener_goes_through_a_channel() -> io::Result<()> {
        let (near, ListenerChannel { socket, .. }) = ListenerChannel::open(None)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;

        send(&socket, &listener)?;
        drop((listener, socket));

        let received = receive(near).await?;
        let connected = tokio::net::TcpStream::connect(address).await?;
        let (_, peer) = received.accept().await?;
        assert_eq!(peer, connected.local_addr()?);
        Ok(())
    }

    #[tokio::test]
    async fn a_channel_that_ends_without_a_listener_is_an_error() -> io::Result<()> {
        let (near, channel) = ListenerChannel::open(None)?;
        drop(channel);

        let received = receive(near).await;

        assert!(received.is_err());
        Ok(())
    }
}
