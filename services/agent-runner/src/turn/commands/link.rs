//! `/link` and `/unlink`: accounts of one person on several channels (decision 0087).
//!
//! The link is made first, in one transaction; then what belongs to the person is moved. Each step
//! can be repeated, so a crash in between is made up for by the next run of the command.

use holdfast_agent::{bootstrap::Audience, file_view::FileSpace, person};
use holdfast_directory::{Actor, Identity, IssuedLink, LinkOutcome, PersonAccount};
use holdfast_proto::memory::v1 as memory;
use holdfast_session::{KeyChanges, NewDelivery};
use holdfast_types::{
    AgentId, AgentName, Author, DmScope, Entry, Fault as _, SessionKey, SessionKind, Target,
    TreePath, has_platform_wide_ids, linked_peer,
};
use holdfast_workspace::{Base, ChangeAuthor, Edit};
use tracing::warn;

use crate::{
    error::Error,
    failpoints,
    tools::mesh,
    turn::{participants, state::TurnState},
};

/// Files that one change moves.
const FILES_PER_CHANGE: usize = 50;

const NOT_HERE: &str = "Send this in a direct conversation on a channel: it is about your account \
                        there.";
const NAMED_BY_ADMIN: &str = "An administrator has set who you are here, so you cannot link this \
                              account yourself.";

const NOT_VERIFIED: &str = "This channel cannot tell whether you are who you say, so this account \
                            cannot be linked with another.";

/// The account of the sender, and where it is answered.
struct Place {
    account: PersonAccount,
    /// Name of the person that the account is by itself.
    own_name: String,
    target: Target,
}

/// Executes `/link`, `/link CODE` or `/unlink`.
pub(crate) async fn run_link_command(
    turn: &mut TurnState<'_>,
    code: Option<&str>,
) -> Result<String, Error> {
    if !is_verified(turn) {
        return Ok(NOT_VERIFIED.to_owned());
    }
    let Some(place) = place(turn).await? else { return Ok(NOT_HERE.to_owned()) };
    participants::load_policy(turn).await?;
    match code {
        None => show_links(turn, place).await,
        Some(code) => use_code(turn, place, code).await,
    }
}

pub(crate) async fn run_unlink_command(turn: &mut TurnState<'_>) -> Result<String, Error> {
    if !is_verified(turn) {
        return Ok(NOT_VERIFIED.to_owned());
    }
    let Some(place) = place(turn).await? else { return Ok(NOT_HERE.to_owned()) };
    let (tenant, session) = (turn.lease.claim.tenant, turn.lease.claim.session);
    let routing = turn.worker.directory.routing();
    let found = routing.links_of(tenant, &place.account).await.map_err(Error::directory)?;
    let Some((person, mut accounts)) = found else {
        return Ok("This account is not linked with another.".to_owned());
    };
    // Without the first account there is nobody to be linked to.
    if person != place.own_name {
        accounts.retain(|one| is_same(one, &place.account));
    }
    let agents = agents(turn).await?;
    for one in &accounts {
        for account in accounts_of_identity(turn, one).await? {
            let own = person::of_account(&account.channel, &account.account, &account.peer);
            let mut changes = reversed(key_changes(&agents, &account, &person, &own));
            // A conversation that all accounts share stays with the first.
            changes.keys.retain(|(key, _)| own == person || !key.contains(":dm:any:"));
            turn.worker.sessions.settings().rename_sessions(tenant, &changes).await?;
            turn.worker.jobs.follow_people(tenant, &changes.keys, &[]).await.map_err(job_error)?;
        }
    }
    let actor = Actor::Agent(turn.agent);
    routing.remove_links(tenant, actor, &accounts).await.map_err(Error::directory)?;
    turn.worker.sessions.settings().record_unlinking(tenant, session).await?;
    Ok("Unlinked. What I learned of you while the accounts were linked stays with the account \
        that was linked to."
        .to_owned())
}

async fn show_links(turn: &TurnState<'_>, place: Place) -> Result<String, Error> {
    let tenant = turn.lease.claim.tenant;
    let routing = turn.worker.directory.routing();
    let linked = routing.links_of(tenant, &place.account).await.map_err(Error::directory)?;
    let others: Vec<String> = linked
        .iter()
        .flat_map(|(_, accounts)| accounts)
        .filter(|one| !is_same(one, &place.account))
        .map(|one| format!("{} {}", one.channel, one.peer))
        .collect();
    let shown = match others.is_empty() {
        true => "This account is not linked with another.".to_owned(),
        false => format!("Linked with: {}. /unlink undoes it.", others.join(", ")),
    };
    let key_name = person::person(turn.kind, &turn.key, Audience::Others);
    let former = [Some(place.own_name.clone()), key_name].into_iter().flatten().collect();
    let link = IssuedLink {
        account: place.account,
        person: place.own_name,
        former,
        roles: turn.participants().roles,
        target: place.target,
    };
    let code = routing.issue_link_code(tenant, link).await.map_err(Error::directory)?;
    let Some(code) = code else { return Ok(NAMED_BY_ADMIN.to_owned()) };
    Ok(format!(
        "{shown}\n\nTo link another account of yours, write this from there to an assistant here, \
         within 10 minutes:\n/link {code}\n\nThat account is then you: it has your rights here, and \
         what I know of you, your files and your time zone are the same. Show the code to nobody."
    ))
}

async fn use_code(turn: &mut TurnState<'_>, place: Place, code: &str) -> Result<String, Error> {
    let tenant = turn.lease.claim.tenant;
    let roles = turn.participants().roles;
    let me = (&place.account, place.own_name.as_str(), roles.as_slice());
    let actor = Actor::Agent(turn.agent);
    let routing = turn.worker.directory.routing();
    let outcome = match routing.use_link_code(tenant, actor, code, me).await {
        Err(holdfast_directory::Error::TooMany { .. }) => {
            return Ok("There are as many links here as there may be. Ask whoever set up this \
                       assistant."
                .to_owned());
        }
        outcome => outcome.map_err(Error::directory)?,
    };
    let refusal = match outcome {
        LinkOutcome::Linked(link) => {
            failpoints::point("runner.linked").await;
            return join(turn, place, *link).await;
        }
        LinkOutcome::Unknown => {
            "There is no such code. It may have expired, or been used: send /link from the other \
             account again."
        }
        LinkOutcome::TooManyAttempts => {
            "Too many codes that do not exist. Wait 10 minutes, then try again."
        }
        LinkOutcome::SameAccount => {
            "This is the account that asked for the code: send it from the other one."
        }
        LinkOutcome::LinkedAlready => "This account is linked already. Send /unlink first.",
        LinkOutcome::NamedByAdmin => NAMED_BY_ADMIN,
        LinkOutcome::HasLinks => {
            "Other accounts are linked to this one. Send /link here, and the code from the other \
             account."
        }
        LinkOutcome::MoreRights => {
            "This account has rights that the other does not have. Send /link here, and the code \
             from the other account."
        }
    };
    Ok(refusal.to_owned())
}

/// Moves what belongs to the account's person to the person it is linked to, and tells both sides.
async fn join(turn: &mut TurnState<'_>, place: Place, link: IssuedLink) -> Result<String, Error> {
    let (tenant, session) = (turn.lease.claim.tenant, turn.lease.claim.session);
    let person = link.person.as_str();
    let key_name = person::person(turn.kind, &turn.key, Audience::Others);
    let mut former: Vec<String> = link.former.clone();
    former.extend([Some(place.own_name.clone()), key_name].into_iter().flatten());
    former.sort_unstable();
    former.dedup();
    former.retain(|name| name != person);

    let agents = agents(turn).await?;
    for name in &former {
        move_memories(turn, &agents, name, person).await?;
    }
    let settings = turn.worker.sessions.settings();
    settings.join_people(tenant, session, &former, person).await?;
    turn.worker.user_zones.forget(tenant, person);
    let first =
        person::of_account(&link.account.channel, &link.account.account, &link.account.peer);
    let mut changes = vec![key_changes(&agents, &link.account, person, &first)];
    // What was said with fewer rights does not act with more: such a conversation begins anew.
    let mut roles = turn.participants().roles;
    let mut other_roles = link.roles.clone();
    roles.sort_unstable();
    other_roles.sort_unstable();
    if roles == other_roles {
        changes.push(key_changes(&agents, &place.account, person, &place.own_name));
    }
    let owners: Vec<(String, String)> =
        former.iter().map(|name| (name.clone(), person.to_owned())).collect();
    for changes in &changes {
        settings.rename_sessions(tenant, changes).await?;
        turn.worker.jobs.follow_people(tenant, &changes.keys, &owners).await.map_err(job_error)?;
    }
    // Until the conversations were renamed, their turns were indexed under the former names.
    for name in &former {
        move_memories(turn, &agents, name, person).await?;
    }
    let mut stay = false;
    for name in &former {
        for (agent, _) in &agents {
            stay |= !move_files(turn, *agent, name, person, &place.account.channel).await?;
        }
    }
    tell_other_side(turn, &place, &link);
    let rest = if stay { "\nSome files could not be moved, and stay where they were." } else { "" };
    Ok(format!(
        "Linked with your account on {}. You are one person on both: what I know of you, your \
         files and your time zone. /unlink undoes it.{rest}",
        link.account.channel
    ))
}

fn tell_other_side(turn: &mut TurnState<'_>, place: &Place, link: &IssuedLink) {
    let text = format!(
        "An account on {} is now linked with this one, by the code that you asked for. If that was \
         not you, send /unlink.",
        place.account.channel
    );
    let id = mesh::delivery_id(&format!("{}:{}:linked", turn.lease.claim.session, turn.run));
    let target = Target { reply_to: None, ..link.target.clone() };
    turn.journal.enqueue([NewDelivery {
        target,
        text,
        act: None,
        id,
        delay: std::time::Duration::ZERO,
    }]);
}

/// Whether the channel has verified all authors of the turn.
fn is_verified(turn: &TurnState<'_>) -> bool {
    participants::authors(turn.journal.turn()).all(Author::is_verified)
}

/// Account of the message's sender; `None` if the message did not come directly by a channel.
async fn place(turn: &TurnState<'_>) -> Result<Option<Place>, Error> {
    if !matches!(turn.kind, SessionKind::Dm | SessionKind::Main) {
        return Ok(None);
    }
    let sender = turn.journal.turn().iter().rev().find_map(|entry| match entry {
        Entry::Heard { body, .. } if !body.silent => body.sender.as_ref(),
        Entry::Heard { .. }
        | Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    });
    let (Some(sender), Some(target)) = (sender, turn.reply_target()) else { return Ok(None) };
    let accounts = turn.worker.directory.accounts().list(turn.lease.claim.tenant, None).await;
    let accounts = accounts.map_err(Error::directory)?;
    let Some(account) = accounts.iter().find(|account| account.id == target.account) else {
        return Ok(None);
    };
    let account = PersonAccount {
        channel: target.channel.clone(),
        account: account.name.clone(),
        peer: sender.id.clone(),
    };
    let own_name = person::of_account(&account.channel, &account.account, &account.peer);
    Ok(Some(Place { account, own_name, target }))
}

/// Accounts through which the person of an identity may write: all of a channel, or one.
async fn accounts_of_identity(
    turn: &TurnState<'_>,
    identity: &Identity,
) -> Result<Vec<PersonAccount>, Error> {
    let accounts = turn.worker.directory.accounts().list(turn.lease.claim.tenant, None).await;
    let accounts = accounts.map_err(Error::directory)?;
    let of = |(channel, name): (&str, &str)| PersonAccount {
        channel: channel.to_owned(),
        account: name.to_owned(),
        peer: identity.peer.clone(),
    };
    Ok(match identity.channel.split_once('/') {
        Some(one) => vec![of(one)],
        None => {
            let channel = identity.channel.as_str();
            let named = accounts.iter().filter(|account| account.channel == channel);
            named.map(|account| of((channel, account.name.as_str()))).collect()
        }
    })
}

fn is_same(identity: &Identity, account: &PersonAccount) -> bool {
    identity.channel == account.identity_channel() && identity.peer == account.peer
}

async fn agents(turn: &TurnState<'_>) -> Result<Vec<(AgentId, AgentName)>, Error> {
    let agents = turn.worker.directory.agents().list(turn.lease.claim.tenant).await;
    let agents = agents.map_err(Error::directory)?;
    Ok(agents.into_iter().map(|agent| (agent.id, agent.name)).collect())
}

/// Keys of an account's direct conversations before and after it is linked, for all agents and
/// scopes. The first account of a person keeps the keys that name it.
fn key_changes(
    agents: &[(AgentId, AgentName)],
    account: &PersonAccount,
    person: &str,
    own_name: &str,
) -> KeyChanges {
    let is_first = person == own_name;
    let scopes = [
        (DmScope::PerPeer, false),
        (DmScope::PerChannelPeer, is_first && has_platform_wide_ids(&account.channel)),
        (DmScope::PerAccountChannelPeer, is_first),
    ];
    let peer = linked_peer(person);
    let key = |agent, scope, peer: &str| {
        SessionKey::direct(agent, scope, &account.channel, &account.account, peer).ok()
    };
    let keys = agents.iter().flat_map(|(_, agent)| {
        scopes.iter().filter(|(_, keeps)| !keeps).filter_map(|(scope, _)| {
            let (old, new) = (key(agent, *scope, &account.peer)?, key(agent, *scope, &peer)?);
            Some((old.to_string(), new.to_string()))
        })
    });
    KeyChanges { channel: account.channel.clone(), keys: keys.collect() }
}

fn reversed(changes: KeyChanges) -> KeyChanges {
    let keys = changes.keys.into_iter().map(|(old, new)| (new, old)).collect();
    KeyChanges { keys, ..changes }
}

async fn move_memories(
    turn: &TurnState<'_>,
    agents: &[(AgentId, AgentName)],
    from: &str,
    to: &str,
) -> Result<(), Error> {
    let tenant = turn.lease.claim.tenant;
    let Some(memory) = &turn.worker.memory else { return Ok(()) };
    let who = Some(memory::Who { everything: true, ..memory::Who::default() });
    let request = memory::MoveUserRequest { who, from: from.to_owned(), to: to.to_owned() };
    memory
        .client
        .move_user(tenant, request)
        .await
        .map_err(|error| Error::Tool { name: "link".to_owned(), source: error.into() })?;
    for (agent, _) in agents {
        memory.on_memory_added(tenant, *agent, to);
    }
    Ok(())
}

/// Moves the files of a person to another's folder. A file whose path is taken there gets the
/// channel's name before its path. Returns `false` if some stay.
async fn move_files(
    turn: &TurnState<'_>,
    agent: AgentId,
    from: &str,
    to: &str,
    channel: &str,
) -> Result<bool, Error> {
    let (from, to) = (FileSpace::of_person(from), FileSpace::of_person(to));
    let (Some(from), Some(to)) = (from.folder(), to.folder()) else { return Ok(true) };
    let Ok(folder) = from.parse::<TreePath>() else { return Ok(true) };
    let Ok(other) = to.parse::<TreePath>() else { return Ok(true) };
    let (tenant, files) = (turn.lease.claim.tenant, &turn.worker.workspaces);
    let listed = files.list(tenant, agent, None, Some(&folder)).await?;
    if listed.is_empty() {
        return Ok(true);
    }
    let taken = files.list(tenant, agent, None, Some(&other)).await?;
    let mut all = true;
    for batch in listed.chunks(FILES_PER_CHANGE) {
        let paths: Vec<TreePath> = batch.iter().map(|file| file.path.clone()).collect();
        let contents = files.read_many(tenant, agent, &paths).await?;
        let (mut edits, mut outside) = (Vec::new(), false);
        for (path, file) in contents {
            let Some(rest) = path.as_str().strip_prefix(&format!("{folder}/")) else { continue };
            let there = |path: &str| taken.iter().any(|file| file.path.as_str() == path);
            let wanted = match format!("{other}/{rest}") {
                wanted if there(&wanted) => format!("{other}/{channel}/{rest}"),
                wanted => wanted,
            };
            let Ok(wanted) = wanted.parse::<TreePath>() else {
                all = false;
                continue;
            };
            outside |= file.outside;
            let base = Base::Hash(file.hash);
            edits.push(Edit::Put { path: wanted, content: file.content, base: Base::Any });
            edits.push(Edit::Delete { path, base });
        }
        let by = ChangeAuthor::new("holdfast", "accounts were linked").from_outside(outside);
        match files.commit(tenant, agent, &by, edits).await {
            Ok(_) => {}
            Err(error) if error.kind().is_transient() => return Err(error.into()),
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "files of a person stay");
                all = false;
            }
        }
    }
    Ok(all)
}

fn job_error(source: holdfast_schedule::store::Error) -> Error {
    Error::Tool { name: "link".to_owned(), source: source.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(channel: &str) -> PersonAccount {
        let (account, peer) = ("default".to_owned(), "7".to_owned());
        PersonAccount { channel: channel.to_owned(), account, peer }
    }

    fn changes(channel: &str, person: &str) -> Vec<(String, String)> {
        let (account, agents) = (account(channel), [(AgentId::generate(), AgentName::default())]);
        let own = person::of_account(&account.channel, &account.account, &account.peer);
        key_changes(&agents, &account, person, &own).keys
    }

    #[test]
    fn the_first_account_keeps_its_conversations_and_the_other_gets_keys_that_name_it() {
        let pair =
            |old: &str, new: &str| (format!("agent:main:dm:{old}"), format!("agent:main:dm:{new}"));

        assert_eq!(changes("telegram", "telegram:7"), [pair("any:7", "any:=telegram%3A7")],);
        assert_eq!(
            changes("webhook", "webhook:default:7"),
            [
                pair("any:7", "any:=webhook%3Adefault%3A7"),
                pair("webhook:7", "webhook:=webhook%3Adefault%3A7"),
            ],
        );
        assert_eq!(
            changes("discord", "telegram:7"),
            [
                pair("any:7", "any:=telegram%3A7"),
                pair("discord:7", "discord:=telegram%3A7"),
                pair("discord:default:7", "discord:default:=telegram%3A7"),
            ],
        );
    }
}
