//! Classification of Postgres errors.

use holdfast_kit::tls::TlsProblem;
use holdfast_types::Kind;

/// Returns the kind of a database error that says nothing about the request.
///
/// Errors caused by the server's own state (starting, stopping, out of resources) may pass. All
/// others are defects of ours.
#[must_use]
pub fn kind(error: &sqlx::Error) -> Kind {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::BeginFailed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::Tls(_)
        // The server stopped in the middle of an answer.
        | sqlx::Error::Protocol(_) => Kind::Unavailable,
        sqlx::Error::Database(error) => match error.code().as_deref() {
            // 08 connection, 53 resources, 57 operator intervention, 40 rolled back, 25006 a
            // standby, 25P03 a transaction that was idle for too long, 55P03 a lock that was not
            // available.
            Some(code)
                if ["08", "53", "57", "40"].iter().any(|class| code.starts_with(class))
                    || ["25006", "25P03", "55P03"].contains(&code) =>
            {
                Kind::Unavailable
            }
            _ => Kind::Internal,
        },
        _ => Kind::Internal,
    }
}

/// What to do about an error that a person must remove; `None` for others.
#[must_use]
pub fn advice(error: &sqlx::Error) -> Option<String> {
    let told = match error {
        sqlx::Error::Database(error) => match error.code().as_deref()? {
            "28P01" => "set user and password in `database.url`",
            "28000" => "permit this user, database and kind of connection in `pg_hba.conf`",
            "3D000" => "make the database, or name another one in `database.url`",
            "42501" => "run `holdfast migrate` as the owner: the login lacks rights",
            _ => return None,
        },
        // The text of the source would be the same for all.
        sqlx::Error::Tls(source) if source.to_string().contains("does not support TLS") => {
            "turn TLS on in Postgres (`ssl = on`), or choose another `sslmode` in `database.url`"
        }
        error => {
            return TlsProblem::find(error).map(|problem| match problem {
                TlsProblem::Refused(_) => format!(
                    "{problem}; name a certificate that it trusts by `sslcert` and `sslkey` in \
                     `database.url`"
                ),
                problem => problem.with_remedy("`sslrootcert` in `database.url`"),
            });
        }
    };
    Some(told.to_owned())
}

/// Whether a statement waited too long for a lock.
#[must_use]
pub fn is_lock_timeout(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(error) if error.code().as_deref() == Some("55P03"))
}

/// Whether Postgres undid a transaction because of others at the same time, such as by a deadlock:
/// it can be tried again.
#[must_use]
pub fn is_rolled_back(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(error)
             if error.code().is_some_and(|code| code.starts_with("40")))
}

/// Whether an error is the violation of the constraint called `name`.
#[must_use]
pub fn on_constraint(name: &str, error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(error) if error.constraint() == Some(name))
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
