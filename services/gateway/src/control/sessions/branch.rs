//! Branches of sessions: a former message is changed, or an answer made again, in a session of its own.

use std::time::Duration;

use holdfast_agent::{Outcome, outcome_of, person::named_by};
use holdfast_bus::{Control, ControlKind};
use holdfast_grpc::Caller;
use holdfast_proto::gateway::v1::{BranchSessionRequest, BranchSessionResponse};
use holdfast_session::{EntryView, NewBranch, NewMessage, SessionView};
use holdfast_types::{
    Body, DmScope, Entry, QueueMode, SessionId, SessionKey, SessionKind, TenantId, linked_peer,
};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{Handler, checked_label, convert};
use crate::permissions::rights::ConversationRight;
use crate::{
    Error,
    control::{invalid, non_empty},
    ingest,
};

/// Maximum length of a request's id, in bytes.
const MAX_REQUEST_ID_BYTES: usize = 256;

/// Entries that are read to tell whether a turn has ended.
const MAX_TURN_ENTRIES: i64 = 1_000;

/// Channel in the keys of branches of direct messages, which no account has.
const CHANNEL: &str = "branch";

/// Beginning of a branch: its part of the journal, and its first message.
struct Start {
    /// The last entry that is shared.
    upto: i64,
    /// Message that is sent to the branch.
    message: Option<Body>,
}

pub(super) async fn branch(
    of: &Handler,
    caller: &Caller,
    request: BranchSessionRequest,
) -> Result<BranchSessionResponse, Error> {
    if request.request_id.len() > MAX_REQUEST_ID_BYTES {
        let got = request.request_id.len();
        return Err(invalid(format!(
            "`request_id` has {MAX_REQUEST_ID_BYTES} bytes at most, and this one has {got}"
        )));
    }
    let label = non_empty(request.label.clone()).map(|label| checked_label(&label)).transpose()?;
    let state = &of.0;
    let tenant = caller.tenant;
    let id = of.find(caller, &request.session, ConversationRight::Write).await?;
    let session = state.sessions.views().session(tenant, id).await?;
    let start = start(of, caller, id, &request).await?;
    check_turn_has_ended(of, tenant, id, start.upto).await?;
    let name = name(caller, id, &request.request_id);
    let key = branch_key(&session.key.parse()?, &name)?;

    let new = NewBranch { of: id, upto: start.upto, key: &key, label: label.as_deref() };
    let made = state.sessions.branch(tenant, new).await?;
    let message_id = match start.message {
        Some(body) => send(of, caller, (&session, key, &name), body).await?,
        None => String::new(),
    };

    let view = state.sessions.views().session(tenant, made.session).await?;
    let names = state.agent_names(tenant).await?;
    Ok(BranchSessionResponse {
        session: Some(convert::session(view, &names, Timestamp::now())),
        message_id,
        duplicate: made.duplicate,
    })
}

/// Name of a branch: the same for the same request.
fn name(caller: &Caller, session: SessionId, request_id: &str) -> String {
    if request_id.is_empty() {
        let id = Uuid::now_v7().simple().to_string();
        // The end of the id is random.
        return id[id.len() - 12..].to_owned();
    }
    let hash = Sha256::digest(format!("{}\n{session}\n{request_id}", caller.id()));
    hash[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads from a request which part of the journal is shared, and what is sent.
async fn start(
    of: &Handler,
    caller: &Caller,
    session: SessionId,
    request: &BranchSessionRequest,
) -> Result<Start, Error> {
    let seq = match (request.at_seq, request.before_message_seq) {
        (at, 0) if at >= 0 && !request.again && request.text.is_empty() => {
            return Ok(Start { upto: at, message: None });
        }
        (0, before) if before > 0 => before,
        _ => {
            return Err(invalid(
                "give `at_seq`, or `before_message_seq` with or without `again` or `text`"
                    .to_owned(),
            ));
        }
    };
    let views = of.0.sessions.views();
    let found = views.entries_after(caller.tenant, session, seq - 1, 1).await?;
    let message = found.into_iter().find(|entry| entry.seq == seq);
    let Some(EntryView { run, entry: Entry::Heard { body, .. }, .. }) = message else {
        return Err(invalid(format!("entry {seq} of the session is no message")));
    };
    let first = views.run_entries(caller.tenant, (session, run), 0, 1).await?;
    let upto = first.first().map_or(seq, |entry| entry.seq) - 1;
    let text = non_empty(request.text.clone());
    let message = match (request.again, text) {
        (true, Some(_)) => {
            return Err(invalid("give `again` or `text`, not both".to_owned()));
        }
        (false, None) => None,
        (_, text) => Some(message_again(caller, body, text)),
    };
    Ok(Start { upto, message })
}

/// The message as the caller sends it. What only the first sending had is left out.
fn message_again(caller: &Caller, body: Body, text: Option<String>) -> Body {
    let author = ingest::of_caller(caller);
    // A text that the caller repeats and has not written is one from outside.
    let is_of_others =
        text.is_none() && body.author.as_ref().map(|by| &by.id) != author.as_ref().map(|by| &by.id);
    Body {
        outside: body.outside || is_of_others,
        attachments: body.attachments,
        author,
        ..Body::text(text.unwrap_or(body.text))
    }
}

/// A runner would continue a turn that the branch shares half of.
async fn check_turn_has_ended(
    of: &Handler,
    tenant: TenantId,
    session: SessionId,
    upto: i64,
) -> Result<(), Error> {
    if upto == 0 {
        return Ok(());
    }
    let views = of.0.sessions.views();
    let entries = views.history(tenant, session, MAX_TURN_ENTRIES, Some(upto + 1)).await?;
    if entries.last().is_none_or(|last| last.seq != upto) {
        return Err(invalid(format!("the session has no entry {upto}")));
    }
    let entries: Vec<Entry> = entries.into_iter().map(|entry| entry.entry).collect();
    match outcome_of(&entries) {
        Outcome::Open => Err(holdfast_session::Error::Conflict(format!(
            "entry {upto} is within a turn: branch where one ends, or wait for its end"
        ))
        .into()),
        Outcome::Replied(_) | Outcome::Silent | Outcome::Ended { .. } => Ok(()),
    }
}

/// Key of a branch. The person of the conversation is the same, so memories and files are, too.
///
/// # Errors
///
/// If the session is no conversation, such as that of a job.
pub fn branch_key(key: &SessionKey, name: &str) -> Result<SessionKey, Error> {
    let Some(agent) = key.agent().cloned() else { return Err(no_conversation(key.kind())) };
    let person = named_by(key);
    let scope = DmScope::PerChannelPeer;
    let branch = match (key.kind(), person) {
        (SessionKind::Main, _) => SessionKey::direct(&agent, scope, CHANNEL, "", name)?,
        (SessionKind::Dm, Some(person)) => {
            let channel = format!("{CHANNEL}-{name}");
            SessionKey::direct(&agent, scope, &channel, "", &linked_peer(&person))?
        }
        (SessionKind::Group | SessionKind::Topic, Some(group)) => {
            // `group:<channel>:<group>`
            let mut parts = group.splitn(3, ':').skip(1);
            let (channel, chat) =
                (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            SessionKey::topic(&agent, channel, chat, &format!("{CHANNEL}-{name}"))?
        }
        (SessionKind::Api, _) => {
            let own = key.api_name().unwrap_or_default();
            let person = own.split_once('/').map_or(own.as_str(), |(person, _)| person);
            SessionKey::api(&agent, &format!("{person}/{CHANNEL}-{name}"))?
        }
        (kind, _) => return Err(no_conversation(kind)),
    };
    Ok(branch)
}

fn no_conversation(kind: SessionKind) -> Error {
    let kind = kind.as_str();
    invalid(format!(
        "only conversations with people can be branched, and this session is of kind {kind}"
    ))
}

/// Sends the message to the branch, once.
async fn send(
    of: &Handler,
    caller: &Caller,
    (session, key, name): (&SessionView, SessionKey, &str),
    body: Body,
) -> Result<String, Error> {
    let message = NewMessage {
        idem_key: format!("{CHANNEL}:{name}"),
        key,
        agent: session.agent,
        label: None,
        source: ingest::source(caller),
        body,
        target: None,
        mode: QueueMode::Followup,
        debounce: Duration::ZERO,
        trace: holdfast_kit::trace::current(),
    };
    let accepted = of.0.sessions.ingest(caller.tenant, message).await?;
    if let Some(after) = accepted.wake {
        of.0.bus.wake_run(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
    }
    if let Some(running) = accepted.running {
        let (session, kind) = (accepted.session, ControlKind::Input);
        of.0.bus.control(running.owner, &Control { session, kind, epoch: running.epoch });
    }
    Ok(accepted.message.to_string())
}

#[cfg(test)]
mod tests {
    use holdfast_agent::{
        access::{ConversationAccess, SessionFacts},
        policy::{OWNER, TurnAuthors},
    };

    use super::*;

    fn key_of(key: &str) -> Result<String, Error> {
        branch_key(&key.parse()?, "1a2b").map(|key| key.as_str().to_owned())
    }

    #[test]
    fn a_branch_is_with_the_same_person() {
        for key in [
            "agent:main:dm:telegram:42",
            "agent:main:dm:webhook:shop:42",
            "agent:main:dm:branch-ff:=telegram%3A42",
            "agent:main:api:anna",
            "agent:main:api:anna/trip",
            "agent:main:api:anna/branch-ff",
            "agent:main:group:telegram:-1",
            "agent:main:topic:telegram:-1:9",
        ] {
            let branch = key_of(key).unwrap();

            let person = |key: &str| named_by(&key.parse().unwrap());
            assert_eq!(person(&branch), person(key), "{branch}");
            assert_ne!(branch, key);
        }
        let main = key_of("agent:main:main").unwrap();
        let owner = TurnAuthors { user: None, roles: vec![OWNER.to_owned()] };
        let (kind, dm_scope) = (SessionKind::Dm, DmScope::default());
        let facts = SessionFacts { kind, key: &main, dm_scope };
        let access = ConversationAccess::decide(&facts, owner.clone(), &owner);
        assert_eq!(access.person.as_deref(), Some("owner"));
    }

    #[test]
    fn a_session_of_the_mesh_is_not_branched() {
        for key in
            ["agent:main:heartbeat", "agent:main:subagent:1", "agent:main:cron:1:2", "global"]
        {
            assert!(key_of(key).is_err(), "{key}");
        }
    }
}
