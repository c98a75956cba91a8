//! Signing in: capabilities, SASL PLAIN, the nick (<https://ircv3.net/specs/extensions/sasl-3.1>).

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use secrecy::ExposeSecret as _;
use tokio::time::timeout;

use super::{Irc, session::Wire, wire::Line};
use crate::connection::Disconnected;

/// Time in which a server must have signed the client in.
const SIGN_IN_TIMEOUT: Duration = Duration::from_secs(45);

/// Capabilities that are used where the server has them.
const USED_CAPABILITIES: [&str; 3] = ["account-tag", "message-tags", "sasl"];

/// Number of other nicks that are tried if the wanted one is taken.
const MAX_NICK_TRIES: usize = 3;

/// Length of a piece of a SASL response, in bytes.
const SASL_CHUNK_BYTES: usize = 400;

impl Irc {
    /// Signs in and returns the nick that the server gave.
    pub(super) async fn sign_in(&self, wire: &mut Wire) -> Result<String, Disconnected> {
        match timeout(SIGN_IN_TIMEOUT, self.register(wire)).await {
            Ok(nick) => nick,
            Err(_) => Err(Disconnected::lost("the server did not sign the client in in time")),
        }
    }

    async fn register(&self, wire: &mut Wire) -> Result<String, Disconnected> {
        wire.write("CAP LS 302").await?;
        if let Some(password) = &self.secrets.server_password {
            wire.write(&format!("PASS :{}", password.expose_secret())).await?;
        }
        let mut nick = self.settings.nick.clone();
        wire.write(&format!("NICK {nick}")).await?;
        wire.write(&format!("USER {} 0 * :{}", user_name(&nick), self.settings.nick)).await?;
        let (mut offered, mut is_signed_in, mut tries) = (String::new(), false, 0);
        loop {
            let line = wire.read().await?;
            match line.command.as_str() {
                "PING" => wire.write(&format!("PONG :{}", line.text())).await?,
                "CAP" => self.negotiate(wire, &line, &mut offered).await?,
                "AUTHENTICATE" if line.param(0) == "+" => self.authenticate(wire).await?,
                "903" => {
                    is_signed_in = true;
                    wire.write("CAP END").await?;
                }
                "902" | "904" | "905" | "906" | "908" => {
                    return Err(Disconnected::rejected(
                        "the server refuses the account or its `secrets.password`",
                    ));
                }
                "433" | "436" if tries < MAX_NICK_TRIES => {
                    tries += 1;
                    nick = format!("{}{}", self.settings.nick, "_".repeat(tries));
                    wire.write(&format!("NICK {nick}")).await?;
                }
                "432" | "433" | "436" | "437" => {
                    return Err(Disconnected::rejected(format!(
                        "the server does not give the nick `{}`: choose another",
                        self.settings.nick
                    )));
                }
                "464" => {
                    return Err(Disconnected::rejected(
                        "the server wants a password, or another one: set `secrets.server_password`",
                    ));
                }
                "465" => return Err(Disconnected::rejected("the server has banned this client")),
                "ERROR" => return Err(Disconnected::lost("the server closed the connection")),
                "001" if self.secrets.password.is_some() && !is_signed_in => return Err(no_sasl()),
                "001" => return Ok(line.param(0).to_owned()),
                _ => {}
            }
        }
    }

    async fn negotiate(
        &self,
        wire: &mut Wire,
        line: &Line,
        offered: &mut String,
    ) -> Result<(), Disconnected> {
        match line.param(1) {
            "LS" => {
                offered.push(' ');
                offered.push_str(line.text());
                // A `*` says that more lines follow.
                if line.param(2) == "*" && line.params.len() > 3 {
                    return Ok(());
                }
                let names: Vec<&str> = offered
                    .split_whitespace()
                    .map(|entry| entry.split('=').next().unwrap_or_default())
                    .collect();
                let has_password = self.secrets.password.is_some();
                if has_password && !names.contains(&"sasl") {
                    return Err(no_sasl());
                }
                let wanted: Vec<&str> = USED_CAPABILITIES
                    .into_iter()
                    .filter(|name| names.contains(name) && (*name != "sasl" || has_password))
                    .collect();
                match wanted.as_slice() {
                    [] => wire.write("CAP END").await,
                    wanted => wire.write(&format!("CAP REQ :{}", wanted.join(" "))).await,
                }
            }
            "ACK" if line.text().split_whitespace().any(|name| name == "sasl") => {
                wire.write("AUTHENTICATE PLAIN").await
            }
            "ACK" | "NAK" => wire.write("CAP END").await,
            _ => Ok(()),
        }
    }

    async fn authenticate(&self, wire: &mut Wire) -> Result<(), Disconnected> {
        let Some(password) = &self.secrets.password else { return Err(no_sasl()) };
        let name = self.settings.account();
        let response = STANDARD.encode(format!("{name}\0{name}\0{}", password.expose_secret()));
        let chunks = response.as_bytes().chunks(SASL_CHUNK_BYTES);
        for chunk in chunks {
            wire.write(&format!("AUTHENTICATE {}", String::from_utf8_lossy(chunk))).await?;
        }
        // A full last piece is followed by an empty one.
        if response.len().is_multiple_of(SASL_CHUNK_BYTES) {
            wire.write("AUTHENTICATE +").await?;
        }
        Ok(())
    }
}

fn no_sasl() -> Disconnected {
    Disconnected::rejected("the server does not offer SASL, and `secrets.password` is for it")
}

fn user_name(nick: &str) -> String {
    let letters: String = nick.chars().filter(char::is_ascii_alphanumeric).take(9).collect();
    if letters.is_empty() { "holdfast".to_owned() } else { letters.to_ascii_lowercase() }
}
