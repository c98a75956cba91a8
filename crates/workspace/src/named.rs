//! Named workspaces: folders of an agent's tree in which sessions deliver their work.
//!
//! A named workspace is in the files of one person, or in the owner's: its folder is
//! `workspaces/<name>` there. Sessions that see the folder can be bound to it. The first files are
//! written once: notes for agents, and for a Git repository its empty database. Folders exist in a
//! tree only by their files, so the folders that Git needs have one.

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, TenantId, TreePath};
use uuid::Uuid;

use crate::{Base, ChangeAuthor, Edit, Error, Workspaces, model::parse_stored_path};

/// Folder of named workspaces, in the files of a person.
const WORKSPACES_FOLDER: &str = "workspaces";

/// File of a workspace that the prompts of its sessions include.
const AGENT_NOTES_FILE: &str = "to_agent.md";

/// Forms of commits, pull requests and issues in a new repository.
const REPOSITORY_NOTES: &str = include_str!("../templates/REPOSITORY.md");

const MAX_NAME_CHARS: usize = 96;

/// Workspaces of an agent that are listed.
const MAX_LISTED: i64 = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceKind {
    Folder,
    Git,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceStatus {
    Ready,
    /// No session works in it any more; its files stay.
    Archived,
}

/// Until when a session keeps a workspace to itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WorkspaceLock {
    /// To the end of its turn.
    #[default]
    Session,
    /// Until its todos are finished, too.
    TodoDrain,
}

/// Who made a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkspaceOwner {
    /// Name of the agent.
    Agent(String),
    /// Id of the person.
    Person(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedWorkspace {
    pub id: Uuid,
    pub agent: AgentId,
    pub name: String,
    /// Path in the agent's tree.
    pub folder: TreePath,
    pub kind: WorkspaceKind,
    pub owner: WorkspaceOwner,
    pub status: WorkspaceStatus,
    pub lock: WorkspaceLock,
}

impl NamedWorkspace {
    /// Whether people name it so: by its id, its folder, or its name in the owner's files.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        let folder = self.folder.as_str();
        let in_owners =
            folder.strip_prefix(WORKSPACES_FOLDER).and_then(|rest| rest.strip_prefix('/'));
        self.id.to_string() == name || folder == name || in_owners == Some(name)
    }
}

/// Workspace to make. The name has 1 to 96 letters, digits, `-`, `_` and `.`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWorkspace {
    pub name: String,
    /// Folder of the person whose files it is in; `None` for the owner's.
    pub within: Option<TreePath>,
    pub kind: WorkspaceKind,
    pub owner: WorkspaceOwner,
    pub lock: WorkspaceLock,
}

type Row = (Uuid, Uuid, String, String, String, String, String, String, String);

impl Workspaces {
    /// Makes a workspace, or returns the one with this name. Files that its folder has already stay
    /// as they are, and then it gets no first files.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the name is invalid or its workspace is archived. After another error
    /// the call can be repeated.
    pub async fn create_named(
        &self,
        tenant: TenantId,
        agent: AgentId,
        new: &NewWorkspace,
    ) -> Result<NamedWorkspace, Error> {
        const SQL: &str = "
            insert into workspace.named
                (tenant_id, workspace_id, agent_id, name, folder, kind, owner_kind, owner, lock_mode)
            values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
            on conflict on constraint named_folder do nothing";

        check_name(&new.name)?;
        let folder = folder(new.within.as_ref(), &new.name)?;
        let (owner_kind, owner) = match &new.owner {
            WorkspaceOwner::Agent(name) => ("agent", name),
            WorkspaceOwner::Person(id) => ("person", id),
        };
        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(Uuid::now_v7())
            .bind(agent.as_uuid())
            .bind(&new.name)
            .bind(folder.as_str())
            .bind(new.kind.as_str())
            .bind(owner_kind)
            .bind(owner)
            .bind(new.lock.as_str())
            .execute(tx.conn())
            .await?;
        let made = by_folder(&mut tx, agent, &folder).await?;
        tx.commit().await?;
        if made.status == WorkspaceStatus::Archived {
            return Err(Error::Invalid(format!(
                "the workspace `{}` is archived: take another name",
                made.name
            )));
        }
        self.write_first_files(tenant, &made).await?;
        Ok(made)
    }

    /// Returns a workspace by its id.
    pub async fn named(&self, tenant: TenantId, id: Uuid) -> Result<Option<NamedWorkspace>, Error> {
        const SQL: &str = "
            select workspace_id, agent_id, name, folder, kind, owner_kind, owner, status,
                   lock_mode
            from workspace.named where tenant_id = $1 and workspace_id = $2";

        let mut tx = self.pools.tenant(tenant).await?;
        let row: Option<Row> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(id)
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        row.map(workspace_of).transpose()
    }

    /// Lists the workspaces of an agent by their folders, at most 200.
    pub async fn list_named(
        &self,
        tenant: TenantId,
        agent: AgentId,
    ) -> Result<Vec<NamedWorkspace>, Error> {
        const SQL: &str = "
            select workspace_id, agent_id, name, folder, kind, owner_kind, owner, status,
                   lock_mode
            from workspace.named where tenant_id = $1 and agent_id = $2
            order by folder limit $3";

        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<Row> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .bind(MAX_LISTED)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        rows.into_iter().map(workspace_of).collect()
    }

    /// Archives a workspace. Its sessions work on without it, and its files stay.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`].
    pub async fn archive_named(&self, tenant: TenantId, id: Uuid) -> Result<(), Error> {
        const SQL: &str = "
            update workspace.named set status = 'archived'
            where tenant_id = $1 and workspace_id = $2";

        let mut tx = self.pools.tenant(tenant).await?;
        let done =
            holdfast_pg::query(SQL).bind(tenant.as_uuid()).bind(id).execute(tx.conn()).await?;
        if done.rows_affected() == 0 {
            return Err(Error::not_found("workspace", id));
        }
        tx.commit().await?;
        Ok(())
    }

    async fn write_first_files(
        &self,
        tenant: TenantId,
        made: &NamedWorkspace,
    ) -> Result<(), Error> {
        if !self.list(tenant, made.agent, None, Some(&made.folder)).await?.is_empty() {
            return Ok(());
        }
        let (WorkspaceOwner::Agent(author) | WorkspaceOwner::Person(author)) = &made.owner;
        let by = ChangeAuthor::new(author, &format!("workspace `{}`", made.name));
        let by = by.with_key(&format!("workspace:{}", made.id));
        let edits = first_files(made).into_iter().map(|(name, content)| {
            let path: TreePath = format!("{}/{name}", made.folder).parse()?;
            Ok(Edit::Put { path, content: content.into_bytes(), base: Base::Absent })
        });
        let edits = edits.collect::<Result<Vec<Edit>, Error>>()?;
        match self.commit(tenant, made.agent, &by, edits).await {
            // Another call wrote them, or somebody has changed them since.
            Ok(_) | Err(Error::Clash { .. } | Error::KeyReused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl WorkspaceKind {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Folder => "folder",
            Self::Git => "git",
        }
    }

    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Folder, Self::Git].into_iter().find(|kind| kind.as_str() == word)
    }
}

impl WorkspaceStatus {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Archived => "archived",
        }
    }
}

impl WorkspaceLock {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::TodoDrain => "todo_drain",
        }
    }

    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Session, Self::TodoDrain].into_iter().find(|lock| lock.as_str() == word)
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_valid = (1..=MAX_NAME_CHARS).contains(&name.len())
        && name.bytes().all(is_plain)
        && !name.starts_with('.');
    if is_valid {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "the name of a workspace has 1 to {MAX_NAME_CHARS} letters, digits, `-`, `_` and `.`, and \
         does not begin with `.`"
    )))
}

fn folder(within: Option<&TreePath>, name: &str) -> Result<TreePath, Error> {
    let path = match within {
        Some(within) => format!("{within}/{WORKSPACES_FOLDER}/{name}"),
        None => format!("{WORKSPACES_FOLDER}/{name}"),
    };
    Ok(path.parse()?)
}

/// Names and texts of a new workspace's files.
fn first_files(made: &NamedWorkspace) -> Vec<(&'static str, String)> {
    let mut notes = format!("# {}\n\nNotes for the agents that work here.\n", made.name);
    if made.kind == WorkspaceKind::Git {
        notes.push('\n');
        notes.push_str(REPOSITORY_NOTES);
    }
    let mut files = vec![(AGENT_NOTES_FILE, notes)];
    if made.kind == WorkspaceKind::Git {
        let (WorkspaceOwner::Agent(owner) | WorkspaceOwner::Person(owner)) = &made.owner;
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
        let author: String = owner.chars().filter(is_plain).collect();
        // Permissions are not stored. A collection of garbage would leave folders empty.
        let config = format!(
            "[core]\n\trepositoryformatversion = 0\n\tfilemode = false\n\tbare = false\n\
             \tlogallrefupdates = true\n[gc]\n\tauto = 0\n[user]\n\tname = \"{author}\"\n\
             \temail = agent@holdfast.invalid\n"
        );
        files.extend([
            (".git/HEAD", "ref: refs/heads/main\n".to_owned()),
            (".git/config", config),
            (".git/info/exclude", format!("/{AGENT_NOTES_FILE}\n")),
            (".git/objects/info/.keep", String::new()),
            (".git/refs/.keep", String::new()),
        ]);
    }
    files
}

async fn by_folder(
    tx: &mut TenantTx,
    agent: AgentId,
    folder: &TreePath,
) -> Result<NamedWorkspace, Error> {
    const SQL: &str = "
        select workspace_id, agent_id, name, folder, kind, owner_kind, owner, status, lock_mode
        from workspace.named where tenant_id = $1 and agent_id = $2 and folder = $3";

    let tenant = tx.tenant();
    let row: Row = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(agent.as_uuid())
        .bind(folder.as_str())
        .fetch_one(tx.conn())
        .await?;
    workspace_of(row)
}

fn workspace_of(row: Row) -> Result<NamedWorkspace, Error> {
    let (id, agent, name, folder, kind, owner_kind, owner, status, lock) = row;
    Ok(NamedWorkspace {
        id,
        agent: agent.into(),
        name,
        folder: parse_stored_path(&folder)?,
        kind: WorkspaceKind::parse(&kind).ok_or(Error::Corrupt { what: "kind of a workspace" })?,
        owner: match owner_kind.as_str() {
            "agent" => WorkspaceOwner::Agent(owner),
            _ => WorkspaceOwner::Person(owner),
        },
        status: match status.as_str() {
            "ready" => WorkspaceStatus::Ready,
            _ => WorkspaceStatus::Archived,
        },
        lock: WorkspaceLock::parse(&lock).ok_or(Error::Corrupt { what: "lock of a workspace" })?,
    })
}
