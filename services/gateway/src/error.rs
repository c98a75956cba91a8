//! Errors of the gateway.

use std::time::Duration;

use holdfast_grpc::{InvalidContext, MemoryCallError, Scopes};
use holdfast_types::{Fault, InvalidId, InvalidSessionKey, Kind, TenantRole};
use tonic::{Code, Status};

use crate::{bodies::BodyRefusal, oidc::TokenError};

/// Failure of a call to the gateway. The messages are shown to the caller.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "no key was sent: send `authorization: Bearer hf_…` with the call, or sign in with `holdfast login`"
    )]
    NoKey,
    #[error("`authorization` is malformed: write `Bearer`, a space, and the key")]
    MalformedKey,
    /// A service of the mesh sent an invalid signed context.
    #[error(transparent)]
    Context(#[from] InvalidContext),
    /// The caller's key lacks a scope.
    #[error("this needs the scope `{needs}`, and the key has `{has}`: ask for a key that has it")]
    Scope { needs: String, has: Scopes },
    /// The person's role is too small.
    #[error("this needs the role `{needs}`, and yours is `{has}`: ask an owner of the tenant")]
    Role { needs: String, has: TenantRole },
    /// The caller has no right to the conversation.
    #[error("this conversation is not yours: {0}")]
    OthersConversation(&'static str),
    /// What the caller names belongs to another person.
    #[error(
        "`{0}` is not you: leave it out for yourself, or ask an owner of the tenant to do it for others"
    )]
    OtherPerson(String),
    /// A memory about somebody else.
    #[error("this memory is not about you: ask an operator or owner of the tenant to change it")]
    OthersMemory,
    /// A file that the caller does not see or may not change.
    #[error(
        "`{0}` is not one of your files: leave out `people/…`, since you see your own folder. Files of \
         `shared/` and `skills/` and those that define the agent are for operators and owners to change"
    )]
    OthersFile(String),
    /// The key talks to one agent.
    #[error(
        "this key talks to the agent `{0}` and does nothing else: name that agent, or leave it out"
    )]
    AgentOfKey(String),
    /// The key is for web pages of other origins.
    #[error(
        "this key is for web pages of certain origins, and the call comes from no such page: an owner \
         sees them in `holdfast keys list`"
    )]
    OriginOfKey,
    /// No role includes it.
    #[error("this needs an API key with the scope `{needs}`: no role of a tenant includes it")]
    NoRole { needs: String },
    #[error("only a node may be connected: use the token that `CreateNode` showed, not an API key")]
    NotNode,
    /// The caller may not do what a device asks for.
    #[error(
        "the device asks for `{0}`, which you may not do yourself: ask somebody who may to approve it"
    )]
    ScopeOfDevice(&'static str),
    /// An HTTP route without a row in the table of permissions.
    #[error("nobody may call this")]
    NoRule,
    /// A token of an identity provider was refused.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The tenant has used up its rate.
    #[error("the tenant's rate of {rate} requests a minute is used up: try again in {} ms", retry_after.as_millis())]
    RateLimited {
        /// The tenant's rate, in requests per minute.
        rate: u32,
        retry_after: Duration,
    },
    /// Too many attempts to sign in to the console from one address.
    #[error("too many sign-ins were tried from your address: try again in {} s", retry_after.as_secs() + 1)]
    TooManySignIns { retry_after: Duration },
    /// A request of another web page than the console, or without its cookie.
    #[error("{0}")]
    ForeignPage(&'static str),
    /// A call of the console without the cookie of its session.
    #[error("nobody is signed in here as this session: sign in again")]
    NotSignedIn,
    /// A sign-in at an identity provider that did not work; holds what to do.
    #[error("{0}")]
    SignInFailed(String),

    /// What gives others access needs a sign-in a short time ago.
    #[error(
        "this session's sign-in was more than {} minutes ago: sign in again, or use `holdfast` with a key",
        .max_age.as_secs() / 60
    )]
    SignInTooOld { max_age: Duration },

    #[error("you cannot give the role `{role}`: an owner gives any, an operator those below")]
    RoleNotGiven { role: TenantRole },
    #[error(
        "the tenant has {limit} calls open, which is the most: end one, or wait for one to end"
    )]
    TooManyCalls { limit: u32 },
    /// The gateway has too many open calls, of all tenants together.
    #[error("the gateway has as many calls open as it may: try again in a second")]
    Full,
    #[error(transparent)]
    Body(#[from] BodyRefusal),
    /// The process is shutting down.
    #[error("the gateway is stopping: call again; what was accepted goes on, and can be followed")]
    Stopping,

    #[error("the message is empty: write something")]
    Empty,
    #[error("the text has {got} bytes, and {limit} is the most: shorten it, or send it in parts")]
    TooLong {
        /// Size in bytes of the UTF-8 text.
        got: usize,
        /// Size in bytes of the UTF-8 text.
        limit: usize,
    },
    /// Too many or too large attachments; holds the whole message.
    #[error("{0}")]
    Attachments(String),
    /// NUL in a field; Postgres cannot store it in a text.
    #[error("`{0}` has a NUL character in it: remove it")]
    NulCharacter(&'static str),
    /// A required field is empty.
    #[error("`{0}` is empty, and has to say something")]
    MissingField(&'static str),
    /// A sender's id has the form of a linked account.
    #[error("the sender's id begins with `=`, which is kept for linked accounts")]
    ReservedSender,
    /// A name of a conversation has the form of one in a name space.
    #[error(
        "`{0}` begins with `=`, which marks whose a conversation is: choose a name that begins otherwise"
    )]
    ReservedName(String),
    /// A field has a value that is not one of the known ones.
    #[error("`{field}` is `{given}`: write {wanted}")]
    UnknownValue { field: &'static str, given: String, wanted: &'static str },
    #[error(transparent)]
    Id(#[from] InvalidId),
    #[error(transparent)]
    Key(#[from] InvalidSessionKey),
    /// The session belongs to another agent than the request names.
    #[error("the session is `{of}`'s, and the request names the agent `{named}`: leave one out")]
    OtherAgent { of: String, named: String },
    /// Messages to a subagent are accepted only from its requester.
    #[error(
        "a subagent is spoken to by whoever asked for it: use `Subagents.SendToSubagent` \
         (`holdfast agents runs send`) while it is at work"
    )]
    Subagent,
    /// An MCP client is usually a model.
    #[error(
        "a person decides about approvals and sets `/elevated`, on a channel, with `holdfast` or over \
         gRPC: not through MCP"
    )]
    DecisionOverMcp,
    #[error(
        "there is no agent `{0}`: see `holdfast agents list` (`ListAgents`) for those there are"
    )]
    NoAgent(String),

    /// The log of events does not reach back to a cursor, or does not reach it.
    #[error(
        "the events after this cursor are not kept any more, or the cursor is of another log: \
         subscribe from EARLIEST, and read the state itself where events may be missing"
    )]
    CursorOutOfRange,

    /// The wait for an answer timed out; the turn goes on.
    #[error(
        "there is no answer after {} s; the turn goes on: \
         ask again with the same idempotency key, or follow the message", waited.as_secs()
    )]
    AnswerTimeout { waited: Duration },

    /// No runner answered a request that only runners can handle.
    #[error("no runner answered: one must be running, and NATS be there; then try again")]
    NoRunner(#[source] holdfast_bus::Error),

    /// No memory service is configured.
    #[error("no memory service is set up: set `mesh.key`, and run `holdfast memory-service`")]
    NoMemory,
    /// The memory service did not answer in time.
    #[error("the memory service has not answered in time: try again in a moment")]
    MemoryTimeout,
    #[error(
        "there is no article `{0}`: see `holdfast kb list` (`ListArticles`) for those there are"
    )]
    NoArticle(String),
    #[error(transparent)]
    Memory(#[from] MemoryCallError),
    #[error(transparent)]
    Session(#[from] holdfast_session::Error),
    #[error(transparent)]
    Files(#[from] holdfast_workspace::Error),
    /// No such job or reminder; holds the message that the specification prescribes.
    #[error("{0}")]
    NoJob(String),
    #[error("{told}")]
    NoReminder {
        /// Reason, in the user's language.
        told: String,
        /// Whether the maximum number of reminders is reached.
        is_full: bool,
    },
    #[error(transparent)]
    Jobs(#[from] holdfast_schedule::store::Error),
    #[error(transparent)]
    Work(#[from] holdfast_work::Error),
    #[error(transparent)]
    Proposals(#[from] holdfast_proposals::Error),
    #[error(transparent)]
    Directory(#[from] holdfast_directory::Error),
    #[error(transparent)]
    Skills(#[from] holdfast_skills::Error),
}

/// Delay before a retry, where none is known.
const RETRY_DELAY: Duration = Duration::from_secs(1);

impl Error {
    /// Delay before a retry, if the same request may succeed later.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after, .. }
            | Self::TooManySignIns { retry_after }
            | Self::Session(holdfast_session::Error::SessionFull { retry_after, .. })
            | Self::Memory(MemoryCallError { retry_after: Some(retry_after), .. }) => {
                Some(*retry_after)
            }
            Self::Skills(holdfast_skills::Error::TooOften { seconds, .. }) => {
                Some(Duration::from_secs(*seconds))
            }
            // The turn goes on, or a service must be set up.
            Self::AnswerTimeout { .. } | Self::NoMemory => None,
            Self::TooManyCalls { .. }
            | Self::Body(_)
            | Self::Directory(holdfast_directory::Error::TooManyUnknownKeys) => Some(RETRY_DELAY),
            // Any other limit is a quota: something must be deleted, or the limit be raised.
            other => (other.kind() == Kind::Unavailable).then_some(RETRY_DELAY),
        }
    }
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::NoKey | Self::MalformedKey | Self::NotSignedIn | Self::SignInFailed(_) => {
                Kind::Unauthenticated
            }
            Self::Context(error) => error.kind(),
            Self::Scope { .. }
            | Self::Role { .. }
            | Self::NoRole { .. }
            | Self::OthersConversation(_)
            | Self::OtherPerson(_)
            | Self::OthersMemory
            | Self::OthersFile(_)
            | Self::AgentOfKey(_)
            | Self::OriginOfKey
            | Self::NotNode
            | Self::ScopeOfDevice(_)
            | Self::NoRule
            | Self::SignInTooOld { .. }
            | Self::RoleNotGiven { .. }
            | Self::ForeignPage(_)
            | Self::Subagent
            | Self::DecisionOverMcp => Kind::Forbidden,
            Self::Token(error) => error.kind(),
            Self::RateLimited { .. } | Self::TooManySignIns { .. } | Self::TooManyCalls { .. } => {
                Kind::Exhausted
            }
            Self::Full
            | Self::Stopping
            | Self::AnswerTimeout { .. }
            | Self::NoRunner(_)
            | Self::NoMemory
            | Self::MemoryTimeout => Kind::Unavailable,
            Self::Memory(refused) => refused.kind(),
            Self::Body(refusal) => refusal.kind(),
            Self::Empty
            | Self::TooLong { .. }
            | Self::Attachments(_)
            | Self::NulCharacter(_)
            | Self::MissingField(_)
            | Self::ReservedSender
            | Self::ReservedName(_)
            | Self::UnknownValue { .. }
            | Self::Id(_)
            | Self::Key(_)
            | Self::OtherAgent { .. }
            | Self::CursorOutOfRange => Kind::Invalid,
            Self::NoAgent(_) | Self::NoArticle(_) | Self::NoJob(_) => Kind::NotFound,
            Self::NoReminder { is_full: true, .. } => Kind::Exhausted,
            Self::NoReminder { is_full: false, .. } => Kind::Invalid,
            Self::Session(error) => error.kind(),
            Self::Files(error) => error.kind(),
            Self::Jobs(error) => error.kind(),
            Self::Work(error) => error.kind(),
            Self::Proposals(error) => error.kind(),
            Self::Directory(error) => error.kind(),
            Self::Skills(error) => error.kind(),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NoKey => "KEY_MISSING",
            Self::MalformedKey => "KEY_MALFORMED",
            Self::Scope { .. } | Self::NoRole { .. } => "SCOPE_MISSING",
            Self::OthersConversation(_)
            | Self::OtherPerson(_)
            | Self::OthersMemory
            | Self::OthersFile(_)
            | Self::AgentOfKey(_)
            | Self::OriginOfKey => "NOT_YOURS",
            Self::Role { .. } | Self::RoleNotGiven { .. } => "ROLE_TOO_SMALL",
            Self::SignInTooOld { .. } => "SIGN_IN_TOO_OLD",
            Self::NotNode => "NODE_TOKEN_MISSING",
            Self::ScopeOfDevice(_) => "SCOPE_OF_DEVICE_MISSING",
            Self::Token(_) => "TOKEN_REFUSED",
            Self::RateLimited { .. } => "RATE_LIMITED",
            Self::TooManySignIns { .. } => "SIGN_IN_LIMIT_REACHED",
            Self::ForeignPage(_) => "FOREIGN_PAGE",
            Self::NotSignedIn => "SESSION_ENDED",
            Self::SignInFailed(_) => "SIGN_IN_FAILED",
            Self::TooManyCalls { .. } => "CALL_LIMIT_REACHED",
            Self::Full => "GATEWAY_FULL",
            Self::Stopping => "GATEWAY_STOPPING",
            Self::AnswerTimeout { .. } => "ANSWER_TIMEOUT",
            Self::CursorOutOfRange => "CURSOR_OUT_OF_RANGE",
            Self::NoRunner(_) => "NO_RUNNER",
            Self::NoMemory => "NO_MEMORY_SERVICE",
            Self::MemoryTimeout => "MEMORY_TIMEOUT",
            Self::TooLong { .. } => "TEXT_TOO_LONG",
            Self::Attachments(_) => "ATTACHMENTS_REFUSED",
            Self::NoAgent(_) => "AGENT_NOT_FOUND",
            Self::NoReminder { is_full: true, .. } => "REMINDER_LIMIT_REACHED",
            Self::Session(error) => error.reason(),
            Self::Directory(error) => error.reason(),
            Self::Files(error) => error.reason(),
            Self::Context(_)
            | Self::NoRule
            | Self::Body(_)
            | Self::Empty
            | Self::NulCharacter(_)
            | Self::MissingField(_)
            | Self::ReservedSender
            | Self::ReservedName(_)
            | Self::UnknownValue { .. }
            | Self::Id(_)
            | Self::Key(_)
            | Self::OtherAgent { .. }
            | Self::Subagent
            | Self::DecisionOverMcp
            | Self::NoArticle(_)
            | Self::Memory(_)
            | Self::NoJob(_)
            | Self::NoReminder { is_full: false, .. }
            | Self::Jobs(_)
            | Self::Work(_)
            | Self::Proposals(_)
            | Self::Skills(_) => self.kind().reason(),
        }
    }
}

impl From<holdfast_rollback::Error> for Error {
    fn from(error: holdfast_rollback::Error) -> Self {
        match error {
            holdfast_rollback::Error::Session(error) => error.into(),
            holdfast_rollback::Error::Work(error) => error.into(),
            holdfast_rollback::Error::Files(error) => error.into(),
            holdfast_rollback::Error::Memory(error) => error.into(),
            holdfast_rollback::Error::NoMemory => Self::NoMemory,
        }
    }
}

impl From<holdfast_people::Error> for Error {
    fn from(error: holdfast_people::Error) -> Self {
        match error {
            holdfast_people::Error::Directory(error) => error.into(),
            holdfast_people::Error::Session(error) => error.into(),
            holdfast_people::Error::Jobs(error) => error.into(),
            holdfast_people::Error::Files(error) => error.into(),
            holdfast_people::Error::Memory(error) => error.into(),
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::CursorOutOfRange => holdfast_grpc::status_with_code(&error, Code::OutOfRange),
            _ => holdfast_grpc::status(&error),
        };
        match error.retry_after() {
            Some(after) => holdfast_grpc::with_retry_after(status, after),
            None => status,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_limit_that_passes_by_itself_says_when_to_come_back() {
        let full = holdfast_session::Error::SessionFull {
            waiting: 200,
            limit: 200,
            retry_after: Duration::from_secs(3),
        };
        assert_eq!(Error::from(full).retry_after(), Some(Duration::from_secs(3)));
        assert!(Error::TooManyCalls { limit: 1 }.retry_after().is_some());
        assert!(Error::Full.retry_after().is_some());

        let quota = Error::from(holdfast_session::Error::TooManySessions { limit: 2 });
        assert_eq!(quota.kind(), Kind::Exhausted);
        assert_eq!(quota.retry_after(), None);
        let status = Status::from(quota);
        assert_eq!(holdfast_grpc::retry_after(&status), None);
    }
}
