//! A database for each test.
//!
//! Migrating takes a second, copying a migrated database some tens of milliseconds. So the first
//! test that needs a schema prepares a template and the others copy it, also across processes.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use anyhow::Context as _;
use percent_encoding::percent_decode_str;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use uuid::Uuid;

use crate::backends::Backends;
use crate::scratch;

const TEST_PREFIX: &str = "hf_test_";
const TEMPLATE_PREFIX: &str = "hf_template_";
/// Any number that nobody else locks.
const TEMPLATE_LOCK: i64 = 0x686f_6c64_0001;
const SWEEP_LOCK: i64 = 0x686f_6c64_0002;
const LOGIN_LOCK: i64 = 0x686f_6c64_0004;

/// A database of one's own, dropped with the value.
#[derive(Debug)]
pub struct Database {
    name: String,
    server: Backends,
}

impl Database {
    /// An empty database on the shared server. It has pgvector, as every database there.
    pub async fn create() -> anyhow::Result<Self> {
        Self::create_on(Backends::get().await?).await
    }

    /// An empty database on the server that `backends` names.
    pub async fn create_on(backends: &Backends) -> anyhow::Result<Self> {
        let mut admin = connect(&backends.admin_url).await?;
        Self::copy(&mut admin, backends, "template1").await
    }

    /// A database like the one that `prepare` makes, on the shared server.
    ///
    /// `template` names its content: give a hash of the migrations, so that a changed migration
    /// makes a new template. `prepare` gets the URL of a superuser in an empty database and runs
    /// once per content; it must have closed its connections when it returns, or they are closed
    /// for it.
    pub async fn create_from(
        template: &str,
        prepare: impl AsyncFnOnce(String) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        Self::create_from_on(Backends::get().await?, template, prepare).await
    }

    /// As [`Self::create_from`], on the server that `backends` names.
    ///
    /// # Errors
    ///
    /// If the server does not answer or refuses, or what `prepare` returns.
    pub async fn create_from_on(
        backends: &Backends,
        template: &str,
        prepare: impl AsyncFnOnce(String) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let name = template_name(template);
        let mut admin = connect(&backends.admin_url).await?;
        if !is_ready(&mut admin, &name).await? {
            prepare_template(&mut admin, backends, &name, prepare).await?;
        }
        Self::copy(&mut admin, backends, &name).await
    }

    async fn copy(
        admin: &mut PgConnection,
        backends: &Backends,
        template: &str,
    ) -> anyhow::Result<Self> {
        // A failed cleanup must not fail the test: leftovers do no harm.
        drop(sweep(admin).await);
        let name = format!("{TEST_PREFIX}{}", Uuid::now_v7().simple());
        run(admin, format!("create database {name} template {template}"))
            .await
            .with_context(|| format!("cannot copy the database `{template}`"))?;
        Ok(Self { name, server: backends.clone() })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The database, by the login that may do what any service may.
    #[must_use]
    pub fn url(&self) -> String {
        with_database(&self.server.app_url, &self.name)
    }

    /// The database, as this service logs in, so that a test of a service has its rights and no
    /// others. Given backends have one login for all services.
    ///
    /// # Panics
    ///
    /// If no service has that name.
    #[must_use]
    #[expect(clippy::panic, reason = "a test that misspells a service must not run as another")]
    pub fn service_url(&self, service: &str) -> String {
        let (urls, shared) = (&self.server.service_urls, &self.server.app_url);
        let url = match urls.is_empty() {
            true => shared,
            false => urls.get(service).unwrap_or_else(|| panic!("there is no service `{service}`")),
        };
        with_database(url, &self.name)
    }

    /// The database, by the login of the runners of a pool; an empty name is the default pool. The
    /// login is made if it is missing. Migrating the database then grants its rights.
    ///
    /// # Errors
    ///
    /// If the server does not answer, or the superuser's URL names no user.
    pub async fn runner_pool_url(&self, pool: &str) -> anyhow::Result<String> {
        const SQL: &str = "
            select case when exists (select from pg_roles where rolname = $1) then 'alter' else 'create' end
                   || format(' role %I login password %L', $1::text, $2::text)";
        let login = match pool {
            "" => "holdfast_runner_default".to_owned(),
            pool => format!("holdfast_runner_pool_{pool}"),
        };
        let (url, password) = with_user(&self.server.admin_url, &login)
            .context("the superuser's URL of Postgres names no user")?;
        let mut admin = connect(&self.server.admin_url).await?;
        // Roles belong to the cluster: other processes make the same ones. The lock ends with the
        // connection.
        sqlx::query("select pg_advisory_lock($1)").bind(LOGIN_LOCK).execute(&mut admin).await?;
        let make: String =
            sqlx::query_scalar(SQL).bind(&login).bind(&password).fetch_one(&mut admin).await?;
        run(&mut admin, make).await?;
        Ok(with_database(&url, &self.name))
    }

    /// The database, as a superuser.
    #[must_use]
    pub fn admin_url(&self) -> String {
        with_database(&self.server.admin_url, &self.name)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (url, name) = (self.server.admin_url.clone(), self.name.clone());
        scratch::clean_up(async move {
            let mut admin = connect(&url).await?;
            run(&mut admin, format!("drop database if exists {name} with (force)")).await
        });
    }
}

/// Makes the template, unless another process did while we waited for the lock.
async fn prepare_template(
    admin: &mut PgConnection,
    backends: &Backends,
    name: &str,
    prepare: impl AsyncFnOnce(String) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // Of the session, so that the lock goes with the connection however we leave.
    let mut guard = connect(&backends.admin_url).await?;
    sqlx::query("select pg_advisory_lock($1)").bind(TEMPLATE_LOCK).execute(&mut guard).await?;
    if is_ready(admin, name).await? {
        return Ok(());
    }
    run(admin, format!("drop database if exists {name} with (force)")).await?;
    run(admin, format!("create database {name}")).await?;
    prepare(with_database(&backends.admin_url, name))
        .await
        .with_context(|| format!("cannot prepare the template `{name}`"))?;
    // A database that somebody is connected to cannot be copied. Marked a template last: what is
    // not marked is half done, and is made anew.
    run(admin, format!("alter database {name} allow_connections false")).await?;
    sqlx::query("select pg_terminate_backend(pid) from pg_stat_activity where datname = $1")
        .bind(name)
        .execute(&mut *admin)
        .await?;
    run(admin, format!("comment on database {name} is '{}'", scratch::token())).await?;
    run(admin, format!("alter database {name} is_template true")).await
}

async fn is_ready(admin: &mut PgConnection, name: &str) -> anyhow::Result<bool> {
    const SQL: &str =
        "select exists (select from pg_database where datname = $1 and datistemplate)";
    Ok(sqlx::query_scalar(SQL).bind(name).fetch_one(admin).await?)
}

/// Drops what killed tests left and what old schemas need no more.
async fn sweep(admin: &mut PgConnection) -> anyhow::Result<()> {
    const SQL: &str = "select datname, shobj_description(oid, 'pg_database') from pg_database \
                       where datname like 'hf\\_te%'";
    let all: Vec<(String, Option<String>)> = sqlx::query_as(SQL).fetch_all(&mut *admin).await?;
    let old: Vec<String> = all
        .into_iter()
        .filter(|(name, made)| is_leftover(name, made.as_deref()))
        .map(|(name, _)| name)
        .collect();
    if old.is_empty() {
        return Ok(());
    }
    const TRY: &str = "select pg_try_advisory_lock($1)";
    let ours: bool = sqlx::query_scalar(TRY).bind(SWEEP_LOCK).fetch_one(&mut *admin).await?;
    if ours {
        for name in old {
            if name.starts_with(TEMPLATE_PREFIX) {
                run(admin, format!("alter database {name} is_template false")).await?;
            }
            run(admin, format!("drop database if exists {name} with (force)")).await?;
        }
        sqlx::query("select pg_advisory_unlock($1)").bind(SWEEP_LOCK).execute(admin).await?;
    }
    Ok(())
}

/// Test databases live for hours, templates for days: several branches may be worked on.
fn is_leftover(name: &str, comment: Option<&str>) -> bool {
    if let Some(made) = name.strip_prefix(TEST_PREFIX) {
        return scratch::age(made).is_some_and(|age| age > scratch::LEFTOVER_AGE);
    }
    name.starts_with(TEMPLATE_PREFIX)
        && comment.and_then(scratch::age).is_some_and(|age| age > scratch::LEFTOVER_AGE * 24)
}

async fn connect(admin_url: &str) -> anyhow::Result<PgConnection> {
    PgConnection::connect(admin_url).await.context("cannot connect to Postgres as its superuser")
}

async fn run(admin: &mut PgConnection, sql: String) -> anyhow::Result<()> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(admin).await?;
    Ok(())
}

/// A name that Postgres takes unquoted, whatever the caller hashes with.
fn template_name(content: &str) -> String {
    let clean = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    // 63 bytes is what a name may have; what is cut off counts all the same.
    let room = 63 - TEMPLATE_PREFIX.len();
    let name: String = content.chars().map(clean).collect();
    if name.len() <= room {
        return format!("{TEMPLATE_PREFIX}{name}");
    }
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    format!("{TEMPLATE_PREFIX}{}_{:016x}", &name[..room - 17], hasher.finish())
}

/// The same URL with another user in it, and the password, which stays.
fn with_user(url: &str, user: &str) -> Option<(String, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let (credentials, place) = rest.split_once('@')?;
    let password = credentials.split_once(':').map_or("", |(_, password)| password);
    let plain = percent_decode_str(password).decode_utf8_lossy().into_owned();
    Some((format!("{scheme}://{user}:{password}@{place}"), plain))
}

/// The same URL with another database in it.
fn with_database(url: &str, name: &str) -> String {
    let (url, options) = url.split_once('?').map_or((url, None), |(url, o)| (url, Some(o)));
    let authority = url.find("://").map_or(0, |at| at + 3);
    let end = url[authority..].find('/').map_or(url.len(), |at| authority + at);
    let options = options.map(|o| format!("?{o}")).unwrap_or_default();
    format!("{}/{name}{options}", &url[..end])
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    async fn numbers(url: &str) -> anyhow::Result<Vec<i32>> {
        let mut connection = PgConnection::connect(url).await?;
        Ok(sqlx::query_scalar("select n from numbers").fetch_all(&mut connection).await?)
    }

    async fn exists(name: &str) -> bool {
        let mut admin = connect(&Backends::get().await.unwrap().admin_url).await.unwrap();
        let sql = "select exists (select from pg_database where datname = $1)";
        sqlx::query_scalar(sql).bind(name).fetch_one(&mut admin).await.unwrap()
    }

    #[test]
    fn a_long_name_s_end_makes_another_template() {
        let long = "ab".repeat(40);

        let (one, other) = (template_name(&format!("{long}1")), template_name(&format!("{long}2")));

        assert_ne!(one, other);
        assert_eq!((one.len(), template_name("Ab-1")), (63, "hf_template_ab_1".to_owned()));
    }

    #[test]
    fn only_the_database_in_a_url_is_replaced() {
        let table = [
            ("postgres://u:p@h:1/old", "postgres://u:p@h:1/new"),
            ("postgres://h", "postgres://h/new"),
            ("postgres://h/old?sslmode=disable", "postgres://h/new?sslmode=disable"),
        ];
        for (url, expected) in table {
            assert_eq!(with_database(url, "new"), expected);
        }
    }

    #[test]
    fn another_user_has_the_same_password() {
        let (url, password) = with_user("postgres://a:p%40w@h:1/db", "b").unwrap();

        assert_eq!((&*url, &*password), ("postgres://b:p%40w@h:1/db", "p@w"));
        assert_eq!(with_user("postgres://h/db", "b"), None);
    }

    #[test]
    fn only_what_is_old_is_swept() {
        let young = scratch::token();
        let old = "00000000000000000000";

        assert!(is_leftover(&format!("hf_test_{old}"), None));
        assert!(!is_leftover(&format!("hf_test_{young}"), None));
        assert!(is_leftover("hf_template_x", Some(old)));
        assert!(!is_leftover("hf_template_x", Some(&young)));
        assert!(!is_leftover("hf_template_x", None));
        assert!(!is_leftover("holdfast", Some(old)));
    }

    #[tokio::test]
    async fn a_database_is_empty_has_pgvector_and_goes_with_its_value() {
        let database = Database::create().await.unwrap();
        let name = database.name().to_owned();

        let mut app = PgConnection::connect(&database.url()).await.unwrap();
        let row: (String, String, i64) = sqlx::query_as(
            "select current_user::text, '[1,2]'::vector::text, \
             (select count(*) from pg_class where relnamespace = 'public'::regnamespace)",
        )
        .fetch_one(&mut app)
        .await
        .unwrap();
        assert_eq!((row.0.as_str(), row.1.as_str(), row.2), ("holdfast", "[1,2]", 0));

        // Still connected: dropping does not wait for anybody.
        drop(database);
        assert!(!exists(&name).await);
    }

    #[tokio::test]
    async fn a_template_is_prepared_once_and_its_copies_are_apart() {
        let template = Uuid::now_v7().simple().to_string();
        let prepared = AtomicU32::new(0);
        let left_open = Mutex::new(Vec::new());
        let make = || {
            Database::create_from(&template, async |url| {
                prepared.fetch_add(1, Ordering::Relaxed);
                let mut connection = PgConnection::connect(&url).await?;
                sqlx::raw_sql("create table numbers (n int); insert into numbers values (1)")
                    .execute(&mut connection)
                    .await?;
                left_open.lock().unwrap().push(connection);
                Ok(())
            })
        };

        let (a, b, c) = tokio::try_join!(make(), make(), make()).unwrap();
        let mut admin = PgConnection::connect(&a.admin_url()).await.unwrap();
        sqlx::raw_sql("insert into numbers values (2)").execute(&mut admin).await.unwrap();

        assert_eq!(prepared.load(Ordering::Relaxed), 1);
        assert_eq!(numbers(&a.admin_url()).await.unwrap(), [1, 2]);
        assert_eq!(numbers(&b.admin_url()).await.unwrap(), [1]);
        assert_eq!(numbers(&c.admin_url()).await.unwrap(), [1]);
        forget(&template).await;
    }

    #[tokio::test]
    async fn a_template_whose_preparation_failed_is_made_anew() {
        let template = Uuid::now_v7().simple().to_string();

        let failed = Database::create_from(&template, async |url| {
            let mut connection = PgConnection::connect(&url).await?;
            sqlx::raw_sql("create table numbers (n int)").execute(&mut connection).await?;
            anyhow::bail!("the second migration is wrong")
        })
        .await;
        let made = Database::create_from(&template, async |url| {
            let mut connection = PgConnection::connect(&url).await?;
            sqlx::raw_sql("create table numbers (n int)").execute(&mut connection).await?;
            Ok(())
        })
        .await
        .unwrap();

        assert!(format!("{:#}", failed.unwrap_err()).contains("the second migration is wrong"));
        assert_eq!(numbers(&made.admin_url()).await.unwrap(), [0_i32; 0]);
        forget(&template).await;
    }

    async fn forget(template: &str) {
        let name = template_name(template);
        let mut admin = connect(&Backends::get().await.unwrap().admin_url).await.unwrap();
        run(&mut admin, format!("alter database {name} is_template false")).await.unwrap();
        run(&mut admin, format!("drop database {name} with (force)")).await.unwrap();
    }
}
