//! Session of a request, and the messages that are new in it.

use holdfast_directory::RoutedAgent;
use holdfast_grpc::{Caller, Principal};
use holdfast_session::{EPHEMERAL_LABEL, MessageStatus, NewMessage};
use holdfast_types::{
    AnswerOptions, Body, MessageId, QueueMode, RunId, SINGLE_REQUEST_PREFIX, SessionId, SessionKey,
    TenantId,
};
use http::HeaderMap;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{
    OpenAi,
    content::{ConversationMessage, Role},
    handover::check_results,
    history::{self, JOINED_PREFIX},
    ignored_fields::IgnoredFields,
};
use crate::{
    Error,
    api_error::ApiError,
    control::sessions::branch_key,
    follow::FollowedMessage,
    ingest::{Destination, idempotency_key, new_message, source},
    permissions::rights::{self, ConversationRight, check},
};

/// Header with the idempotency key.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Prefix of all model names, and the name of the default agent.
pub const MODEL_PREFIX: &str = "holdfast";

/// Separates a branch's name from the name of its session.
const BRANCH_INFIX: &str = "/branch-";

/// Maximum number of messages that a new session begins with; older ones are joined into one.
const MAX_INITIAL_MESSAGES: usize = 128;

/// Request in either format, converted.
#[derive(Debug, Default)]
pub struct AnswerRequest {
    pub model: String,
    /// Name of the session to continue.
    pub user: Option<String>,
    /// Id of the response to continue from.
    pub previous: Option<String>,
    /// Messages of the conversation, the newest last.
    pub turns: Vec<ConversationMessage>,
    pub options: Option<Box<AnswerOptions>>,
    /// What is repeated when the response is read again.
    pub response_fields: Option<Box<Value>>,
    /// Conversation to continue.
    pub conversation: Option<Uuid>,
    /// The messages are the whole conversation, so a request without earlier ones begins another.
    pub has_whole_conversation: bool,
    /// Fields that are not followed.
    pub ignored: IgnoredFields,
}

impl AnswerRequest {
    /// Whether the answer has a form other than text.
    pub fn has_format(&self) -> bool {
        self.options.as_ref().is_some_and(|options| options.format.is_some())
    }

    /// Whether the request is housekeeping of a front end (`housekeeping.rs`).
    pub fn is_housekeeping(&self) -> bool {
        self.options.as_ref().is_some_and(|options| options.is_housekeeping)
    }
}

/// Session of a request, and the messages to add.
struct SessionInput {
    place: Destination,
    /// Set for a session that is made for one request.
    label: Option<&'static str>,
    turns: Vec<ConversationMessage>,
    /// Response to continue from.
    previous: Option<PreviousResponse>,
}

/// Response that a request continues from.
#[derive(Debug, Clone, Copy)]
struct PreviousResponse {
    message: MessageId,
    session: SessionId,
    /// `None` if the response is not complete.
    run: Option<RunId>,
}

impl From<&MessageStatus> for PreviousResponse {
    fn from(status: &MessageStatus) -> Self {
        let run = status.run.filter(|_| status.outcome.is_some());
        Self { message: status.message, session: status.session, run }
    }
}

impl OpenAi {
    /// Accepts a request and follows it. All errors of the request are found here, before an answer
    /// begins.
    pub async fn accept_and_follow(
        &self,
        caller: &Caller,
        key: Option<String>,
        mut ask: AnswerRequest,
    ) -> Result<FollowedMessage, ApiError> {
        let tenant = caller.tenant;
        let agent = self.agent_of(caller, &ask.model).await?;
        if ask.is_housekeeping() {
            ask.user = None;
        }
        let (options, response_fields) = (ask.options.take(), ask.response_fields.take());
        let goes_on = self.session_input(caller, agent, key.as_deref(), ask).await?;
        let (previous, place) = (goes_on.previous, goes_on.place.clone());
        let mut messages = self.inbox_messages(caller, goes_on, key.clone()).await?;
        if let Some(last) = messages.last_mut() {
            last.body.answer_options = options;
            last.body.response_fields = response_fields;
        }

        let after = previous.map(|previous| previous.message);
        let branched = previous.map(|previous| (previous, messages.clone()));
        let taken = match (self.ingest.store_all(tenant, messages, after).await, branched) {
            // A repetition of a request that has branched has its key in the branch.
            (
                Err(Error::Session(
                    holdfast_session::Error::NotNewest | holdfast_session::Error::RequestReused(_),
                )),
                Some((previous, messages)),
            ) => {
                let messages = self.branch(tenant, previous, &place, messages, key).await?;
                self.ingest.store_all(tenant, messages, None).await?
            }
            (taken, _) => taken?,
        };
        let runs = taken.runs.clone();
        let follow = self.follower.follow_accepted(tenant, &taken.accepted, runs).await;
        self.ingest.notify_runners(&taken);
        Ok(follow)
    }

    /// Agent for a model name.
    pub async fn agent_of(&self, caller: &Caller, model: &str) -> Result<RoutedAgent, ApiError> {
        let name = match model.strip_prefix(MODEL_PREFIX) {
            Some("") => "",
            Some(rest) => match rest.strip_prefix('/') {
                Some(name) if !name.is_empty() => name,
                _ => return Err(ApiError::no_model(model)),
            },
            None => return Err(ApiError::no_model(model)),
        };
        self.ingest.agent(caller, name).await.map_err(|error| match error {
            Error::NoAgent(_) => ApiError::no_model(model),
            error => error.into(),
        })
    }

    /// Chooses the session, and the messages that it does not have yet.
    async fn session_input(
        &self,
        caller: &Caller,
        agent: RoutedAgent,
        key: Option<&str>,
        ask: AnswerRequest,
    ) -> Result<SessionInput, ApiError> {
        let AnswerRequest { user, previous, mut turns, .. } = ask;
        let continued = match previous {
            Some(previous) => {
                let status = self.response_status(caller, &previous).await?;
                turns = Self::answer_response(caller, &status, turns)?;
                Some(PreviousResponse::from(&status))
            }
            None => match self.answered_calls(caller, &turns).await? {
                Some(answered) => {
                    turns = answered.turns;
                    Some(PreviousResponse::from(&answered.status))
                }
                None => None,
            },
        };
        if let Some(previous) = continued {
            let agent = if ask.model == MODEL_PREFIX { "" } else { agent.name.as_str() };
            let session = previous.session;
            let place = self
                .ingest
                .destination_of_session(caller, agent, session, ConversationRight::Write)
                .await?;
            return Ok(SessionInput { place, label: None, turns, previous: Some(previous) });
        }
        check_results(&turns, "messages")?;
        if let Some(conversation) = ask.conversation {
            let key =
                self.ingest.named_key(caller, &agent, &conversation_name(conversation)).await?;
            check(caller, &key, ConversationRight::Write)?;
            let place = Destination { agent, key };
            return Ok(SessionInput { place, label: None, turns, previous: None });
        }
        let Some(user) = user.filter(|user| !user.is_empty()) else {
            let name = match key {
                Some(key) => single_request_session(caller, key, &turns),
                None => Uuid::now_v7().simple().to_string(),
            };
            let key = self
                .ingest
                .named_key(caller, &agent, &format!("{SINGLE_REQUEST_PREFIX}{name}"))
                .await?;
            let place = Destination { agent, key };
            return Ok(SessionInput { place, label: Some(EPHEMERAL_LABEL), turns, previous: None });
        };
        let mut place =
            Destination { key: self.ingest.named_key(caller, &agent, &user).await?, agent };
        check(caller, &place.key, ConversationRight::Write)?;
        let (mut label, news) = (None, count_unanswered(&turns));
        // A new session begins with the whole conversation that the client sent.
        if (news < turns.len() || ask.has_whole_conversation)
            && let Some(session) = self.ingest.find_session(caller.tenant, &place.key).await?
        {
            let (history, new) = turns.split_at(turns.len() - news);
            // Results of calls that wait no more need their calls.
            let has_results = new.iter().any(|turn| turn.role == Role::Tool);
            let is_compared = !has_results && !history.is_empty();
            if self.is_repeated(caller, session, key).await?
                || (is_compared && self.is_history_of(caller.tenant, session, history).await?)
            {
                turns.drain(..turns.len() - news);
            } else {
                // The client has edited the conversation, or shows or begins another one.
                let name = match key {
                    Some(key) => single_request_session(caller, key, &turns),
                    None => Uuid::now_v7().simple().to_string(),
                };
                place.key =
                    self.ingest.named_key(caller, &place.agent, &branch_name(&user, &name)).await?;
                label = Some(EPHEMERAL_LABEL);
            }
        }
        Ok(SessionInput { place, label, turns, previous: None })
    }

    /// Whether this request was accepted before in the session.
    async fn is_repeated(
        &self,
        caller: &Caller,
        session: SessionId,
        key: Option<&str>,
    ) -> Result<bool, ApiError> {
        let Some(key) = key else { return Ok(false) };
        let found = self.ingest.session_of_request(caller.tenant, &source(caller), key).await?;
        Ok(found == Some(session))
    }

    /// Whether a session's conversation ends with the history that the client sent.
    async fn is_history_of(
        &self,
        tenant: TenantId,
        session: SessionId,
        sent: &[ConversationMessage],
    ) -> Result<bool, ApiError> {
        // Calls and their results are entries too.
        let limit = sent.len().saturating_mul(8).saturating_add(200);
        let stored = self.ingest.newest_entries(tenant, session, limit).await?;
        let is_whole = stored.first().is_none_or(|oldest| oldest.seq == 1);
        let stored = stored.iter().map(|stored| &stored.entry);
        Ok(history::ends_with(&history::stored(stored), &history::sent(sent), is_whole))
    }

    pub async fn response_status(
        &self,
        caller: &Caller,
        response: &str,
    ) -> Result<MessageStatus, ApiError> {
        let unknown = || ApiError::no_response(response);
        let id = response.strip_prefix("resp_").and_then(|id| Uuid::try_parse(id).ok());
        let message = id.map(MessageId::from).ok_or_else(unknown)?;
        match self.ingest.message_status(caller.tenant, message).await {
            Ok(status) if !is_unstored(&status) => {
                let right = ConversationRight::Read;
                match self.ingest.check_session(caller, status.session, right).await {
                    Ok(()) => Ok(status),
                    Err(Error::OthersConversation(_)) => Err(unknown()),
                    Err(error) => Err(error.into()),
                }
            }
            Ok(_) => Err(unknown()),
            Err(Error::Session(holdfast_session::Error::NotFound { .. })) => Err(unknown()),
            Err(error) => Err(error.into()),
        }
    }

    /// Moves messages to a new session that begins with the conversation up to a response.
    async fn branch(
        &self,
        tenant: TenantId,
        previous: PreviousResponse,
        from: &Destination,
        mut messages: Vec<NewMessage>,
        key: Option<String>,
    ) -> Result<Vec<NewMessage>, ApiError> {
        let Some(run) = previous.run else {
            let message = "this response is not complete, and the conversation goes on without it \
                           already: wait for it";
            return Err(ApiError::invalid_field("previous_response_id", message));
        };
        let entries = self.ingest.entries_until(tenant, previous.session, run).await?;
        let Some(entries) = entries else {
            let message = "this response is too old to branch from: continue from a newer one";
            return Err(ApiError::invalid_field("previous_response_id", message));
        };
        let Some(last) = messages.last().cloned() else { return Ok(messages) };
        let name = match key {
            Some(_) => hex(&Sha256::digest(format!("{}{}", last.source.as_text(), last.idem_key))),
            None => Uuid::now_v7().simple().to_string(),
        };
        let to = match from.key.api_name() {
            // The name has its space already.
            Some(of) => SessionKey::api(&from.agent.name, &branch_name(&of, &name[..32]))
                .map_err(Error::from)?,
            // Under a name of programs, all of them would reach what an owner's conversation holds.
            None => branch_key(&from.key, &name[..32])?,
        };
        let label = rights::is_for_one_request(&from.key).then_some(EPHEMERAL_LABEL);
        let keep = MAX_INITIAL_MESSAGES.saturating_sub(messages.len());
        let history = history::bodies(entries.into_iter().map(|stored| stored.entry), keep);
        let mut branched: Vec<NewMessage> = history
            .into_iter()
            .enumerate()
            .map(|(n, body)| NewMessage {
                body: Body { author: last.body.author.clone(), ..body },
                idem_key: hex(&Sha256::digest(format!("{}:branch:{n}", last.idem_key))),
                ..last.clone()
            })
            .collect();
        branched.append(&mut messages);
        for message in &mut branched {
            message.key = to.clone();
            message.label = label;
        }
        Ok(branched)
    }

    /// Messages for the inbox. Earlier ones are silent; only the last one wakes a runner.
    async fn inbox_messages(
        &self,
        caller: &Caller,
        goes_on: SessionInput,
        key: Option<String>,
    ) -> Result<Vec<NewMessage>, ApiError> {
        let SessionInput { place, label, mut turns, .. } = goes_on;
        // Instructions behind the last message hold for it: clients of Anthropic's API send some there.
        let at = turns.iter().rposition(|turn| turn.role != Role::System);
        let last = match at.or(turns.len().checked_sub(1)).map(|at| turns.remove(at)) {
            Some(turn) if matches!(turn.role, Role::User | Role::Tool) => {
                self.body(caller, &place, turn).await?
            }
            Some(_) => {
                let message = "the last message has to be the user's, or the result of a tool: \
                               there is nothing to answer";
                return Err(ApiError::invalid_field("messages", message));
            }
            None => {
                return Err(ApiError::invalid_field("messages", "there is no message: add one"));
            }
        };
        let key = idempotency_key(key.unwrap_or_default())?;
        let seeds_key = hex(&Sha256::digest(&key));
        // One run per message, in order, whatever the agent's queue mode: each client waits for its
        // own answer.
        let mode = QueueMode::Followup;
        let template =
            NewMessage { label, mode, ..new_message(caller, place.clone(), Body::default()) };

        let author = template.body.author.clone();
        let mut messages = Vec::with_capacity(turns.len() + 1);
        for (n, turn) in join_oldest(turns).into_iter().enumerate() {
            let role = Some(role_name(turn.role).to_owned());
            let body = match self.body(caller, &place, turn).await {
                // Clients keep empty answers in their histories; skip them.
                Err(Error::Empty) => continue,
                shown => Body { role, silent: true, ..shown? },
            };
            let body = Body { author: author.clone(), ..body };
            messages.push(NewMessage {
                body,
                idem_key: format!("{seeds_key}:{n}"),
                ..template.clone()
            });
        }
        let body = Body { author, ..last };
        messages.push(NewMessage { body, idem_key: key, ..template });
        Ok(messages)
    }

    /// Body of a message, with the calls or results that it has.
    async fn body(
        &self,
        caller: &Caller,
        place: &Destination,
        turn: ConversationMessage,
    ) -> Result<Body, Error> {
        let ConversationMessage { text, pictures, mut calls, mut results, .. } = turn;
        let body = self.ingest.body_with_pictures(caller, place, &text, pictures).await;
        let body = match body {
            Err(Error::Empty) if !(calls.is_empty() && results.is_empty()) => Body::default(),
            body => body?,
        };
        for call in &mut calls {
            call.input = self.text_or_empty(&call.input)?;
            check_names(&[&call.id, &call.tool])?;
        }
        for result in &mut results {
            result.output = self.text_or_empty(&result.output)?;
            check_names(&[&result.call])?;
        }
        Ok(Body { calls, results, ..body })
    }

    fn text_or_empty(&self, text: &str) -> Result<String, Error> {
        match self.ingest.text(text) {
            Err(Error::Empty) => Ok(String::new()),
            text => text,
        }
    }
}

/// Refuses ids and names that the database cannot store.
fn check_names(names: &[&str]) -> Result<(), Error> {
    match names.iter().any(|name| name.contains('\0')) {
        true => Err(Error::NulCharacter("the id or the name of a call")),
        false => Ok(()),
    }
}

/// Whether the client did not want the response stored, or has deleted it.
fn is_unstored(status: &MessageStatus) -> bool {
    status.response_fields.as_ref().is_some_and(|fields| fields["store"] == false)
}

/// Name of the session of a conversation.
pub fn conversation_name(conversation: Uuid) -> String {
    format!("conversation-{}", conversation.simple())
}

/// Name of a session that branches off the session of this name. Both belong to one person.
fn branch_name(of: &str, name: &str) -> String {
    let of = of.split_once(BRANCH_INFIX).map_or(of, |(of, _)| of);
    format!("{of}{BRANCH_INFIX}{name}")
}

/// Number of messages at the end without an answer.
fn count_unanswered(turns: &[ConversationMessage]) -> usize {
    turns.iter().rev().take_while(|turn| turn.role != Role::Assistant).count()
}

/// Joins the oldest messages into one if there are too many.
fn join_oldest(mut turns: Vec<ConversationMessage>) -> Vec<ConversationMessage> {
    if turns.len() <= MAX_INITIAL_MESSAGES {
        return turns;
    }
    let newest = turns.split_off(turns.len() - (MAX_INITIAL_MESSAGES - 1));
    let told = turns.iter().flat_map(|turn| {
        let outputs = turn.results.iter().map(|result| result.output.as_str());
        let texts = [turn.text.as_str()].into_iter().filter(|text| !text.is_empty());
        texts.chain(outputs).map(|text| format!("{}: {text}", role_name(turn.role)))
    });
    let told = told.collect::<Vec<_>>().join("\n");
    let mut folded =
        vec![ConversationMessage::text_only(Role::User, format!("{JOINED_PREFIX}{told}"))];
    folded.extend(newest);
    folded
}

pub const fn role_name(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::System => "system",
        Role::Tool => "tool",
    }
}

/// Session name for a single request; the same when the request is repeated.
fn single_request_session(caller: &Caller, key: &str, turns: &[ConversationMessage]) -> String {
    let mut hasher = Sha256::new();
    match caller.principal {
        Principal::Key(key) => hasher.update(key.as_uuid()),
        Principal::Person { id, .. } => hasher.update(id.as_uuid()),
        Principal::Service | Principal::Node => {}
    }
    hasher.update(key);
    for turn in turns {
        hasher.update([0]);
        hasher.update(role_name(turn.role));
        hasher.update(Sha256::digest(&turn.text));
        for picture in &turn.pictures {
            hasher.update(Sha256::digest(picture));
        }
        for call in &turn.calls {
            hasher.update(Sha256::digest(format!("{} {} {}", call.id, call.tool, call.input)));
        }
        for result in &turn.results {
            hasher.update(Sha256::digest(format!("{} {}", result.call, result.output)));
        }
    }
    hex(&hasher.finalize()[..16])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Header that says what a stream that the client aborts does to its turn.
const ON_ABORT: &str = "x-holdfast-on-abort";

/// Whether a turn is cancelled if its stream is aborted. By default it is, unless the request has an
/// idempotency key: the client means to ask again.
///
/// # Errors
///
/// If the header is neither `cancel` nor `continue`.
pub fn cancels_on_abort(headers: &HeaderMap) -> Result<bool, ApiError> {
    match headers.get(ON_ABORT).map(|value| value.to_str()) {
        None => Ok(!headers.contains_key(IDEMPOTENCY_KEY)),
        Some(Ok("cancel")) => Ok(true),
        Some(Ok("continue")) => Ok(false),
        Some(_) => Err(ApiError::invalid_field(
            "X-Holdfast-On-Abort",
            "the header `X-Holdfast-On-Abort` must be `cancel` or `continue`",
        )),
    }
}

/// Idempotency key of the request, if it has one.
///
/// # Errors
///
/// If the header is empty or not plain text.
pub fn idempotency_key_of(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    match value.to_str() {
        Ok("") | Err(_) => Err(ApiError::invalid_field(
            "Idempotency-Key",
            "the `Idempotency-Key` has to be 1 to 256 characters of plain text",
        )),
        Ok(key) => Ok(Some(key.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_grpc::Scopes;
    use holdfast_types::KeyId;

    use super::*;

    fn turn(role: Role, text: &str) -> ConversationMessage {
        ConversationMessage::text_only(role, text.into())
    }

    #[test]
    fn only_what_no_answer_follows_is_new() {
        use Role::{Assistant as A, System as S, User as U};
        for (roles, news) in [
            (&[][..], 0),
            (&[U], 1),
            (&[S, U], 2),
            (&[S, U, A, U], 1),
            (&[U, A, U, U], 2),
            (&[U, A], 0),
        ] {
            let turns: Vec<ConversationMessage> =
                roles.iter().map(|role| turn(*role, "x")).collect();

            assert_eq!(count_unanswered(&turns), news, "{roles:?}");
        }
    }

    #[test]
    fn a_long_history_becomes_a_shorter_one_with_all_of_it() {
        let turns: Vec<ConversationMessage> =
            (0..300).map(|n| turn(Role::User, &format!("<{n}>"))).collect();

        let folded = join_oldest(turns);

        assert_eq!(folded.len(), MAX_INITIAL_MESSAGES);
        let all = folded.iter().map(|turn| turn.text.as_str()).collect::<String>();
        assert!((0..300).all(|n| all.contains(&format!("<{n}>"))));
    }

    #[test]
    fn a_session_for_once_is_the_same_for_the_same_request_of_the_same_key_only() {
        let caller = |key| Caller {
            tenant: TenantId::generate(),
            principal: Principal::Key(key),
            person: None,
            agent: None,
            via: None,
            scopes: Scopes::EMPTY,
            name: String::new(),
        };
        let (anna, ben) = (caller(KeyId::generate()), caller(KeyId::generate()));
        let hi = [turn(Role::User, "hi")];

        assert_eq!(
            single_request_session(&anna, "k", &hi),
            single_request_session(&anna, "k", &hi)
        );
        assert_ne!(single_request_session(&anna, "k", &hi), single_request_session(&ben, "k", &hi));
        assert_ne!(
            single_request_session(&anna, "k", &hi),
            single_request_session(&anna, "l", &hi)
        );
        assert_ne!(
            single_request_session(&anna, "k", &hi),
            single_request_session(&anna, "k", &[turn(Role::User, "ho")])
        );
        assert_ne!(
            single_request_session(&anna, "k", &hi),
            single_request_session(&anna, "k", &[turn(Role::System, "hi")])
        );
    }
}
