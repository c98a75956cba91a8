//! Why the gateway could not do what was asked.

use std::time::Duration;

use holdfast_grpc::{InvalidContext, Scopes};
use holdfast_types::{Fault, InvalidId, InvalidKey, Kind};
use tonic::Status;

/// Every way in which a call to the gateway fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody said who calls.
    #[error("no key was sent: send `authorization: Bearer hf_…` with the call")]
    NoKey,
    /// What should say who calls cannot be read.
    #[error("`authorization` is malformed: write `Bearer`, a space, and the key")]
    MalformedKey,
    /// A service of the mesh could not prove that it is one.
    #[error(transparent)]
    Context(#[from] InvalidContext),
    /// The caller's key does not reach so far.
    #[error("this needs the scope `{needs}`, and the key has `{has}`: ask for a key that has it")]
    Scope {
        /// What is needed.
        needs: &'static str,
        /// What there is.
        has: Scopes,
    },
    /// The tenant calls too often.
    #[error("the tenant's rate of {rate} requests a minute is used up: try again in {} ms", retry_after.as_millis())]
    Limited {
        /// Requests a minute.
        rate: u32,
        /// When to try again.
        retry_after: Duration,
    },
    /// The tenant has too many calls open.
    #[error(
        "the tenant has {limit} calls open, which is the most: end one, or wait for one to end"
    )]
    TooManyCalls {
        /// How many it may have.
        limit: u32,
    },
    /// Everybody together has too many calls open.
    #[error("the gateway has as many calls open as it may: try again in a second")]
    Full,
    /// The process ends.
    #[error("the gateway is stopping: call again; what was accepted goes on, and can be followed")]
    Stopping,

    /// A message without words.
    #[error("the message is empty: write something")]
    Empty,
    /// A message with too many.
    #[error("the text has {got} bytes, and {limit} is the most: shorten it, or send it in parts")]
    TooLong {
        /// Bytes that were sent.
        got: usize,
        /// Bytes that may be.
        limit: usize,
    },
    /// Files that are too many or too large.
    #[error("{0}")]
    Attachments(String),
    /// A text that cannot be stored.
    #[error("`{0}` has a NUL character in it: remove it")]
    Nul(&'static str),
    /// A field that must say something says nothing.
    #[error("`{0}` is empty, and has to say something")]
    Missing(&'static str),
    /// A field says what nobody understands.
    #[error("`{field}` is `{given}`: write {wanted}")]
    Unknown {
        /// Which.
        field: &'static str,
        /// What it says.
        given: String,
        /// What it could say.
        wanted: &'static str,
    },
    /// An id in the request is none.
    #[error(transparent)]
    Id(#[from] InvalidId),
    /// The session's name cannot be one.
    #[error(transparent)]
    Key(#[from] InvalidKey),
    /// The session is one agent's and the request names another.
    #[error("the session is `{of}`'s, and the request names the agent `{named}`: leave one out")]
    OtherAgent {
        /// Whose it is.
        of: String,
        /// Who is named.
        named: String,
    },
    /// The session is a subagent's.
    #[error(
        "a subagent is spoken to by whoever asked for it: use `Subagents.SendToSubagent` \
         (`holdfast agents runs send`) while it is at work"
    )]
    Subagent,
    /// The tenant has no such agent.
    #[error("there is no agent `{0}`: see `ListAgents` for those there are")]
    NoAgent(String),

    /// The answer takes longer than anybody waits here.
    #[error(
        "there is no answer after {} s; the turn goes on: \
         ask again with the same idempotency key, or follow the message", waited.as_secs()
    )]
    Unanswered {
        /// How long was waited.
        waited: Duration,
    },

    /// Nobody could look at what only runners reach.
    #[error("no runner answered: one must be running, and NATS be there; then try again")]
    NoRunner(#[source] holdfast_bus::Error),

    /// Nobody could be asked what is remembered.
    #[error("no memory service is set up: set `mesh.secret`, and run `holdfast memory-service`")]
    NoMemory,
    /// It took longer than anybody waits here.
    #[error("the memory service has not answered in time: try again in a moment")]
    SlowMemory,
    /// There is no such article.
    #[error("there is no article `{0}`: see `ListArticles` for those there are")]
    NoArticle(String),
    /// The memory service refused.
    #[error(transparent)]
    Memory(#[from] holdfast_grpc::Refused),
    /// The session protocol refused.
    #[error(transparent)]
    Session(#[from] holdfast_session::Error),
    /// The files refused.
    #[error(transparent)]
    Files(#[from] holdfast_workspace::Error),
    /// There is no such job or reminder; in the words of the specification.
    #[error("{0}")]
    NoJob(String),
    /// A reminder is not set; in the user's words.
    #[error("{told}")]
    NoReminder {
        /// Why.
        told: String,
        /// There are as many as there may be.
        is_full: bool,
    },
    /// The jobs refused.
    #[error(transparent)]
    Jobs(#[from] holdfast_jobs::Error),
    /// The directory refused.
    #[error(transparent)]
    Directory(#[from] holdfast_directory::Error),
    /// The skills refused.
    #[error(transparent)]
    Skills(#[from] holdfast_skills::Error),
}

impl Error {
    /// When the same request may be sent again, where that is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Limited { retry_after, .. }
            | Self::Session(holdfast_session::Error::SessionFull { retry_after, .. }) => {
                Some(*retry_after)
            }
            Self::Memory(refused) => refused.retry_after,
            Self::TooManyCalls { .. } | Self::Full => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::NoKey | Self::MalformedKey | Self::Context(_) => Kind::Unauthenticated,
            Self::Scope { .. } | Self::Subagent => Kind::Forbidden,
            Self::Limited { .. } | Self::TooManyCalls { .. } => Kind::Exhausted,
            Self::Full
            | Self::Stopping
            | Self::Unanswered { .. }
            | Self::NoRunner(_)
            | Self::NoMemory
            | Self::SlowMemory => Kind::Unavailable,
            Self::Memory(refused) => refused.kind(),
            Self::Empty
            | Self::TooLong { .. }
            | Self::Attachments(_)
            | Self::Nul(_)
            | Self::Missing(_)
            | Self::Unknown { .. }
            | Self::Id(_)
            | Self::Key(_)
            | Self::OtherAgent { .. } => Kind::Invalid,
            Self::NoAgent(_) | Self::NoArticle(_) | Self::NoJob(_) => Kind::NotFound,
            Self::NoReminder { is_full: true, .. } => Kind::Exhausted,
            Self::NoReminder { is_full: false, .. } => Kind::Invalid,
            Self::Session(error) => error.kind(),
            Self::Files(error) => error.kind(),
            Self::Jobs(error) => error.kind(),
            Self::Directory(error) => error.kind(),
            Self::Skills(error) => error.kind(),
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let status = holdfast_grpc::status(&error);
        match error.retry_after() {
            Some(after) => holdfast_grpc::with_retry_after(status, after),
            None => status,
        }
    }
}
