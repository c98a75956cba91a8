//! Erasure of a person outside of the memory service: conversations, jobs, messages in
//! conversations of others, identities.
//!
//! Everything can be repeated: after a failure the caller calls again.

use std::collections::BTreeSet;

use holdfast_agent::person::{OWNER, author_id, named_by};
use holdfast_directory::Identity;
use holdfast_grpc::Caller;
use holdfast_proto::memory::v1::{ForgetRequest, forget_request};
use holdfast_schedule::store::{Job, JobFilter};
use holdfast_session::Erasure;
use holdfast_types::{JobId, SessionId, SessionKey, SessionKind, linked_person};

use super::{
    super::{State, actor, invalid},
    full_access, with_timeout,
};
use crate::Error;

/// Jobs that one query returns.
const JOBS_PER_QUERY: u32 = 200;

/// Erases a person as `telegram:42` or `api:anna`. Returns the number of erased rows by name.
///
/// # Errors
///
/// If `user` is empty, or the owner: the main session is the agent's own.
pub(super) async fn erase(
    state: &State,
    caller: &Caller,
    user: &str,
) -> Result<Vec<(&'static str, u64)>, Error> {
    if user.is_empty() {
        return Err(Error::MissingField("user"));
    }
    if user == OWNER {
        return Err(invalid(
            "the owner's conversations are the agent's own: delete the agent, or its sessions"
                .to_owned(),
        ));
    }
    let identities = identities_of(state, caller, user).await?;
    let mut authors = vec![user.to_owned()];
    authors.extend(identities.iter().map(|one| {
        let channel = one.channel.split('/').next().unwrap_or_default();
        format!("{channel}:{}", one.peer)
    }));
    authors.push(author_id(user));
    // What an account said before it was linked stays under the name that it had.
    let mut names: Vec<String> = identities
        .iter()
        .map(|one| format!("{}:{}", one.channel.replace('/', ":"), one.peer))
        .collect();
    names.push(user.to_owned());
    authors.sort_unstable();
    authors.dedup();
    let jobs = remove_jobs(state, caller, &authors).await?;
    let sessions = erase_sessions(state, caller, &names, &authors, &jobs).await?;
    let messages = Erasure::new(&state.sessions).erase_messages_of(caller.tenant, &authors).await?;
    forget_conversations(state, caller, &messages).await?;
    state.directory.routing().forget_link_codes(caller.tenant, user).await?;
    // Last: without them a repeated call would not find the rest.
    for one in &identities {
        let routing = state.directory.routing();
        routing.delete_identity(caller.tenant, actor(caller), &one.channel, &one.peer).await?;
    }
    Ok(vec![
        ("jobs", jobs.len() as u64),
        ("identities", identities.len() as u64),
        ("sessions", sessions),
        ("messages", messages.len() as u64),
    ])
}

async fn remove_jobs(
    state: &State,
    caller: &Caller,
    owners: &[String],
) -> Result<Vec<JobId>, Error> {
    // The owner of a reminder is the end of the key of the conversation in which it was asked for.
    let is_theirs = |job: &Job| {
        let Some(of) = job.owner.as_ref() else { return false };
        let keys = [format!("agent:main:dm:{of}"), format!("agent:main:{of}")];
        let mut people = keys.iter().filter_map(|key| named_by(&key.parse().ok()?));
        owners.contains(of) || people.any(|found| owners.contains(&found))
    };
    let (mut removed, mut after) = (Vec::new(), None);
    loop {
        let filter = JobFilter { after, limit: JOBS_PER_QUERY, ..JobFilter::default() };
        let page = state.jobs.list(caller.tenant, &filter).await?;
        let Some(last) = page.last() else { return Ok(removed) };
        after = Some(last.id);
        for job in page.iter().filter(|job| is_theirs(job)) {
            state.jobs.remove(caller.tenant, job.id).await?;
            removed.push(job.id);
        }
    }
}

/// Returns the identities that lead to the person.
async fn identities_of(state: &State, caller: &Caller, user: &str) -> Result<Vec<Identity>, Error> {
    let mut found = state.directory.routing().identities(caller.tenant).await?;
    found.retain(|one| {
        let author = format!("{}:{}", one.channel, one.peer);
        user == author
            || user == format!("{}:{}", one.channel, one.canonical)
            || linked_person(&one.canonical) == Some(user)
    });
    Ok(found)
}

/// Erases the person's conversations, those in which a group gives each member a session, and the
/// runs of the removed jobs.
async fn erase_sessions(
    state: &State,
    caller: &Caller,
    names: &[String],
    authors: &[String],
    jobs: &[JobId],
) -> Result<u64, Error> {
    let is_theirs = |key: &str| {
        let Ok(session) = key.parse::<SessionKey>() else { return false };
        let kind = session.kind();
        let runs = |job: &JobId| key.contains(&format!(":cron:{job}:"));
        let own = |author: &String| {
            let Some((channel, peer)) = author.split_once(':') else { return false };
            let peer = peer.replace('%', "%25").replace(':', "%3A");
            key.contains(&format!(":group:{channel}:")) && key.ends_with(&format!(":user:{peer}"))
        };
        named_by(&session).is_some_and(|found| names.contains(&found))
            || (kind == SessionKind::Cron && jobs.iter().any(runs))
            || (kind == SessionKind::Group && authors.iter().any(own))
    };
    let erasure = Erasure::new(&state.sessions);
    let found = erasure.find_by_key(caller.tenant, is_theirs).await?;
    for session in &found {
        erasure.erase(caller.tenant, *session).await?;
    }
    Ok(found.len() as u64)
}

/// Erases what was remembered of conversations in which the person took part: who said it is not
/// known any more.
async fn forget_conversations(
    state: &State,
    caller: &Caller,
    sessions: &[SessionId],
) -> Result<(), Error> {
    for session in sessions.iter().collect::<BTreeSet<_>>() {
        let what = Some(forget_request::What::Session(session.to_string()));
        let forget = ForgetRequest { who: Some(full_access()), what };
        with_timeout(state.memory()?.forget(caller.tenant, forget)).await?;
    }
    Ok(())
}
