//! Errors that stop a turn before its end.

use holdfast_types::{Fault, Kind};

/// Reason why a turn stopped before its end. A problem that the model or the user can solve is not
/// an error: the turn then ends with a text.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the session was lost to another runner")]
    Lost,

    /// The session must be released: it was paused, or this process stops.
    #[error("the session was asked back")]
    ReleaseRequested,

    /// The session was released: its agent recovers hit points first.
    #[error("the agent rests")]
    Resting,

    #[error("the session store failed")]
    Store(#[source] holdfast_session::Error),

    /// Reading the agent, its policy or its files failed.
    #[error("the agent could not be read")]
    AgentUnavailable(#[source] anyhow::Error, Kind),

    /// A tool failed without fault of the model.
    #[error("the tool `{name}` failed")]
    Tool {
        name: String,
        #[source]
        source: anyhow::Error,
    },
}

impl Error {
    pub(crate) fn directory(error: holdfast_directory::Error) -> Self {
        let kind = error.kind();
        Self::AgentUnavailable(error.into(), kind)
    }
}

impl Error {
    /// The session's key is not one.
    pub(crate) fn session_key(error: holdfast_types::InvalidSessionKey) -> Self {
        Self::AgentUnavailable(error.into(), Kind::Internal)
    }

    pub(crate) fn policy(error: holdfast_agent::policy::Error) -> Self {
        Self::AgentUnavailable(error.into(), Kind::Internal)
    }
}

impl From<holdfast_schedule::store::Error> for Error {
    fn from(error: holdfast_schedule::store::Error) -> Self {
        let kind = error.kind();
        Self::AgentUnavailable(error.into(), kind)
    }
}

impl From<holdfast_workspace::Error> for Error {
    fn from(error: holdfast_workspace::Error) -> Self {
        let kind = error.kind();
        Self::AgentUnavailable(error.into(), kind)
    }
}

impl From<holdfast_session::Error> for Error {
    fn from(error: holdfast_session::Error) -> Self {
        if error.is_fenced() {
            return Self::Lost;
        }
        Self::Store(error)
    }
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Lost | Self::ReleaseRequested | Self::Resting => Kind::Conflict,
            Self::Store(error) => error.kind(),
            Self::AgentUnavailable(_, kind) => *kind,
            Self::Tool { source, .. } => kind_of(source),
        }
    }
}

/// Kind of the cause of a tool's failure: a store that is briefly unavailable is no defect.
fn kind_of(failure: &anyhow::Error) -> Kind {
    type Cause = dyn std::error::Error + 'static;
    fn kind_as<E: Fault + 'static>(cause: &Cause) -> Option<Kind> {
        cause.downcast_ref::<E>().map(Fault::kind)
    }
    const KINDS: [fn(&Cause) -> Option<Kind>; 8] = [
        kind_as::<holdfast_session::Error>,
        kind_as::<holdfast_workspace::Error>,
        kind_as::<holdfast_skills::Error>,
        kind_as::<holdfast_directory::Error>,
        kind_as::<holdfast_schedule::store::Error>,
        kind_as::<holdfast_work::Error>,
        kind_as::<holdfast_grpc::MemoryCallError>,
        kind_as::<holdfast_people::Error>,
    ];
    failure
        .chain()
        .find_map(|cause| KINDS.iter().find_map(|kind| kind(cause)))
        .unwrap_or(Kind::Internal)
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_tool_that_could_not_reach_the_store_may_be_called_again_later() {
        let broken = |source: anyhow::Error| Error::Tool { name: "session_status".into(), source };
        let away = holdfast_session::Error::NotFound { what: "session", name: "x".into() };

        let jobs = holdfast_schedule::store::Error::Store(sqlx::Error::Protocol(
            "the server stops".into(),
        ));

        let known = broken(Err::<(), _>(away).context("looking").unwrap_err());
        let jobs = broken(Err::<(), _>(jobs).context("adding").unwrap_err());
        let strange = broken(anyhow::anyhow!("no idea"));

        assert_eq!((known.kind(), strange.kind()), (Kind::NotFound, Kind::Internal));
        assert!(jobs.kind().is_transient());
    }
}
