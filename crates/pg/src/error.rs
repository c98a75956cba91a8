//! What a Postgres error means to a caller.

use holdfast_types::Kind;

/// The kind of a database error that says nothing about the request.
///
/// What the server refuses for its own reasons (it starts, it stops, it has no
/// room) may pass; what it refuses for ours is a defect.
#[must_use]
pub fn kind(error: &sqlx::Error) -> Kind {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::BeginFailed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::Tls(_)
        // The server ended in the middle of an answer.
        | sqlx::Error::Protocol(_) => Kind::Unavailable,
        sqlx::Error::Database(error) => match error.code().as_deref() {
            // 08 connection, 53 resources, 57 operator intervention, 40 rolled back, 25006 a
            // standby, 55P03 a lock that was not to be had.
            Some(code)
                if ["08", "53", "57", "40"].iter().any(|class| code.starts_with(class))
                    || code == "25006"
                    || code == "55P03" =>
            {
                Kind::Unavailable
            }
            _ => Kind::Internal,
        },
        _ => Kind::Internal,
    }
}

/// Whether an error is the violation of the constraint of that name.
#[must_use]
pub fn on_constraint(name: &str, error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(error) if error.constraint() == Some(name))
}

/// Whether an error says that such a row is there already.
#[must_use]
pub fn is_unique_violation(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(error) if error.is_unique_violation())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_unavailable_and_what_is_ours_is_a_defect() {
        assert_eq!(kind(&sqlx::Error::PoolTimedOut), Kind::Unavailable);
        assert_eq!(kind(&sqlx::Error::RowNotFound), Kind::Internal);
    }
}
