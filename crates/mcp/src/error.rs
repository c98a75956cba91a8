//! Errors of the client.

use std::{error::Error as StdError, time::Duration};

use rmcp::{
    ServiceError,
    model::ErrorData,
    service::ClientInitializeError,
    transport::{DynamicTransportError, streamable_http_client::StreamableHttpError},
};

/// Maximum length of a server's text in an error, in characters.
const MAX_SERVER_TEXT_CHARS: usize = 500;

/// Error of a server or of the connection to it. Texts of the server are untrusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The server cannot be reached; it has not answered.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// The server refuses the credentials.
    #[error("it wants other credentials (HTTP 401 or 403): put the right header with `mcp add`")]
    Unauthorized,
    #[error("it did not answer within {} s", waited.as_secs_f64())]
    Silent { waited: Duration },
    #[error("the connection to it ended")]
    Closed,
    #[error("it answered with error {code}: {said}")]
    Refused {
        /// Error code of JSON-RPC.
        code: i32,
        said: String,
    },
    /// The answer violates the protocol.
    #[error("it does not speak the protocol: {0}")]
    Garbled(String),
    /// A configured header is invalid or reserved by the protocol.
    #[error(
        "the header `{0}` cannot be sent: its name or value is no header's, or it is the protocol's own"
    )]
    Header(String),
}

impl Error {
    /// Whether the connection cannot be used any more.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Unauthorized | Self::Closed | Self::Header(_) => true,
            Self::Silent { .. } | Self::Refused { .. } | Self::Garbled(_) => false,
        }
    }

    pub(crate) fn of_start(error: &ClientInitializeError) -> Self {
        match error {
            ClientInitializeError::TransportError { error, .. } => of_transport(error),
            ClientInitializeError::JsonRpcError(error) => of_data(error),
            ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::Cancelled => {
                Self::Closed
            }
            ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
                Self::of_start(fallback)
            }
            other => Self::Garbled(shorten(&other.to_string())),
        }
    }

    pub(crate) fn of_call(error: &ServiceError) -> Self {
        match error {
            ServiceError::McpError(error) => of_data(error),
            ServiceError::TransportSend(error) => of_transport(error),
            ServiceError::TransportClosed | ServiceError::Cancelled { .. } => Self::Closed,
            ServiceError::Timeout { timeout } => Self::Silent { waited: *timeout },
            other => Self::Garbled(shorten(&other.to_string())),
        }
    }
}

fn of_data(error: &ErrorData) -> Error {
    Error::Refused { code: error.code.0, said: shorten(&error.message) }
}

fn of_transport(error: &DynamicTransportError) -> Error {
    let error: &(dyn StdError + 'static) = error.error.as_ref();
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        // URLs may hold keys, so report only the innermost cause.
        Some(StreamableHttpError::Client(error)) => match error.status() {
            Some(status) => Error::Unreachable(format!("HTTP {}", status.as_u16())),
            None => Error::Unreachable(innermost(error)),
        },
        Some(StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_)) => {
            Error::Unauthorized
        }
        Some(StreamableHttpError::HttpStatus(error)) => {
            Error::Unreachable(format!("HTTP {}", error.status))
        }
        Some(StreamableHttpError::UnexpectedServerResponse(said)) => match said.get(..8) {
            Some("HTTP 401" | "HTTP 403") => Error::Unauthorized,
            _ => Error::Garbled(shorten(said)),
        },
        Some(StreamableHttpError::ReservedHeaderConflict(name)) => Error::Header(shorten(name)),
        Some(
            StreamableHttpError::SessionExpired
            | StreamableHttpError::UnexpectedEndOfStream
            | StreamableHttpError::TransportChannelClosed,
        ) => Error::Closed,
        Some(other) => Error::Garbled(shorten(&other.to_string())),
        // Pipes fail in two ways: closed, or a message that is too long or not JSON.
        None => match error.downcast_ref::<std::io::Error>() {
            Some(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                Error::Garbled(shorten(&error.to_string()))
            }
            Some(_) | None => Error::Closed,
        },
    }
}

fn innermost(error: &(dyn StdError + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    match error.downcast_ref::<reqwest::Error>() {
        Some(error) if error.is_timeout() => "it took too long".to_owned(),
        Some(_) => "no connection could be made".to_owned(),
        None => shorten(&error.to_string()),
    }
}

pub(crate) fn shorten(said: &str) -> String {
    said.chars().take(MAX_SERVER_TEXT_CHARS).collect()
}
