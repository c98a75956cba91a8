//! Conversion between errors and gRPC status: the only place where a [`Kind`] becomes a code.

use std::{collections::HashMap, error::Error as _, time::Duration};

use holdfast_types::{Fault, Kind};
use tonic::{Code, Status, metadata::MetadataValue};
use tonic_types::{ErrorDetails, StatusExt as _};

/// Metadata key: delay before a retry, in milliseconds.
pub const RETRY_AFTER: &str = "retry-after-ms";

/// Domain of the reasons in `google.rpc.ErrorInfo`.
const ERROR_DOMAIN: &str = "holdfast.dev";

/// Converts an error to the status for its caller, and logs internal and unavailable errors.
///
/// The reason is sent as `google.rpc.ErrorInfo`. The text of an internal error is not sent.
#[must_use]
pub fn status(error: &impl Fault) -> Status {
    let kind = error.kind();
    match kind {
        Kind::Internal => {
            tracing::error!(error = error as &dyn std::error::Error, "request failed");
            return with_reason(Code::Internal, "internal error", kind.reason());
        }
        Kind::Unavailable => {
            tracing::warn!(error = error as &dyn std::error::Error, "request failed");
        }
        Kind::Invalid
        | Kind::Unauthenticated
        | Kind::Forbidden
        | Kind::NotFound
        | Kind::Conflict
        | Kind::Exhausted => tracing::debug!(%error, ?kind, "request refused"),
    }
    with_reason(code(kind), &error.to_string(), error.reason())
}

/// Converts the error of a bad request to a status with a code that says more than that of its kind.
#[must_use]
pub fn status_with_code(error: &impl Fault, code: Code) -> Status {
    tracing::debug!(%error, ?code, "request refused");
    with_reason(code, &error.to_string(), error.reason())
}

fn with_reason(code: Code, text: &str, reason: &'static str) -> Status {
    let details = ErrorDetails::with_error_info(reason, ERROR_DOMAIN, HashMap::new());
    Status::with_error_details(code, text, details)
}

/// Status code of a kind.
#[must_use]
pub const fn code(kind: Kind) -> Code {
    match kind {
        Kind::Invalid => Code::InvalidArgument,
        Kind::Unauthenticated => Code::Unauthenticated,
        Kind::Forbidden => Code::PermissionDenied,
        Kind::NotFound => Code::NotFound,
        Kind::Conflict => Code::Aborted,
        Kind::Exhausted => Code::ResourceExhausted,
        Kind::Unavailable => Code::Unavailable,
        Kind::Internal => Code::Internal,
    }
}

/// Kind of a status that another service returned.
///
/// A call that timed out may have been executed: a retry must send the same `request_id`.
#[must_use]
pub fn kind(status: &Status) -> Kind {
    match status.code() {
        Code::InvalidArgument | Code::OutOfRange => Kind::Invalid,
        Code::Unauthenticated => Kind::Unauthenticated,
        Code::PermissionDenied => Kind::Forbidden,
        Code::NotFound => Kind::NotFound,
        Code::Aborted | Code::AlreadyExists | Code::FailedPrecondition => Kind::Conflict,
        Code::ResourceExhausted => Kind::Exhausted,
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => Kind::Unavailable,
        // A status with a source was made here: the connection ended during the call.
        Code::Unknown | Code::Internal if status.source().is_some() => Kind::Unavailable,
        Code::Ok | Code::Unknown | Code::Unimplemented | Code::Internal | Code::DataLoss => {
            Kind::Internal
        }
    }
}

/// Adds the delay before a retry to a status, as [`RETRY_AFTER`] and as `google.rpc.RetryInfo`.
#[must_use]
pub fn with_retry_after(status: Status, after: Duration) -> Status {
    // Rounded up: with 0 the caller would retry at once.
    let millis = after.as_micros().div_ceil(1000);
    let millis = u64::try_from(millis).unwrap_or(u64::MAX);
    let mut metadata = status.metadata().clone();
    metadata.insert(RETRY_AFTER, MetadataValue::from(millis));
    let mut details = status.get_error_details();
    details.set_retry_info(Some(Duration::from_millis(millis)));
    Status::with_error_details_and_metadata(status.code(), status.message(), details, metadata)
}

/// Delay before a retry, if the status has one.
#[must_use]
pub fn retry_after(status: &Status) -> Option<Duration> {
    let millis = status.metadata().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("secret detail")]
    struct Broken(Kind);

    impl Fault for Broken {
        fn kind(&self) -> Kind {
            self.0
        }
    }

    #[test]
    fn every_kind_survives_the_way_there_and_back() {
        use Kind as K;
        for told in [
            K::Invalid,
            K::Unauthenticated,
            K::Forbidden,
            K::NotFound,
            K::Conflict,
            K::Exhausted,
            K::Unavailable,
            K::Internal,
        ] {
            assert_eq!(kind(&status(&Broken(told))), told);
        }
    }

    #[test]
    fn a_defects_text_stays_here() {
        assert_eq!(status(&Broken(Kind::Internal)).message(), "internal error");
        assert_eq!(status(&Broken(Kind::Conflict)).message(), "secret detail");
    }

    #[test]
    fn the_reason_is_kept_beside_the_delay() {
        let told = with_retry_after(status(&Broken(Kind::Exhausted)), Duration::from_secs(2));

        let info = told.get_details_error_info().unwrap();
        assert_eq!((info.reason.as_str(), info.domain.as_str()), ("LIMIT_REACHED", ERROR_DOMAIN));
        assert_eq!(retry_after(&told), Some(Duration::from_secs(2)));
    }

    #[test]
    fn when_to_come_back_is_rounded_up() {
        let told = with_retry_after(Status::resource_exhausted("x"), Duration::from_micros(1500));

        assert_eq!(retry_after(&told), Some(Duration::from_millis(2)));
        let details = told.get_details_retry_info().and_then(|info| info.retry_delay);
        assert_eq!((told.message(), details), ("x", Some(Duration::from_millis(2))));
        assert_eq!(retry_after(&Status::resource_exhausted("x")), None);
    }

    #[test]
    fn a_connection_that_ended_is_told_from_an_internal_error_of_the_service() {
        assert_eq!(super::kind(&Status::from_error("broken".into())), Kind::Unavailable);
        assert_eq!(super::kind(&Status::internal("internal error")), Kind::Internal);
    }
}
