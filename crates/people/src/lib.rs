//! Moves what belongs to a person when two people become one: memories, time zones, conversations,
//! reminders and files.
//!
//! Each step can be repeated, so whoever stops in between begins again.

mod error;
pub mod keys;

use holdfast_agent::{
    file_view::FileSpace,
    person::{OWNER, of_account},
};
use holdfast_directory::{Directory, Identity, PersonAccount};
use holdfast_grpc::MemoryClient;
use holdfast_proto::memory::v1 as memory;
use holdfast_schedule::store::Jobs;
use holdfast_session::{KeyChanges, Sessions};
use holdfast_types::{AgentId, AgentName, Fault as _, SessionId, TenantId, TreePath};
use holdfast_workspace::{Base, ChangeAuthor, Edit, Workspaces};
use tracing::warn;

pub use error::Error;

/// Files that one change moves.
const FILES_PER_CHANGE: usize = 50;

/// The services that keep something for each person.
#[derive(Debug, Clone, Copy)]
pub struct PersonMover<'a> {
    pub directory: &'a Directory,
    pub sessions: &'a Sessions,
    pub jobs: &'a Jobs,
    pub files: &'a Workspaces,
    /// `None` if the mesh has no memory service.
    pub memory: Option<&'a MemoryClient>,
}

/// People who are one from now on.
#[derive(Debug, Clone, Copy)]
pub struct JoinedPeople<'a> {
    /// Names that the person had until now.
    pub former: &'a [String],
    /// Name of the person.
    pub person: &'a str,
    /// Whether the person owns the agents: what is known of them is kept under `owner`.
    pub is_owner: bool,
    /// New keys of conversations that go on as the person's.
    pub conversations: &'a [KeyChanges],
    /// Conversation that records the change, if it was asked for in one.
    pub asked_in: Option<SessionId>,
    /// Folder for files whose path is taken.
    pub folder: &'a str,
}

impl JoinedPeople<'_> {
    /// Name under which memories and time zones are kept.
    #[must_use]
    pub const fn memory_name(&self) -> &str {
        if self.is_owner { OWNER } else { self.person }
    }
}

impl PersonMover<'_> {
    /// Returns all agents of a tenant, with whom a person may have conversations.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read now.
    pub async fn agents(&self, tenant: TenantId) -> Result<Vec<(AgentId, AgentName)>, Error> {
        let agents = self.directory.agents().list(tenant).await?;
        Ok(agents.into_iter().map(|agent| (agent.id, agent.name)).collect())
    }

    /// Gives the conversations of a linked account the keys that they had before.
    ///
    /// # Errors
    ///
    /// If a service fails; the call can be repeated.
    pub async fn separate(
        &self,
        tenant: TenantId,
        identity: &Identity,
        person: &str,
    ) -> Result<(), Error> {
        let agents = self.agents(tenant).await?;
        for account in self.accounts_of(tenant, identity).await? {
            let own = of_account(&account.channel, &account.account, &account.peer);
            let mut changes = keys::reversed(keys::of_account(&agents, &account, person, &own));
            // A conversation that all accounts share stays with the person, or with the first account.
            let (moved, stays): (Vec<_>, Vec<_>) = std::mem::take(&mut changes.keys)
                .into_iter()
                .partition(|(key, _)| own == person || !key.contains(":dm:any:"));
            changes.keys = moved;
            self.rename(tenant, &changes, &[]).await?;
            // Such a conversation may have been held last with the account that is separated now.
            let stays: Vec<String> = stays.into_iter().map(|(key, _)| key).collect();
            self.sessions.settings().forget_places(tenant, &stays).await?;
        }
        Ok(())
    }

    /// Gives conversations new keys, and the jobs that name them; reminders of these owners get
    /// another owner.
    ///
    /// # Errors
    ///
    /// If a service fails; the call can be repeated.
    pub async fn rename(
        &self,
        tenant: TenantId,
        changes: &KeyChanges,
        owners: &[(String, String)],
    ) -> Result<(), Error> {
        self.sessions.settings().rename_sessions(tenant, changes).await?;
        Ok(self.jobs.follow_people(tenant, &changes.keys, owners).await?)
    }

    /// Accounts through which the person of an identity may write: all of a channel, or one.
    async fn accounts_of(
        &self,
        tenant: TenantId,
        identity: &Identity,
    ) -> Result<Vec<PersonAccount>, Error> {
        let of = |channel: &str, account: &str| PersonAccount {
            channel: channel.to_owned(),
            account: account.to_owned(),
            peer: identity.peer.clone(),
        };
        if let Some((channel, account)) = identity.channel.split_once('/') {
            return Ok(vec![of(channel, account)]);
        }
        let accounts = self.directory.accounts().list(tenant, None).await?;
        let named = accounts.iter().filter(|account| account.channel == identity.channel);
        Ok(named.map(|account| of(&account.channel, &account.name)).collect())
    }

    /// Moves what people have to the person who they are. Returns `false` if some files stay where
    /// they were.
    ///
    /// # Errors
    ///
    /// If a service fails; the call can be repeated.
    pub async fn join(&self, tenant: TenantId, joined: JoinedPeople<'_>) -> Result<bool, Error> {
        self.move_memories(tenant, joined).await?;
        let (former, name) = (joined.former, joined.memory_name());
        self.sessions.settings().join_people(tenant, joined.asked_in, former, name).await?;
        let renamed = |former: &String| (former.clone(), joined.person.to_owned());
        let mut owners: Vec<_> = joined.former.iter().map(renamed).collect();
        for changes in joined.conversations {
            // A reminder's owner is the user whom the conversation's key names.
            let users = changes.keys.iter().filter_map(|(old, _)| reminder_owner(old));
            owners.extend(users.map(|user| (user, joined.person.to_owned())));
            self.rename(tenant, changes, &owners).await?;
        }
        // Until the conversations were renamed, their turns were indexed under the former names.
        self.move_memories(tenant, joined).await?;
        let mut all = true;
        let agents = self.agents(tenant).await?;
        for name in joined.former {
            for (agent, _) in &agents {
                all &= self.move_files((tenant, *agent), name, joined).await?;
            }
        }
        Ok(all)
    }

    async fn move_memories(&self, tenant: TenantId, joined: JoinedPeople<'_>) -> Result<(), Error> {
        let Some(client) = self.memory else { return Ok(()) };
        let to = joined.memory_name();
        for from in joined.former.iter().filter(|from| *from != to) {
            let who = Some(memory::Who { everything: true, ..memory::Who::default() });
            let request = memory::MoveUserRequest { who, from: from.clone(), to: to.to_owned() };
            client.move_user(tenant, request).await?;
        }
        Ok(())
    }

    /// Moves the files of a person to another's folder. A file whose path is taken there gets the
    /// folder's name before its path. Returns `false` if some stay.
    async fn move_files(
        &self,
        (tenant, agent): (TenantId, AgentId),
        from: &str,
        joined: JoinedPeople<'_>,
    ) -> Result<bool, Error> {
        // The folders of others are among the owner's files: nothing is moved for an owner.
        let (from, to) = (FileSpace::of_person(from), FileSpace::of_person(joined.memory_name()));
        let (Some(from), Some(to)) = (from.folder(), to.folder()) else { return Ok(true) };
        let Ok(folder) = from.parse::<TreePath>() else { return Ok(true) };
        let Ok(other) = to.parse::<TreePath>() else { return Ok(true) };
        let listed = self.files.list(tenant, agent, None, Some(&folder)).await?;
        if listed.is_empty() {
            return Ok(true);
        }
        let taken = self.files.list(tenant, agent, None, Some(&other)).await?;
        let is_taken = |path: &str| taken.iter().any(|file| file.path.as_str() == path);
        let mut all = true;
        for batch in listed.chunks(FILES_PER_CHANGE) {
            let paths: Vec<TreePath> = batch.iter().map(|file| file.path.clone()).collect();
            let contents = self.files.read_many(tenant, agent, &paths).await?;
            let (mut edits, mut outside) = (Vec::new(), false);
            for (path, file) in contents {
                let Some(rest) = path.as_str().strip_prefix(&format!("{folder}/")) else {
                    continue;
                };
                let wanted = match format!("{other}/{rest}") {
                    wanted if is_taken(&wanted) => format!("{other}/{}/{rest}", joined.folder),
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
            let by = ChangeAuthor::new("holdfast", "two people became one").from_outside(outside);
            match self.files.commit(tenant, agent, &by, edits).await {
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
}

/// Owner of the reminders that were set in a program's conversation with a user, by its key.
fn reminder_owner(key: &str) -> Option<String> {
    let (_, name) = key.strip_prefix("agent:")?.split_once(':')?;
    name.starts_with("api:").then(|| name.to_owned())
}
