//! Accepting messages: author, agent and session.
//!
//! A message is accepted when the transaction that stores it has committed. Runners are notified
//! afterwards in a second call, so that a caller who wants to follow can subscribe in
//! between. A lost notification costs the runners' polling interval, a second at most.

mod attachments;
mod author;
mod channel;
mod destination;
mod history;
mod text;
mod uploads;

use std::time::Duration;

use holdfast_bus::{Bus, Control, ControlKind};
use holdfast_directory::{Directory, RoutedAgent};
use holdfast_grpc::{Caller, Principal};
use holdfast_kit::trace;
use holdfast_proto::gateway::v1::MessageAttachment;
use holdfast_session::{
    Acceptance, CancelResult, NewMessage, OverdueResult, SessionOwner, Sessions,
};
use holdfast_types::{
    AnswerOptions, Author, Body, ChannelOptions, Command, Effort, MessageId, MessageOptions,
    NameSpace, QueueMode, RunId, SessionId, SessionKey, SessionKind, Source, TenantId,
};
use holdfast_workspace::Workspaces;
use tokio::time::Instant;
use uuid::Uuid;

pub use author::{access_of, are_owners, of_caller, of_key, of_sender, speak_for};
pub use destination::agent_in_call;
pub use destination::{
    Destination, find_session, named_destination, named_session_key, person_of_user,
};
pub use text::clean;

use crate::{
    Error,
    permissions::rights::{ConversationRight, NamedSession},
};

/// Channel of programs in the options of agents, and in identities.
pub const PROGRAMS: &str = "api";

/// Maximum length of an idempotency key, in bytes.
const MAX_IDEMPOTENCY_KEY_BYTES: usize = 256;

/// Message from a caller with an API key.
#[derive(Debug, Clone, Default)]
pub struct InboundMessage {
    /// Idempotency key; empty generates one.
    pub request_id: String,
    pub text: String,
    /// Name or id; empty is the default agent.
    pub agent: String,
    /// Id, key, or a name given by the caller; empty is the agent's main session.
    pub session: String,
    pub attachments: Vec<MessageAttachment>,
    /// How much the model thinks; `None` is the session's setting.
    pub effort: Option<Effort>,
    /// What becomes of the message while a turn runs; `None` is the session's setting.
    pub queue_mode: Option<QueueMode>,
}

#[derive(Debug, Clone)]
pub struct AcceptedMessage {
    pub tenant: TenantId,
    pub accepted: Acceptance,
    /// Turns that the message may begin: its own, and those of messages stored with it.
    pub runs: Vec<RunId>,
    mode: QueueMode,
}

/// Accepts messages. Clones share the connections.
#[derive(Debug, Clone)]
pub struct Ingest {
    directory: Directory,
    sessions: Sessions,
    bus: Bus,
    text_limit: usize,
    files: Option<Workspaces>,
}

impl Ingest {
    /// `text_limit` is the maximum text of a message, in bytes. Attached files are not stored.
    #[must_use]
    pub const fn new(
        directory: Directory,
        sessions: Sessions,
        bus: Bus,
        text_limit: usize,
    ) -> Self {
        Self { directory, sessions, bus, text_limit, files: None }
    }

    /// Stores attached files in the agents' workspaces.
    #[must_use]
    pub fn with_files(self, files: Workspaces) -> Self {
        Self { files: Some(files), ..self }
    }

    /// Accepts a message from a caller with an API key.
    ///
    /// # Errors
    ///
    /// If the message is not valid, or cannot be stored now.
    pub async fn accept(
        &self,
        caller: &Caller,
        said: InboundMessage,
    ) -> Result<AcceptedMessage, Error> {
        let text = match self.text(&said.text) {
            // A message may consist of files only.
            Err(Error::Empty) if !said.attachments.is_empty() => String::new(),
            text => text?,
        };
        let (mut body, files) = uploads::body_with_files(text, said.attachments)?;
        let idem_key = idempotency_key(said.request_id)?;
        let named = NamedSession { agent: &said.agent, session: &said.session };
        let place = self.destination(caller, named, ConversationRight::Write).await?;
        body.author = self.author(caller, &place.key).await?;
        self.store_files(caller.tenant, &place, &mut body, files).await?;
        if let Some(effort) = said.effort {
            let asked = AnswerOptions { effort: Some(effort), ..AnswerOptions::default() };
            body.answer_options = Some(Box::new(asked));
        }
        let mut options = place.agent.settings.options_for(PROGRAMS, "default");
        options.queue.mode = said.queue_mode.or(options.queue.mode);
        let is_queue_chosen = said.queue_mode.is_some();
        let own = MessageOptions { channel: options, signature: None, is_queue_chosen };
        body.options = own.boxed();
        let message = NewMessage {
            mode: options.queue.mode.unwrap_or(place.agent.settings.queue_mode),
            debounce: debounce(&place.agent, &options),
            idem_key,
            ..new_message(caller, place, body)
        };
        self.store(caller.tenant, message).await
    }

    /// Returns a message's text without control characters.
    ///
    /// # Errors
    ///
    /// If the text is empty, too long, or contains a NUL.
    pub fn text(&self, text: &str) -> Result<String, Error> {
        text::message_text(text, self.text_limit)
    }

    /// Author of what a caller says in a conversation.
    ///
    /// # Errors
    ///
    /// If the tenant cannot be read now.
    pub async fn author(&self, caller: &Caller, key: &SessionKey) -> Result<Option<Author>, Error> {
        let mut author = of_caller(caller);
        self.set_person(caller.tenant, key, &mut author).await?;
        Ok(author)
    }

    /// In the conversations of a user of programs who is a person, programs speak for that person.
    async fn set_person(
        &self,
        tenant: TenantId,
        key: &SessionKey,
        author: &mut Option<Author>,
    ) -> Result<(), Error> {
        if let (Some(NameSpace::ProgramUser(person)), Some(author)) = (key.name_space(), author) {
            let routing = self.directory.routing().get(tenant).await?;
            speak_for(author, person, routing.role_of(person));
        }
        Ok(())
    }

    async fn store(&self, tenant: TenantId, message: NewMessage) -> Result<AcceptedMessage, Error> {
        self.store_all(tenant, vec![message], None).await
    }

    /// Stores messages of one session in order, and returns the last of them. With `after`, only if
    /// this is the newest message that an API key has sent to the session.
    ///
    /// # Errors
    ///
    /// If the last message is refused, or the session is a subagent's.
    pub async fn store_all(
        &self,
        tenant: TenantId,
        mut messages: Vec<NewMessage>,
        after: Option<MessageId>,
    ) -> Result<AcceptedMessage, Error> {
        for NewMessage { key, body, .. } in &mut messages {
            self.set_person(tenant, key, &mut body.author).await?;
        }
        if messages.iter().any(|message| message.key.kind() == SessionKind::Subagent) {
            return Err(Error::Subagent);
        }
        let began = Instant::now();
        let resumes = messages.last().is_some_and(is_resume_command);
        let mode = messages.last().map(|message| message.mode).unwrap_or_default();
        let mut stored = match (messages.len(), after) {
            (_, Some(after)) => {
                let accepted = self.sessions.ingest_after(tenant, &messages, after).await?;
                accepted.into_iter().map(Ok).collect()
            }
            (1, None) => {
                let mut stored = Vec::with_capacity(1);
                for message in messages {
                    stored.push(self.sessions.ingest(tenant, message).await);
                }
                stored
            }
            (_, None) => self.sessions.ingest_batch(tenant, messages).await,
        };
        metrics::histogram!("holdfast_gateway_ingest_duration_seconds").record(began.elapsed());
        let last = stored.pop().ok_or(Error::Empty)?;
        let accepted = last?;
        if resumes {
            self.resume_session(tenant, &accepted).await?;
        }
        let earlier = stored.iter().filter_map(|one| Some(one.as_ref().ok()?.message.into()));
        let runs = earlier.chain([accepted.message.into()]).collect();
        Ok(AcceptedMessage { tenant, accepted, runs, mode })
    }

    /// Resumes a paused session for a message with the resume command: while it is paused, no
    /// runner could process the message. A repeated message also resumes while the first is
    /// unanswered, because the notification may have been lost.
    async fn resume_session(&self, tenant: TenantId, accepted: &Acceptance) -> Result<(), Error> {
        if accepted.duplicate {
            let answer = self.sessions.views().answer(tenant, accepted.message).await?;
            if answer.outcome.is_some() {
                return Ok(());
            }
        }
        if self.sessions.resume(tenant, accepted.session).await?.wake {
            self.bus.wake_run(0);
        }
        Ok(())
    }

    /// Notifies the runners, or the runner of a running turn, of a new message.
    pub fn notify_runners(&self, taken: &AcceptedMessage) {
        let Acceptance { session, wake, running, .. } = taken.accepted;
        if let Some(after) = wake {
            self.bus.wake_run(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        }
        if let Some(running) = running {
            let kind = match taken.mode {
                QueueMode::Interrupt => ControlKind::Interrupt,
                QueueMode::Steer
                | QueueMode::Followup
                | QueueMode::Collect
                | QueueMode::SteerBacklog => ControlKind::Input,
            };
            self.signal_runner(session, running, kind);
        }
    }

    /// Cancels the turn of a session.
    pub async fn cancel(
        &self,
        caller: &Caller,
        named: NamedSession<'_>,
    ) -> Result<CancelResult, Error> {
        let session = self.existing_session(caller, named, ConversationRight::Control).await?;
        self.cancel_session(caller.tenant, session).await
    }

    /// Cancels the turn that handles a message. A message that waits behind others of its session is
    /// left alone.
    pub async fn cancel_message(
        &self,
        tenant: TenantId,
        session: SessionId,
        seq: i64,
    ) -> Result<(), Error> {
        match self.sessions.end_overdue(tenant, session, seq).await? {
            OverdueResult::Stopped(running) => {
                self.signal_runner(session, running, ControlKind::Cancel);
            }
            OverdueResult::Woken(true) => self.bus.wake_run(0),
            OverdueResult::Waits if self.is_next(tenant, session, seq).await? => {
                self.cancel_session(tenant, session).await?;
            }
            OverdueResult::Woken(false)
            | OverdueResult::Waits
            | OverdueResult::Begun
            | OverdueResult::Gone => {}
        }
        Ok(())
    }

    /// Whether no message of another request waits in the session.
    async fn is_next(&self, tenant: TenantId, session: SessionId, seq: i64) -> Result<bool, Error> {
        let own = self.sessions.responses().request_messages(tenant, session, seq).await?.len();
        let waiting = self.sessions.views().session(tenant, session).await?.waiting;
        Ok(usize::try_from(waiting).is_ok_and(|waiting| waiting <= own))
    }

    async fn cancel_session(
        &self,
        tenant: TenantId,
        session: SessionId,
    ) -> Result<CancelResult, Error> {
        let cancelled = self.sessions.cancel(tenant, session).await?;
        match cancelled {
            CancelResult::Running(running) => {
                self.signal_runner(session, running, ControlKind::Cancel);
            }
            CancelResult::Waiting { wake: true } | CancelResult::Queued { wake: true } => {
                self.bus.wake_run(0);
            }
            CancelResult::Nothing
            | CancelResult::Waiting { wake: false }
            | CancelResult::Queued { wake: false } => {}
        }
        Ok(cancelled)
    }

    fn signal_runner(&self, session: SessionId, running: SessionOwner, kind: ControlKind) {
        let control = Control { session, kind, epoch: running.epoch };
        self.bus.control(running.owner, &control);
    }
}

/// Source of a caller's messages.
pub fn source(caller: &Caller) -> Source {
    match caller.principal {
        Principal::Key(key) => Source::Key(key),
        Principal::Person { .. } | Principal::Service | Principal::Node => {
            Source::Internal(caller.id())
        }
    }
}

/// New message for a session, with the fields that all messages of a caller share.
pub fn new_message(caller: &Caller, place: Destination, body: Body) -> NewMessage {
    NewMessage {
        key: place.key,
        agent: place.agent.id,
        label: None,
        source: source(caller),
        idem_key: String::new(),
        body: Body { author: of_caller(caller), ..body },
        target: None,
        mode: QueueMode::Followup,
        debounce: Duration::ZERO,
        trace: trace::current(),
    }
}

/// Checks the caller's idempotency key; generates one if it is empty.
///
/// # Errors
///
/// If the key is too long, or contains a NUL.
pub fn idempotency_key(given: String) -> Result<String, Error> {
    match given.len() {
        0 => Ok(Uuid::now_v7().simple().to_string()),
        1..=MAX_IDEMPOTENCY_KEY_BYTES if given.contains('\0') => {
            Err(Error::NulCharacter("request_id"))
        }
        1..=MAX_IDEMPOTENCY_KEY_BYTES => Ok(given),
        long => Err(holdfast_session::Error::InvalidIdemKey(long).into()),
    }
}

/// Whether a message resumes its session if that is paused.
fn is_resume_command(message: &NewMessage) -> bool {
    message
        .body
        .command()
        .is_some_and(|command| command == Command::Resume && command.is_for(message.key.kind()))
}

fn debounce(agent: &RoutedAgent, options: &ChannelOptions) -> Duration {
    let pause = options.queue.debounce_ms.unwrap_or(agent.settings.debounce_ms);
    Duration::from_millis(u64::from(pause))
}
