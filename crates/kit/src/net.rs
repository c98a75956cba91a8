//! TCP listeners.
//!
//! Accepted sockets need TCP_NODELAY, or a stream of small frames waits 40 ms for acknowledgements.

use std::{io::ErrorKind, net::SocketAddr};

use anyhow::anyhow;
use tokio::net::{TcpListener, TcpStream};
use tracing::debug;

/// Listens on `address`, the value of the setting `setting`, such as `gateway.http.listen`.
///
/// # Errors
///
/// If the address cannot be bound. The error says why, and what to change.
pub async fn listen(address: SocketAddr, setting: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        let why = match error.kind() {
            ErrorKind::AddrInUse => "something else listens there",
            ErrorKind::AddrNotAvailable => "this machine has no such address",
            ErrorKind::PermissionDenied => "ports below 1024 need a privilege",
            _ => "the system refuses",
        };
        let variable = crate::config::variable(setting);
        anyhow!(error).context(format!(
            "cannot listen on `{address}`: {why}; \
             stop it, or choose another address by `{setting}` (`{variable}`)"
        ))
    })
}

/// Sends small frames immediately instead of combining them.
pub fn nodelay(socket: &mut TcpStream) {
    if let Err(error) = socket.set_nodelay(true) {
        debug!(%error, "cannot set TCP_NODELAY");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_taken_port_is_refused_with_the_setting_to_change() {
        let taken = listen(SocketAddr::from(([127, 0, 0, 1], 0)), "gateway.http.listen");
        let taken = taken.await.unwrap();

        let error = listen(taken.local_addr().unwrap(), "gateway.http.listen").await.unwrap_err();

        let text = error.to_string();
        assert!(text.contains("something else listens there"), "{text}");
        assert!(text.contains("`HOLDFAST_GATEWAY__HTTP__LISTEN`"), "{text}");
    }
}
