//! Test setup: a database, a tenant with an agent, and short constructors for edits.

use std::{path::PathBuf, time::Duration};

use holdfast_pg::{Config, Pools};
use holdfast_testkit::Database;
use holdfast_types::{AgentId, TenantId, TreePath};
use holdfast_workspace::{
    Base, ChangeAuthor, CommitOutcome, ContentCache, ContentHash, Edit, Error, Limits, Revision,
    Scratch, Workspaces,
};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

pub struct World {
    pub trees: Workspaces,
    pub tenant: TenantId,
    pub agent: AgentId,
    pub database: Database,
    disk: Disk,
}

/// A folder that goes with the test.
struct Disk(PathBuf);

impl Drop for Disk {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

impl World {
    pub async fn start() -> anyhow::Result<Self> {
        Self::with(Limits::default()).await
    }

    pub async fn with(limits: Limits) -> anyhow::Result<Self> {
        let database =
            Database::create_from(&holdfast_pg::fingerprint(), async |admin_url: String| {
                holdfast_pg::migrate(&admin_url).await?;
                Ok(())
            })
            .await?;
        let trees = Workspaces::new(Pools::lazy(&config(&database), "test")?).with_limits(limits);
        let disk = Disk(std::env::temp_dir().join(database.name()));
        std::fs::create_dir_all(&disk.0)?;
        let (tenant, agent) = (TenantId::generate(), AgentId::generate());
        Ok(Self { trees, tenant, agent, database, disk })
    }

    /// Pools of the services' login.
    pub fn pools(&self) -> anyhow::Result<Pools> {
        Pools::lazy(&config(&self.database), "test")
    }

    /// Opens as many connections as a test is about to use at once, so that it does.
    pub async fn connect(&self, many: usize) -> Result<(), Error> {
        let heads = (0..many).map(|_| self.trees.head(self.tenant, self.agent));
        futures::future::try_join_all(heads).await.map(drop)
    }

    /// Reads one number as the owner, whom row-level security does not bind.
    pub async fn number(&self, sql: &str) -> anyhow::Result<i64> {
        let mut connection = PgConnection::connect(&self.database.admin_url()).await?;
        Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await?)
    }

    /// Changes something as the owner.
    pub async fn admin(&self, sql: &str) -> anyhow::Result<u64> {
        let mut connection = PgConnection::connect(&self.database.admin_url()).await?;
        Ok(sqlx::query(AssertSqlSafe(sql)).execute(&mut connection).await?.rows_affected())
    }

    pub async fn commit(&self, edits: Vec<Edit>) -> Result<CommitOutcome, Error> {
        self.trees.commit(self.tenant, self.agent, &by("ada"), edits).await
    }

    pub async fn put(&self, name: &str, text: &str) -> anyhow::Result<Revision> {
        Ok(self.commit(vec![put(name, text)?]).await?.revision)
    }

    pub async fn text(&self, name: &str) -> anyhow::Result<Option<String>> {
        let found = self.trees.read(self.tenant, self.agent, &path(name)?, None).await?;
        Ok(found.and_then(|file| file.text().map(str::to_owned)))
    }

    /// The tree as it is, or was: paths and what they say.
    pub async fn tree(&self, at: Option<Revision>) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
        let mut tree = Vec::new();
        for file in self.trees.list(self.tenant, self.agent, at, None).await? {
            let read = self.trees.read(self.tenant, self.agent, &file.path, at).await?;
            let read = read.ok_or_else(|| anyhow::anyhow!("{} is listed only", file.path))?;
            anyhow::ensure!((read.hash, read.revision) == (file.hash, file.revision));
            anyhow::ensure!(read.content.len() as u64 == file.size);
            tree.push((file.path.to_string(), read.content));
        }
        Ok(tree)
    }

    pub async fn paths(&self) -> anyhow::Result<Vec<String>> {
        let listed = self.trees.list(self.tenant, self.agent, None, None).await?;
        Ok(listed.into_iter().map(|file| file.path.to_string()).collect())
    }

    /// A folder of the test's own.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.disk.0.join(name)
    }

    pub fn cache(&self) -> Result<ContentCache, Error> {
        ContentCache::open(self.folder("cache"), 64 << 20)
    }

    pub async fn scratch(&self) -> Result<Scratch, Error> {
        let (trees, root) = (self.trees.clone(), self.folder("scratch"));
        Scratch::open(trees, self.cache()?, root, self.tenant, self.agent).await
    }
}

/// Settings with which callers wait for a connection while the machine stalls.
fn config(database: &Database) -> Config {
    let acquire_timeout = Duration::from_secs(20);
    Config { url: database.url().into(), acquire_timeout, ..Config::default() }
}

pub fn by(author: &str) -> ChangeAuthor {
    ChangeAuthor::new(author, "a test")
}

pub fn path(name: &str) -> anyhow::Result<TreePath> {
    Ok(name.parse()?)
}

pub fn put(name: &str, text: &str) -> anyhow::Result<Edit> {
    put_on(name, text, Base::Any)
}

pub fn put_on(name: &str, text: &str, base: Base) -> anyhow::Result<Edit> {
    Ok(Edit::Put { path: path(name)?, content: text.into(), base })
}

pub fn delete(name: &str) -> anyhow::Result<Edit> {
    Ok(Edit::Delete { path: path(name)?, base: Base::Any })
}

pub fn hash(text: &str) -> Base {
    Base::Hash(ContentHash::of(text.as_bytes()))
}

/// A tree as `World::tree` tells it.
pub fn tree(files: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
    files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect()
}
