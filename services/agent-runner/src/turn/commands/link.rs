//! `/link` and `/unlink`: accounts of one person on several channels (decision 0087).
//!
//! The link is made first, in one transaction; then what belongs to the person is moved. Each step
//! can be repeated, so a crash in between is made up for by the next run of the command.

use holdfast_agent::{person, policy};
use holdfast_directory::{Actor, CodeOrigin, Identity, IssuedLink, LinkOutcome, PersonAccount};
use holdfast_people::{JoinedPeople, PersonMover, keys};
use holdfast_session::NewDelivery;
use holdfast_types::{Author, Entry, SessionKind, Target};

use crate::{
    error::Error,
    failpoints,
    tools::mesh,
    turn::{participants, state::TurnState},
    worker::Worker,
};

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
    for one in &accounts {
        mover(turn.worker).separate(tenant, one, &person).await.map_err(people_error)?;
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
    let key_name = turn.key.parse().ok().and_then(|key| person::named_by(&key));
    let former = [Some(place.own_name.clone()), key_name].into_iter().flatten().collect();
    let link = IssuedLink {
        origin: CodeOrigin::Account { account: place.account, target: place.target },
        person: place.own_name,
        former,
        roles: turn.participants().roles,
    };
    let code = routing.issue_link_code(tenant, link).await.map_err(Error::directory)?;
    let Some((code, _)) = code else { return Ok(NAMED_BY_ADMIN.to_owned()) };
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
             account; or send /unlink first."
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
    let key_name = turn.key.parse().ok().and_then(|key| person::named_by(&key));
    let mut former: Vec<String> = link.former.clone();
    former.extend([Some(place.own_name.clone()), key_name].into_iter().flatten());
    former.sort_unstable();
    former.dedup();
    former.retain(|name| name != person);

    let worker = turn.worker;
    let mover = mover(worker);
    let agents = mover.agents(tenant).await.map_err(people_error)?;
    let mut changes = Vec::new();
    if let CodeOrigin::Account { account, .. } = &link.origin {
        let first = person::of_account(&account.channel, &account.account, &account.peer);
        changes.push(keys::of_account(&agents, account, person, &first));
    }
    // What was said with fewer rights does not act with more: such a conversation begins anew.
    let mut roles = turn.participants().roles;
    let mut other_roles = link.roles.clone();
    roles.sort_unstable();
    other_roles.sort_unstable();
    if roles == other_roles {
        changes.push(keys::of_account(&agents, &place.account, person, &place.own_name));
    }
    let joined = JoinedPeople {
        former: &former,
        person,
        is_owner: link.roles.iter().any(|role| role == policy::OWNER),
        conversations: &changes,
        asked_in: Some(session),
        folder: &place.account.channel,
    };
    let all = mover.join(tenant, joined).await.map_err(people_error)?;
    worker.preferences.forget(tenant, joined.memory_name());
    if let Some(memory) = &worker.memory {
        for (agent, _) in &agents {
            memory.on_memory_added(tenant, *agent, joined.memory_name());
        }
    }
    tell_other_side(turn, &place, &link);
    let rest = if all { "" } else { "\nSome files could not be moved, and stay where they were." };
    let first = match &link.origin {
        CodeOrigin::Account { account, .. } => format!("your account on {}", account.channel),
        CodeOrigin::Person(_) => "the person who you are in the console".to_owned(),
    };
    Ok(format!(
        "Linked with {first}. You are one person on both: what I know of you, your files and your \
         time zone. /unlink undoes it.{rest}"
    ))
}

/// Tells the account that asked for the code; whoever asked in the console sees the link there.
fn tell_other_side(turn: &mut TurnState<'_>, place: &Place, link: &IssuedLink) {
    let CodeOrigin::Account { target, .. } = &link.origin else { return };
    let text = format!(
        "An account on {} is now linked with this one, by the code that you asked for. If that was \
         not you, send /unlink.",
        place.account.channel
    );
    let id = mesh::delivery_id(&format!("{}:{}:linked", turn.lease.claim.session, turn.run));
    let target = Target { reply_to: None, ..target.clone() };
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

fn is_same(identity: &Identity, account: &PersonAccount) -> bool {
    identity.channel == account.identity_channel() && identity.peer == account.peer
}

fn mover(worker: &Worker) -> PersonMover<'_> {
    PersonMover {
        directory: &worker.directory,
        sessions: &worker.sessions,
        jobs: &worker.jobs,
        files: &worker.workspaces,
        memory: worker.memory.as_ref().map(|memory| &memory.client),
    }
}

fn people_error(source: holdfast_people::Error) -> Error {
    Error::Tool { name: "link".to_owned(), source: source.into() }
}
