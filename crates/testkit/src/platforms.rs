//! Platforms for several bridges at once: Discord and a mail server.
//!
//! Each keeps the rules on which a bridge relies: what it repeats until it is confirmed, and by what it
//! recognises a message that is sent again. The secrets of an account end with its name.

mod discord;
mod mail;

pub use discord::FakeDiscord;
pub use mail::FakeMail;

use std::net::IpAddr;
use std::time::Instant;

use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// Beginning of secrets, which the account's name follows.
pub const SECRET_PREFIX: &str = "secret-0123456789-of-";

/// A message that a platform has taken from a bridge.
#[derive(Debug, Clone)]
pub struct Posted {
    pub at: Instant,
    pub account: String,
    pub chat: String,
    pub text: String,
}

/// A message that a person writes to an account directly.
#[derive(Debug, Clone)]
pub struct Written<'a> {
    /// Number of the person, and of the chat with them.
    pub person: usize,
    /// Id on the platform; the same id is the same message.
    pub id: i64,
    pub text: &'a str,
}

/// Settings and secrets of an account.
#[derive(Debug, Clone)]
pub struct AccountSettings {
    pub settings: Value,
    pub secrets: Value,
}

fn secret_of(account: &str) -> String {
    format!("{SECRET_PREFIX}{account}")
}

/// Account to which a secret belongs, whatever stands before it.
fn account_of(secret: &str) -> Option<String> {
    secret.split_once(SECRET_PREFIX).map(|(_, account)| account.to_owned())
}

/// Accepts connections on a free port until `stop`; returns the port.
async fn accept<F>(
    ip: IpAddr,
    stop: CancellationToken,
    mut serve: impl FnMut(TcpStream) -> F + Send + 'static,
) -> anyhow::Result<u16>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind((ip, 0)).await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                    let (serving, stopped) = (serve(stream), stop.clone());
                    tokio::spawn(async move {
                        tokio::select! {
                            () = stopped.cancelled() => {}
                            () = serving => {}
                        }
                    });
                }
            }
        }
    });
    Ok(port)
}
