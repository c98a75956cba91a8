//! Failures of commands, their messages and exit codes.

use std::{error::Error as _, io, process::ExitCode};

use holdfast_types::Kind;
use tonic::Status;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The options or arguments are invalid.
    #[error("{0}")]
    Usage(String),

    #[error("{0}")]
    NotFound(String),

    /// No API key was given or found.
    #[error(
        "there is no key: sign in with `holdfast login`, give a key by --key or HOLDFAST_API_KEY, or run this where `holdfast up` \
         was run, which leaves one in `.holdfast/dev.key`"
    )]
    NoKey,

    /// The mesh of the folder does not run, and no other gateway was given.
    #[error("{0}")]
    MeshDown(String),

    /// The gateway does not answer at its address.
    #[error(
        "cannot reach the gateway at {url} ({why}): is it running? `holdfast up` (or `make up`) \
         starts one here, --gateway and HOLDFAST_URL name another"
    )]
    Unreachable {
        url: String,
        /// The error of the operating system.
        why: String,
    },

    /// The gateway refused the call.
    #[error("{}", refusal_message(.0))]
    Refused(Box<Status>),

    /// A turn ended without an answer.
    #[error("{0}")]
    NoAnswer(String),

    /// A file or the terminal failed.
    #[error(transparent)]
    Io(#[from] io::Error),

    #[error("{0:#}")]
    Other(#[from] anyhow::Error),
}

impl Error {
    /// Converts a failed call's status. `url` is the gateway's address.
    pub fn from_status(status: Status, url: &str) -> Self {
        // A status created on this side has a source; one received from the gateway has none.
        match status.source() {
            Some(source) if has_other_protocol(source) && url.starts_with("http://") => {
                let url = url.trim_start_matches("http://");
                Self::Usage(format!(
                    "what answers at {url} is no gRPC server, or one that speaks TLS: write \
                     `https://{url}` in that case"
                ))
            }
            _ if is_http_answer(&status) => Self::Usage(format!(
                "what answers at {url} speaks HTTP and no gRPC: the gateway's HTTP port is 18789 and \
                 its gRPC port 18790, unless they were set"
            )),
            Some(source) if status.code() == tonic::Code::Unavailable => {
                Self::Unreachable { url: url.to_owned(), why: innermost(source) }
            }
            _ => Self::Refused(Box::new(status)),
        }
    }

    /// Returns the kind of failure, if callers act on it.
    fn kind(&self) -> Option<Kind> {
        match self {
            Self::Usage(_) | Self::NoAnswer(_) | Self::Io(_) | Self::Other(_) => None,
            Self::NotFound(_) => Some(Kind::NotFound),
            Self::NoKey => Some(Kind::Unauthenticated),
            Self::MeshDown(_) | Self::Unreachable { .. } => Some(Kind::Unavailable),
            Self::Refused(status) => Some(holdfast_grpc::kind(status)),
        }
    }

    /// Returns the exit code, as `--help` documents it.
    pub fn code(&self) -> u8 {
        match self.kind() {
            _ if matches!(self, Self::Usage(_)) => 2,
            // For example `| head`: the reader needs no more output.
            _ if self.is_closed_pipe() => 0,
            Some(Kind::NotFound) => 3,
            Some(Kind::Unauthenticated | Kind::Forbidden) => 4,
            Some(Kind::Unavailable | Kind::Exhausted) => 5,
            Some(Kind::Invalid | Kind::Conflict | Kind::Internal) | None => 1,
        }
    }

    /// Returns the exit code for `main`.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code())
    }

    /// Returns the name of the error in JSON output.
    pub fn code_name(&self) -> &'static str {
        match self.kind() {
            Some(Kind::Invalid) => "invalid",
            Some(Kind::Unauthenticated) => "unauthenticated",
            Some(Kind::Forbidden) => "forbidden",
            Some(Kind::NotFound) => "not_found",
            Some(Kind::Conflict) => "conflict",
            Some(Kind::Exhausted) => "exhausted",
            Some(Kind::Unavailable) => "unavailable",
            Some(Kind::Internal) => "internal",
            None if matches!(self, Self::Usage(_)) => "usage",
            None => "failed",
        }
    }

    /// Whether the reader of stdout has closed it.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Returns the gateway's message, with advice that the gateway cannot give.
fn refusal_message(status: &Status) -> String {
    let message = status.message();
    if status.code() == tonic::Code::Unimplemented {
        return "the gateway does not know this: it is older than this command, update it"
            .to_owned();
    }
    match holdfast_grpc::kind(status) {
        Kind::Internal => format!("the gateway failed, its log says why ({message})"),
        Kind::Exhausted => match holdfast_grpc::retry_after(status) {
            Some(after) => format!("{message} (again in {after:?})"),
            None => message.to_owned(),
        },
        Kind::Invalid
        | Kind::Unauthenticated
        | Kind::Forbidden
        | Kind::NotFound
        | Kind::Conflict
        | Kind::Unavailable => message.to_owned(),
    }
}

/// Whether the server's first bytes were not those of HTTP/2.
fn has_other_protocol(mut error: &(dyn std::error::Error + 'static)) -> bool {
    loop {
        if error.to_string().contains("frame with invalid size") {
            return true;
        }
        match error.source() {
            Some(source) => error = source,
            None => return false,
        }
    }
}

/// Whether a status was made of an answer that is no gRPC: tonic reads the first byte of a JSON or HTML
/// document as a flag.
fn is_http_answer(status: &Status) -> bool {
    status.code() == tonic::Code::Internal && status.message().contains("invalid compression flag")
}

fn innermost(mut error: &(dyn std::error::Error + 'static)) -> String {
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: Status) -> Error {
        Error::from_status(status, "http://h:1")
    }

    #[test]
    fn each_kind_of_failure_has_its_exit_code() {
        for (error, code) in [
            (Error::Usage("x".to_owned()), 2),
            (Error::NoKey, 4),
            (Error::NotFound("x".to_owned()), 3),
            (Error::NoAnswer("x".to_owned()), 1),
            (Error::Io(io::ErrorKind::PermissionDenied.into()), 1),
            (Error::Io(io::ErrorKind::BrokenPipe.into()), 0),
            (refused(Status::not_found("x")), 3),
            (refused(Status::permission_denied("x")), 4),
            (refused(Status::unauthenticated("x")), 4),
            (refused(Status::unavailable("x")), 5),
            (refused(Status::resource_exhausted("x")), 5),
            (refused(Status::deadline_exceeded("x")), 5),
            (refused(Status::invalid_argument("x")), 1),
            (refused(Status::internal("x")), 1),
        ] {
            assert_eq!(error.code(), code, "{error:?}");
        }
    }

    #[test]
    fn a_gateway_that_is_not_there_is_told_with_what_to_do() {
        let lost = Status::from_error(Box::new(io::Error::from(io::ErrorKind::ConnectionRefused)));
        let lost = match lost.code() {
            tonic::Code::Unavailable => lost,
            // However tonic maps it, only the source and the code count here.
            _ => {
                let mut status = Status::unavailable("");
                status.set_source(std::sync::Arc::new(io::Error::from(
                    io::ErrorKind::ConnectionRefused,
                )));
                status
            }
        };

        let error = refused(lost);

        assert_eq!(error.code(), 5);
        let text = error.to_string();
        assert!(text.contains("http://h:1") && text.contains("`make up`"), "{text}");
        assert!(text.contains("connection refused"), "{text}");
    }

    #[test]
    fn when_to_come_back_is_told() {
        let after = std::time::Duration::from_millis(1500);
        let status = holdfast_grpc::with_retry_after(Status::resource_exhausted("full"), after);

        assert_eq!(refused(status).to_string(), "full (again in 1.5s)");
    }
}
