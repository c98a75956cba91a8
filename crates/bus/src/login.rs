//! Login and TLS of connections to NATS.

use std::path::Path;

use async_nats::{ConnectOptions, ServerAddr};
use holdfast_kit::tls::TlsProblem;
use secrecy::ExposeSecret as _;

use crate::{Config, Error};

/// Returns options with the login and the authorities of the settings.
///
/// # Errors
///
/// If a setting is invalid, or there are several logins.
pub(crate) fn options(config: &Config, servers: &[ServerAddr]) -> Result<ConnectOptions, Error> {
    let nkey = config.nkey.expose_secret().trim();
    let credentials = config.credentials.expose_secret();
    let options = match (nkey, credentials) {
        ("", "") => of_addresses(servers)?,
        (nkey, "") => {
            let what = "write the seed of an NKey of a user, which begins with `SU`";
            if !nkey.starts_with("SU") {
                return Err(Error::Config { setting: "nkey", what });
            }
            ConnectOptions::with_nkey(nkey.to_owned())
        }
        ("", credentials) => {
            let what = "write the content of a `.creds` file, as `nsc generate creds` makes it";
            let invalid = |_| Error::Config { setting: "credentials", what };
            ConnectOptions::with_credentials(credentials).map_err(invalid)?
        }
        _ => {
            let what = "`nats.nkey` is set, too: choose one";
            return Err(Error::Config { setting: "credentials", what });
        }
    };
    // The client reads the files at each connection, so new ones need no restart.
    let options = match (&config.certificate, &config.private_key) {
        (Some(certificate), Some(key)) => {
            readable("certificate", certificate)?;
            readable("private_key", key)?;
            options.add_client_certificate(certificate.clone(), key.clone()).require_tls(true)
        }
        (None, None) => options,
        (Some(_), None) => {
            let what = "name the file with the key of `nats.certificate`";
            return Err(Error::Config { setting: "private_key", what });
        }
        (None, Some(_)) => {
            let what = "name the file with the certificate of `nats.private_key`";
            return Err(Error::Config { setting: "certificate", what });
        }
    };
    let Some(authorities) = &config.authorities else { return Ok(options) };
    readable("authorities", authorities)?;
    Ok(options.add_root_certificates(authorities.clone()).require_tls(true))
}

fn readable(setting: &'static str, path: &Path) -> Result<(), Error> {
    let unreadable = |source| Error::File { setting, path: path.to_owned(), source };
    std::fs::File::open(path).map(drop).map_err(unreadable)
}

/// What to do about an error that a person must remove; `None` for others.
pub(crate) fn advice(error: &str) -> Option<String> {
    let lower = error.to_lowercase();
    if lower.contains("authorization violation") || lower.contains("authentication") {
        return Some(
            "the login is wrong or has expired: set user and password in `nats.url`, or \
             `nats.nkey`, or `nats.credentials`"
                .to_owned(),
        );
    }
    if lower.contains("tls error") && lower.contains("no such file") {
        return Some(
            "a file of `nats.authorities`, `nats.certificate` or `nats.private_key` cannot be read"
                .to_owned(),
        );
    }
    TlsProblem::in_text(error).map(|problem| match problem {
        TlsProblem::Refused(_) => format!(
            "{problem}; name a certificate that it trusts by `nats.certificate` and \
             `nats.private_key`"
        ),
        problem => problem.with_remedy("`nats.authorities`"),
    })
}

/// Credentials in the address of a server.
#[derive(PartialEq, Eq)]
enum Login {
    Token(String),
    Password { user: String, password: String },
}

impl Login {
    fn of(server: &ServerAddr) -> Result<Option<Self>, Error> {
        let Some(user) = server.username() else { return Ok(None) };
        let user = decode(user)?;
        Ok(Some(match server.password() {
            Some(password) => Self::Password { user, password: decode(password)? },
            None => Self::Token(user),
        }))
    }
}

/// Addresses write special characters as `%40`.
fn decode(text: &str) -> Result<String, Error> {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    let what = "write user and password in UTF-8, special characters as `%40`";
    Ok(decoded.map_err(|_| Error::Config { setting: "url", what })?.into_owned())
}

/// Returns options with the credentials of the addresses, which the client does not take from
/// there. It sends the same to all servers.
fn of_addresses(servers: &[ServerAddr]) -> Result<ConnectOptions, Error> {
    let mut login = None;
    for server in servers {
        match (Login::of(server)?, &login) {
            (Some(other), Some(first)) if other != *first => {
                let what = "write the same user and password for all servers";
                return Err(Error::Config { setting: "url", what });
            }
            (Some(first), None) => login = Some(first),
            (Some(_) | None, _) => {}
        }
    }
    Ok(match login {
        Some(Login::Password { user, password }) => {
            ConnectOptions::with_user_and_password(user, password)
        }
        Some(Login::Token(token)) => ConnectOptions::with_token(token),
        None => ConnectOptions::new(),
    })
}
