//! Approval decisions: permission check and execution.
//!
//! | decision from | may decide |
//! |---|---|
//! | a message with an API key | a key that has the scope `approve`, when the decision is executed |
//! | a message of a person who signed in | an approver, an operator or an owner, when the decision is executed |
//! | a direct conversation on a channel | its own user, unless a guest |
//! | a group, or a conversation that several share | whom the account's `allow` names; `*` names nobody |
//! | the mesh itself: a schedule, another agent, a tool | no: no model approves its own calls |
//!
//! A sender whom the channel has not verified decides nothing. By e-mail a decision always names its
//! approval: the id is known to whom the request was sent.
//!
//! A decision can only name calls of its own conversation, of the tasks that this conversation requested,
//! and calls of other conversations of the person that were asked about here. About those, the person
//! decides who may decide by their role.

use holdfast_agent::{calls_awaiting_approval, person};
use holdfast_bus::{Control, ControlKind};
use holdfast_directory::channel;
use holdfast_session::{Approval, DecisionResult, InboxMessage, NewDecision, NewDelivery};
use holdfast_types::{
    AccountId, Author, Command, DecisionCommand, DeliveryId, Entry, Fault as _, KeyId, Kind,
    PersonId, SessionKind,
};

use super::request;
use crate::{error::Error, turn::state::TurnState};

/// Author of a decision.
enum Decider {
    Key(KeyId),
    Person(PersonId),
    Sender { channel: String, account: AccountId, id: String, author: Option<Author> },
}

impl Decider {
    fn of(row: &InboxMessage) -> Option<Self> {
        if let Ok(key) = row.source.parse() {
            return Some(Self::Key(key));
        }
        if let Ok(person) = row.source.parse() {
            return Some(Self::Person(person));
        }
        let account = row.source.parse().ok()?;
        let channel = row.target.as_ref().map(|target| target.channel.clone()).unwrap_or_default();
        let id = row.body.sender.as_ref().map(|sender| sender.id.clone()).unwrap_or_default();
        Some(Self::Sender { channel, account, id, author: row.body.author.clone() })
    }

    /// Name of the person in the approval's record.
    fn name(&self) -> String {
        match self {
            Self::Key(key) => key.to_string(),
            Self::Person(person) => person.to_string(),
            Self::Sender { channel, id, .. } => format!("{channel}:{id}"),
        }
    }
}

/// Processes the decisions that arrived while this turn waits for approvals. A valid decision
/// becomes part of the turn. An invalid one is answered and removed, so that it wakes no runner
/// again.
pub(crate) async fn process_decisions(turn: &mut TurnState<'_>) -> Result<(), Error> {
    if calls_awaiting_approval(turn.journal.entries()).is_empty() {
        return Ok(());
    }
    let heard = turn.heard_seqs();
    let words: Vec<(InboxMessage, DecisionCommand)> = turn
        .inbox
        .iter()
        .filter(|row| !heard.contains(&row.seq))
        .filter_map(|row| match row.body.command() {
            Some(Command::Decide(command)) => Some((row.clone(), command)),
            Some(_) | None => None,
        })
        .collect();
    for (row, command) in words {
        match execute_decision(turn, &row, &command).await? {
            Ok(_) => turn.hear_messages(&[row.seq]),
            Err(told) => reject_decision(turn, &row, &told).await?,
        }
    }
    Ok(())
}

async fn reject_decision(
    turn: &mut TurnState<'_>,
    row: &InboxMessage,
    told: &str,
) -> Result<(), Error> {
    let answer = row.target.clone().map(|target| NewDelivery {
        target,
        text: told.to_owned(),
        act: None,
        // One reply per message: the delivery's id is made from the message's.
        id: DeliveryId::from(row.message.as_uuid()),
        delay: std::time::Duration::ZERO,
    });
    let channel = answer.as_ref().map(|answer| answer.target.channel.clone());
    turn.worker
        .sessions
        .approvals()
        .reject_message(&turn.lease.claim, row.seq, told, answer)
        .await?;
    turn.inbox.retain(|waiting| waiting.seq != row.seq);
    if let Some(channel) = channel {
        turn.worker.bus.wake_deliver(&channel);
    }
    Ok(())
}

/// Answers a decision that arrived while this conversation waited for none. It may concern a
/// task that the conversation requested.
pub(crate) async fn answer_decision(
    turn: &TurnState<'_>,
    command: DecisionCommand,
) -> Result<String, Error> {
    let heard = turn.heard_seqs();
    let is_word = |row: &&InboxMessage| {
        heard.contains(&row.seq) && matches!(row.body.command(), Some(Command::Decide(_)))
    };
    let Some(row) = turn.inbox.iter().find(is_word) else {
        return Ok(request::NO_APPROVAL_REPLY.to_owned());
    };
    Ok(match execute_decision(turn, row, &command).await? {
        Ok(resolved) => request::accepted_reply(&resolved.approval, command.verdict),
        Err(told) => told,
    })
}

/// Executes a decision, or returns why it is not valid.
async fn execute_decision(
    turn: &TurnState<'_>,
    row: &InboxMessage,
    command: &DecisionCommand,
) -> Result<Result<DecisionResult, String>, Error> {
    let Some(person) = Decider::of(row) else {
        return Ok(Err(request::NOT_A_PERSON_REPLY.to_owned()));
    };
    let (claim, sessions) = (&turn.lease.claim, &turn.worker.sessions);
    let id = command.id.as_deref();
    if let Decider::Sender { channel, author, .. } = &person {
        if author.as_ref().is_some_and(|author| !author.is_verified()) {
            return Ok(Err(request::NOT_VERIFIED_REPLY.to_owned()));
        }
        if id.is_none() && channel == channel::EMAIL {
            return Ok(Err(request::ID_NEEDED_REPLY.to_owned()));
        }
    }
    let mut found = sessions.approvals().in_family(claim.tenant, claim.session, id).await?;
    let approval = match (found.len(), id) {
        (0, None) => return Ok(Err(request::NO_APPROVAL_REPLY.to_owned())),
        (0, Some(name)) => return Ok(Err(request::unknown_approval_reply(name))),
        (1, _) | (_, Some(_)) => found.swap_remove(0),
        (_, None) => return Ok(Err(request::ambiguous_reply(&found))),
    };
    if !may_decide(turn, &person, &approval).await? {
        let reply = match person {
            Decider::Key(_) => request::KEY_NOT_PERMITTED_REPLY,
            Decider::Person(_) => request::PERSON_NOT_PERMITTED_REPLY,
            Decider::Sender { .. } => request::NOT_PERMITTED_REPLY,
        };
        return Ok(Err(reply.to_owned()));
    }
    let by = person.name();
    let decision =
        NewDecision { verdict: command.verdict, by: &by, reason: command.reason.as_deref() };
    let resolved = sessions.approvals().resolve(claim.tenant, approval.id, decision).await;
    match resolved {
        Ok(resolved) => {
            wake_session(turn, &resolved);
            Ok(Ok(resolved))
        }
        Err(error) if matches!(error.kind(), Kind::Conflict | Kind::NotFound) => {
            Ok(Err(error.to_string()))
        }
        Err(error) => Err(error.into()),
    }
}

/// Wakes the session of the call, which may be another one.
fn wake_session(turn: &TurnState<'_>, resolved: &DecisionResult) {
    if resolved.wake {
        turn.worker.bus.wake_run(0);
    }
    let session = resolved.approval.session;
    if let Some(running) = resolved.running.filter(|_| session != turn.lease.claim.session) {
        let control = Control { session, kind: ControlKind::Input, epoch: running.epoch };
        turn.worker.bus.control(running.owner, &control);
    }
}

async fn may_decide(
    turn: &TurnState<'_>,
    decider: &Decider,
    approval: &Approval,
) -> Result<bool, Error> {
    let (channel, account, id, author) = match decider {
        Decider::Key(key) => return key_may_decide(turn, *key).await,
        Decider::Person(person) => return person_may_decide(turn, *person).await,
        Decider::Sender { channel, account, id, author } => (channel, account, id, author),
    };
    if approval.asked_in == Some(turn.lease.claim.session) {
        let person = author.as_ref().and_then(|author| person::id_of(&author.id));
        return match person {
            Some(person) => person_may_decide(turn, person).await,
            None => Ok(false),
        };
    }
    let is_guest = || turn.policy.turn_authors(author).is_guest();
    match turn.kind {
        SessionKind::Dm if !is_guest() => return Ok(true),
        SessionKind::Main if is_requested_by(turn, id, approval) && !is_guest() => {
            return Ok(true);
        }
        SessionKind::Dm
        | SessionKind::Main
        | SessionKind::Group
        | SessionKind::Topic
        | SessionKind::Subagent
        | SessionKind::Cron
        | SessionKind::Heartbeat
        | SessionKind::Work
        | SessionKind::Api
        | SessionKind::Global => {}
    }
    let tenant = turn.lease.claim.tenant;
    let accounts = turn.worker.directory.accounts().list(tenant, Some(channel)).await;
    let accounts = accounts.map_err(Error::directory)?;
    let own = accounts.iter().find(|one| one.id == *account);
    Ok(own.is_some_and(|own| own.allow_list().names_id(id)))
}

/// Whether the key has the scope `approve` now: it may have been revoked since it sent the message.
async fn key_may_decide(turn: &TurnState<'_>, key: KeyId) -> Result<bool, Error> {
    match turn.worker.directory.keys().get(turn.lease.claim.tenant, key).await {
        Ok(key) => Ok(key.may_approve()),
        Err(error) if error.kind() == Kind::NotFound => Ok(false),
        Err(error) => Err(Error::directory(error)),
    }
}

/// Whether the person may decide now: the role may have changed since the message was sent.
pub(super) async fn person_may_decide(
    turn: &TurnState<'_>,
    person: PersonId,
) -> Result<bool, Error> {
    match turn.worker.directory.people().get(turn.lease.claim.tenant, person).await {
        Ok(person) => Ok(person.may_approve()),
        Err(error) if error.kind() == Kind::NotFound => Ok(false),
        Err(error) => Err(Error::directory(error)),
    }
}

/// Whether the call is made for this person's own message.
fn is_requested_by(turn: &TurnState<'_>, id: &str, approval: &Approval) -> bool {
    approval.run == turn.run
        && !id.is_empty()
        && turn.journal.turn().iter().any(|entry| match entry {
            Entry::Heard { body, .. } => {
                body.command().is_none()
                    && body.sender.as_ref().is_some_and(|sender| sender.id == id)
            }
            Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => false,
        })
}
