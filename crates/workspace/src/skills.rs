//! Database rows about skills: lists, the audit of changes, the policy, uses.
//!
//! Skills are files below `skills/`: an agent's in its own tree, the tenant's in a tree whose agent
//! id is the tenant's id ([`Workspaces::shared`]). So atomic changes, history and limits apply to
//! both (decision 0034).

use std::{collections::BTreeMap, time::Duration};

use holdfast_types::{AgentId, SessionId, TenantId, TreePath};
use jiff::Timestamp;
use uuid::Uuid;

use crate::{
    ChangeAuthor, CommitOutcome, ContentHash, Edit, Error, File, Workspaces,
    commit::{edits_digest, repeated_outcome},
    model::parse_stored_path,
    read::file_from_row,
    workspaces::lock_tree,
};

/// Maximum number of skills that are listed per tree.
const MAX_SKILLS_PER_TREE: i64 = 200;

/// Bytes of a `SKILL.md` that are loaded to read its front matter. A runner holds some hundred of
/// these in memory.
const MAX_SKILL_HEAD_BYTES: i32 = 16 << 10;

const MAX_SKILL_USES: i64 = 500;

/// Files and skills that a turn needs, read in one statement.
#[derive(Debug)]
pub struct TurnFiles {
    /// Those of the requested files that exist.
    pub files: BTreeMap<TreePath, File>,
    /// The agent's skills, then its tenant's, each ordered by path.
    pub skills: Vec<SkillHead>,
}

/// Path (`skills/<folder>/SKILL.md`), hash and mark of a skill's main file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillHead {
    /// Whether it belongs to the tenant rather than the agent.
    pub is_shared: bool,
    pub path: TreePath,
    pub hash: ContentHash,
    /// The file may have text from outside.
    pub outside: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkillAction {
    Install,
    Put,
    Remove,
}

impl SkillAction {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Install => "install",
            Self::Put => "put",
            Self::Remove => "remove",
        }
    }

    fn from_stored(word: &str) -> Self {
        match word {
            "install" => Self::Install,
            "remove" => Self::Remove,
            _ => Self::Put,
        }
    }
}

/// Change of a skill, as recorded in the audit (spec SKL-012).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillChange {
    pub action: SkillAction,
    pub skill: String,
    /// Registry that it was installed from; empty if from none.
    pub registry: String,
    /// Empty if it has none.
    pub version: String,
    /// SHA-256 over paths and contents, in hexadecimal; empty if the skill was removed.
    pub sha256: String,
    /// Warning given at the installation; empty if none.
    pub warning: String,
}

/// Row of the audit of skill changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillChangeRecord {
    /// Id of the change (UUIDv7, sorts by time).
    pub id: Uuid,
    /// The changed tree: an agent's or the [shared](Workspaces::shared_tree) one.
    pub tree: AgentId,
    pub change: SkillChange,
    pub actor: String,
    /// Revision of the tree that the change made.
    pub revision: i64,
    pub at: Timestamp,
}

/// Use of a skill by an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillUse {
    pub skill: String,
    /// Time since the last use, by the database's clock.
    pub age: Duration,
    /// Number of uses in all of the agent's sessions.
    pub uses: i64,
}

type SkillChangeRow =
    (Uuid, Uuid, String, String, i64, String, String, String, String, String, jiff_sqlx::Timestamp);

const SKILL_CHANGE_COLUMNS: &str = "change_id, agent_id, action, skill, revision, actor, registry, version, \
     sha256, warning, created_at";

fn skill_change_record(row: SkillChangeRow) -> SkillChangeRecord {
    let (id, tree, action, skill, revision, actor, registry, version, sha256, warning, at) = row;
    let action = SkillAction::from_stored(&action);
    let change = SkillChange { action, skill, registry, version, sha256, warning };
    SkillChangeRecord { id, tree: tree.into(), change, actor, revision, at: at.to_jiff() }
}

impl Workspaces {
    /// Id of the tree that a tenant shares among its agents.
    #[must_use]
    pub fn shared_tree(tenant: TenantId) -> AgentId {
        tenant.as_uuid().into()
    }

    /// Reads several files of an agent and lists the skills of the agent and its tenant, in one
    /// statement.
    pub async fn turn_files(
        &self,
        tenant: TenantId,
        agent: AgentId,
        paths: &[TreePath],
    ) -> Result<TurnFiles, Error> {
        const SQL: &str = "
            (select false, f.path, c.content, f.hash, f.revision, f.outside
             from workspace.files f
             join workspace.contents c on c.tenant_id = f.tenant_id and c.hash = f.hash
             where f.tenant_id = $1 and f.agent_id = $2 and f.path = any($3))
            union all
            (select false, path, null, hash, revision, outside from workspace.files
             where tenant_id = $1 and agent_id = $2 and path > 'skills/' and path < 'skills0'
               and path like 'skills/%/SKILL.md' and path not like 'skills/%/%/SKILL.md'
             order by path limit $5)
            union all
            (select true, path, null, hash, revision, outside from workspace.files
             where tenant_id = $1 and agent_id = $4 and path > 'skills/' and path < 'skills0'
               and path like 'skills/%/SKILL.md' and path not like 'skills/%/%/SKILL.md'
             order by path limit $5)";
        type Row = (bool, String, Option<Vec<u8>>, Vec<u8>, i64, bool);

        let paths: Vec<&str> = paths.iter().map(TreePath::as_str).collect();
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<Row> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .bind(paths)
            .bind(Self::shared_tree(tenant).as_uuid())
            .bind(MAX_SKILLS_PER_TREE)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        let mut briefing = TurnFiles { files: BTreeMap::new(), skills: Vec::new() };
        for (is_shared, path, content, hash, revision, outside) in rows {
            let path = parse_stored_path(&path)?;
            match content {
                Some(content) => {
                    let file = file_from_row(content, &hash, revision, outside)?;
                    briefing.files.insert(path, file);
                }
                None => {
                    let hash = ContentHash::stored(&hash)?;
                    briefing.skills.push(SkillHead { is_shared, path, hash, outside });
                }
            }
        }
        briefing.skills.sort_by(|a, b| (a.is_shared, &a.path).cmp(&(b.is_shared, &b.path)));
        Ok(briefing)
    }

    /// Loads the first 16 KiB of each of this tenant's contents. Unknown hashes are left out.
    pub async fn content_heads(
        &self,
        tenant: TenantId,
        hashes: &[ContentHash],
    ) -> Result<Vec<(ContentHash, Vec<u8>)>, Error> {
        const SQL: &str = "
            select hash, substring(content from 1 for $3) from workspace.contents
            where tenant_id = $1 and hash = any($2)";
        let wanted: Vec<&[u8]> = hashes.iter().map(|hash| hash.as_bytes().as_slice()).collect();
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<(Vec<u8>, Vec<u8>)> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(wanted)
            .bind(MAX_SKILL_HEAD_BYTES)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        rows.into_iter().map(|(hash, text)| Ok((ContentHash::stored(&hash)?, text))).collect()
    }

    /// Changes a skill in a tree like [`commit`](Self::commit) and records it in the audit, in one
    /// transaction. `by` must have a key.
    ///
    /// # Errors
    ///
    /// Those of [`commit`](Self::commit).
    pub async fn change_skill(
        &self,
        tenant: TenantId,
        tree: AgentId,
        by: &ChangeAuthor,
        edits: Vec<Edit>,
        change: &SkillChange,
    ) -> Result<CommitOutcome, Error> {
        const SQL: &str = "
            insert into workspace.skill_changes
                (tenant_id, change_id, agent_id, action, skill, revision, actor, registry, version,
                 sha256, warning, idem_key)
            values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, left($11, 2000), $12)";

        by.check()?;
        let Some(key) = &by.key else {
            return Err(Error::Invalid("a change of a skill has a key: give it one".to_owned()));
        };
        let wanted = self.prepare_edits(edits).await?;
        let request = edits_digest(&wanted.ops);

        let mut tx = self.pools.tenant(tenant).await?;
        let locked = lock_tree(&mut tx, tree).await?;
        if let Some(known) = repeated_outcome(&mut tx, tree, by, &request).await? {
            tx.finish_reading();
            return Ok(known);
        }
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(Uuid::now_v7())
            .bind(tree.as_uuid())
            .bind(change.action.as_str())
            .bind(&change.skill)
            .bind(locked.head.next().number())
            .bind(&by.author)
            .bind(&change.registry)
            .bind(&change.version)
            .bind(&change.sha256)
            .bind(&change.warning)
            .bind(key)
            .execute(tx.conn())
            .await?;
        self.write_commit(tx, locked, by, request, wanted).await
    }

    /// Outcome of the skill change with this key; `None` if there was none.
    pub async fn skill_change_by_key(
        &self,
        tenant: TenantId,
        tree: AgentId,
        key: &str,
    ) -> Result<Option<SkillChangeRecord>, Error> {
        let sql = format!(
            "select {SKILL_CHANGE_COLUMNS} from workspace.skill_changes
             where tenant_id = $1 and agent_id = $2 and idem_key = $3"
        );
        let mut tx = self.pools.tenant(tenant).await?;
        let row: Option<SkillChangeRow> = holdfast_pg::query_as(sqlx::AssertSqlSafe(sql))
            .bind(tenant.as_uuid())
            .bind(tree.as_uuid())
            .bind(key)
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(row.map(skill_change_record))
    }

    /// Changes of a tenant's skills, newest first, at most `most`; only those before the change
    /// `before` if one is given.
    pub async fn skill_changes(
        &self,
        tenant: TenantId,
        before: Option<Uuid>,
        most: u32,
    ) -> Result<Vec<SkillChangeRecord>, Error> {
        let sql = format!(
            "select {SKILL_CHANGE_COLUMNS} from workspace.skill_changes
             where tenant_id = $1 and skill <> '' and ($2::uuid is null or change_id < $2)
             order by change_id desc limit $3"
        );
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<SkillChangeRow> = holdfast_pg::query_as(sqlx::AssertSqlSafe(sql))
            .bind(tenant.as_uuid())
            .bind(before)
            .bind(i64::from(most))
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(rows.into_iter().map(skill_change_record).collect())
    }

    /// A tenant's stored policy for installations; `None` if none was stored.
    pub async fn skill_policy(&self, tenant: TenantId) -> Result<Option<serde_json::Value>, Error> {
        const SQL: &str = "select document from workspace.skill_policies where tenant_id = $1";
        let mut tx = self.pools.tenant(tenant).await?;
        let row: Option<sqlx::types::Json<serde_json::Value>> =
            holdfast_pg::query_scalar(SQL).bind(tenant.as_uuid()).fetch_optional(tx.conn()).await?;
        tx.finish_reading();
        Ok(row.map(|document| document.0))
    }

    /// Stores a tenant's policy for installations.
    pub async fn set_skill_policy(
        &self,
        tenant: TenantId,
        actor: &str,
        document: &serde_json::Value,
    ) -> Result<(), Error> {
        const SQL: &str = "
            insert into workspace.skill_policies (tenant_id, document, updated_by)
            values ($1, $2, $3)
            on conflict (tenant_id) do update set document = excluded.document,
                updated_by = excluded.updated_by, updated_at = clock_timestamp()";
        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(sqlx::types::Json(document))
            .bind(actor)
            .execute(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Counts a use of a skill by a tool call; a repeated call with the same key counts once.
    pub async fn record_skill_use(
        &self,
        tenant: TenantId,
        agent: AgentId,
        skill: &str,
        session: SessionId,
        key: &str,
    ) -> Result<(), Error> {
        const SQL: &str = "
            insert into workspace.skill_uses as u (tenant_id, agent_id, skill, session_id, last_key)
            values ($1, $2, $3, $4, $5)
            on conflict (agent_id, skill, session_id, tenant_id) do update
                set uses = u.uses + 1, last_at = clock_timestamp(), last_key = excluded.last_key
                where u.last_key <> excluded.last_key";
        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .bind(skill)
            .bind(session.as_uuid())
            .bind(key)
            .execute(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Skills that an agent has used, the most recent first; at most 500.
    pub async fn skill_uses(
        &self,
        tenant: TenantId,
        agent: AgentId,
    ) -> Result<Vec<SkillUse>, Error> {
        const SQL: &str = "
            select skill, sum(uses)::bigint,
                extract(epoch from greatest(clock_timestamp() - max(last_at), interval '0'))::float8
            from workspace.skill_uses where tenant_id = $1 and agent_id = $2
            group by skill order by 3 limit $3";
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<(String, i64, f64)> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .bind(MAX_SKILL_USES)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        let used = |(skill, uses, age): (String, i64, f64)| {
            let age = Duration::try_from_secs_f64(age).unwrap_or_default();
            SkillUse { skill, age, uses }
        };
        Ok(rows.into_iter().map(used).collect())
    }
}
