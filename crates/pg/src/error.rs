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

/// Returns one word for a database error that no retry removes, found in an error or its sources;
/// `None` for errors that may pass and for errors of other origin.
///
/// A loop that retries failures ends with this word instead, or at least says it.
#[must_use]
pub fn permanent_class(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<sqlx::Error>() {
            return (kind(error) == Kind::Internal).then(|| class(error));
        }
        next = error.source();
    }
    None
}

fn class(error: &sqlx::Error) -> &'static str {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    match code.as_deref() {
        Some("42501") => "database_permission_denied",
        Some("42P01" | "3F000") => "database_table_missing",
        Some("42703") => "database_column_missing",
        Some("42883") => "database_function_missing",
        Some(code) if code.starts_with("23") => "database_constraint_violated",
        Some(code) if code.starts_with("22") => "database_value_refused",
        Some(_) => "database_statement_refused",
        // Not an answer of the server: a row has another form than the program expects.
        None => "database_row_unreadable",
    }
}

/// Returns a sentence about a database error that says nothing about the request, with what to do.
#[must_use]
pub fn summary(error: &sqlx::Error) -> String {
    match permanent_class(error) {
        None => "the database (Postgres) failed: check that it runs, and try again".to_owned(),
        Some(class) => {
            let advice = match class {
                "database_permission_denied"
                | "database_table_missing"
                | "database_column_missing"
                | "database_function_missing" => "run `holdfast migrate` of the same version",
                _ => "it is a defect: report it with the log",
            };
            format!("the database refused a statement ({class}), and will again: {advice}")
        }
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

    #[test]
    fn an_error_that_may_pass_is_not_permanent_and_one_of_a_source_is_found() {
        let permanent = anyhow::Error::from(sqlx::Error::RowNotFound).context("a firing");

        assert_eq!(permanent_class(permanent.as_ref()), Some("database_row_unreadable"));
        assert_eq!(permanent_class(&sqlx::Error::PoolTimedOut), None);
        assert_eq!(permanent_class(&std::fmt::Error), None);
        assert!(summary(&sqlx::Error::PoolTimedOut).ends_with("try again"));
        assert!(summary(&sqlx::Error::RowNotFound).contains("(database_row_unreadable)"));
    }
}
