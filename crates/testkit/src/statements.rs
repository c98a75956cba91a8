//! Check that a service may execute every SQL statement that it contains.
//!
//! The statements of all crates are read from the sources. Those of a service are the ones in the
//! running test program, which contains what the service can reach and nothing else: the linker
//! removes functions that nobody calls, with their texts. Each is planned in the role of the service,
//! which checks its rights and changes nothing.
//!
//! Statements that are put together while the program runs are not found here. The tests of each
//! service execute those with its login ([`Database::service_url`](crate::Database::service_url)).

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use syn::visit::{self, Visit};

/// Number of leading bytes by which statements are searched for.
const PREFIX_LENGTH: usize = 16;

/// Words with which a statement begins.
const VERBS: [&str; 5] = ["select ", "insert ", "update ", "delete ", "with "];

/// Postgres' code for a statement that the role may not execute.
const PERMISSION_DENIED: &str = "42501";

/// Result of [`check`].
#[derive(Debug)]
pub struct Checked {
    /// Number of statements that were planned.
    pub planned: usize,
    /// Statements that could not be planned for other reasons than rights, with the reason.
    pub unplanned: Vec<String>,
    /// Statements that are not permitted, with the reason.
    pub refused: Vec<String>,
    /// Rights to write a table that no statement writes, such as `app: update session.inbox`.
    pub unused: Vec<String>,
}

/// A statement and the role that executes it, as far as the source says so.
#[derive(Debug, Clone)]
struct Statement {
    sql: String,
    place: String,
    role: Role,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    App,
    System,
    /// The function names neither transaction or both.
    Either,
}

impl Role {
    /// Role of the transactions that a function names.
    fn of_text(function: &str) -> Self {
        let is_any = |words: &[&str]| words.iter().any(|word| function.contains(word));
        let app = is_any(&["TenantTx", ".tenant(", ".tenant_with(", "begin_change("]);
        let system = is_any(&[
            "SystemTx",
            "SystemConnection",
            ".system()",
            "system_connection()",
            "renewal_",
        ]);
        match (app, system) {
            (true, false) => Self::App,
            (false, true) => Self::System,
            (true, true) | (false, false) => Self::Either,
        }
    }

    const fn kinds(self) -> &'static [&'static str] {
        match self {
            Self::App => &["app"],
            Self::System => &["system"],
            Self::Either => &["app", "system"],
        }
    }
}

/// Plans every statement of this program in the role of the login, such as `holdfast_scheduler`, in
/// a migrated database.
///
/// # Errors
///
/// If sources, program or database cannot be read.
pub async fn check(admin_url: &str, login: &str) -> anyhow::Result<Checked> {
    let mut admin = PgConnection::connect(admin_url).await?;
    let mut checked =
        Checked { planned: 0, unplanned: Vec::new(), refused: Vec::new(), unused: Vec::new() };
    let statements = in_this_program(statements()?)?;
    checked.unused = unused_rights(&mut admin, login, &statements).await?;
    for statement in statements {
        let mut results = Vec::new();
        for kind in statement.role.kinds() {
            results.push(plan(&mut admin, &format!("{login}_{kind}"), &statement.sql).await?);
        }
        let told = |why: &str| format!("{}: {why}\n{}", statement.place, statement.sql.trim());
        let refused = |result: &Result<(), PlanError>| match result {
            Err(PlanError::Refused(why)) => Some(told(why)),
            _ => None,
        };
        match results.iter().find(|result| result.is_ok()) {
            Some(_) => checked.planned += 1,
            None => match results.iter().find_map(refused) {
                Some(why) => checked.refused.push(why),
                None => {
                    let Some(Err(PlanError::Other(why))) = results.into_iter().next() else {
                        continue;
                    };
                    checked.unplanned.push(told(&why));
                }
            },
        }
    }
    Ok(checked)
}

/// Returns the login's rights to write tables that none of these statements writes.
async fn unused_rights(
    admin: &mut PgConnection,
    login: &str,
    statements: &[Statement],
) -> anyhow::Result<Vec<String>> {
    const RIGHTS: &str = "
        select distinct k.kind, lower(a.privilege_type), c.oid::regclass::text
        from (values ('app'), ('system')) k (kind)
        cross join pg_class c join pg_namespace n on n.oid = c.relnamespace
        cross join lateral (
            select privilege_type, grantee from aclexplode(c.relacl)
            union all
            select x.privilege_type, x.grantee
            from pg_attribute t cross join lateral aclexplode(t.attacl) x
            where t.attrelid = c.oid) a
        where a.grantee = ($1 || '_' || k.kind)::regrole and c.relkind in ('r', 'p')
          and a.privilege_type in ('INSERT', 'UPDATE', 'DELETE')
        order by 1, 3, 2";
    let rights: Vec<(String, String, String)> =
        sqlx::query_as(RIGHTS).bind(login).fetch_all(admin).await?;
    let is_used = |(kind, verb, table): &(String, String, String)| {
        let written = match verb.as_str() {
            "insert" => format!("insert into {table}"),
            "delete" => format!("delete from {table}"),
            _ => format!("update {table}"),
        };
        statements.iter().any(|statement| {
            statement.role.kinds().contains(&kind.as_str())
                && (names(&statement.sql, &written)
                    || verb == "update" && updates_otherwise(&statement.sql, table))
        })
    };
    let unused = rights.iter().filter(|right| !is_used(right));
    Ok(unused.map(|(kind, verb, table)| format!("{kind}: {verb} {table}")).collect())
}

/// Whether a statement has these words and then no longer name of a table.
fn names(sql: &str, words: &str) -> bool {
    sql.match_indices(words).any(|(at, _)| {
        let next = sql[at + words.len()..].chars().next();
        next.is_none_or(|c| !c.is_alphanumeric() && c != '_')
    })
}

/// Whether a statement needs the right to update a table without the word: for a row that is there
/// already, or to lock rows.
fn updates_otherwise(sql: &str, table: &str) -> bool {
    let is_any = |words: &[&str]| words.iter().any(|word| sql.contains(word));
    let locks = is_any(&["for update", "for no key update", "for share", "for key share"]);
    names(sql, &format!("insert into {table}")) && sql.contains("do update")
        || locks && names(sql, table)
}

enum PlanError {
    Refused(String),
    Other(String),
}

/// Plans a statement in a role, with null for each parameter.
async fn plan(
    admin: &mut PgConnection,
    role: &str,
    sql: &str,
) -> anyhow::Result<Result<(), PlanError>> {
    let tenant = uuid::Uuid::now_v7();
    let nulls = vec!["null"; parameters(sql)].join(", ");
    let arguments = if nulls.is_empty() { nulls } else { format!("({nulls})") };
    let mut transaction = admin.begin().await?;
    let mut planned = Ok(());
    for step in [
        format!("set local holdfast.tenant_id = '{tenant}'"),
        "set local plan_cache_mode = force_generic_plan".to_owned(),
        // As connections of services have it: their policies apply, and their rights.
        format!("set local role {role}"),
        format!("prepare checked as {sql}"),
        format!("explain execute checked {arguments}"),
    ] {
        if let Err(error) = sqlx::raw_sql(AssertSqlSafe(step)).execute(&mut *transaction).await {
            let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
            planned = Err(match code.as_deref() {
                Some(PERMISSION_DENIED) => PlanError::Refused(format!("{role}: {error}")),
                _ => PlanError::Other(error.to_string()),
            });
            break;
        }
    }
    transaction.rollback().await?;
    sqlx::raw_sql("deallocate all").execute(admin).await?;
    Ok(planned)
}

/// Returns the highest number of a parameter.
fn parameters(sql: &str) -> usize {
    let numbers = sql.split('$').skip(1).filter_map(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    numbers.max().unwrap_or(0)
}

/// Returns the statements whose text is in the program that runs.
fn in_this_program(statements: Vec<Statement>) -> anyhow::Result<Vec<Statement>> {
    let program = fs::read(std::env::current_exe()?).context("the test program")?;
    let mut by_prefix: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for (n, statement) in statements.iter().enumerate() {
        if let Some(prefix) = statement.sql.as_bytes().get(..PREFIX_LENGTH) {
            by_prefix.entry(prefix).or_default().push(n);
        }
    }
    let mut is_present = vec![false; statements.len()];
    for verb in VERBS {
        for at in memchr::memmem::find_iter(&program, verb) {
            let Some(prefix) = program.get(at..at + PREFIX_LENGTH) else { continue };
            for n in by_prefix.get(prefix).into_iter().flatten() {
                is_present[*n] |= program[at..].starts_with(statements[*n].sql.as_bytes());
            }
        }
    }
    let present = statements.into_iter().zip(is_present).filter(|(_, is_present)| *is_present);
    Ok(present.map(|(statement, _)| statement).collect())
}

/// Returns the statements in the sources of all crates and services, except for those of tests, of
/// the test kit, and of migrations.
fn statements() -> anyhow::Result<Vec<Statement>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = BTreeMap::new();
    for folder in ["crates", "services"] {
        for part in fs::read_dir(root.join(folder))? {
            let part = part?.path();
            if part.ends_with("testkit") || part.ends_with("testkit-kube") {
                continue;
            }
            for file in sources(&part.join("src"))? {
                let place = file.strip_prefix(&root).unwrap_or(&file).display().to_string();
                let text = fs::read_to_string(&file)?;
                let parsed = syn::parse_file(&text).with_context(|| place.clone())?;
                let mut visitor =
                    Literals { text: &text, place, role: Role::Either, found: &mut found };
                visitor.visit_file(&parsed);
            }
        }
    }
    Ok(found.into_values().collect())
}

fn sources(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    Ok(files)
}

/// Collects the literals of a file that are statements, by their text.
struct Literals<'a> {
    text: &'a str,
    place: String,
    /// Role of the function that is visited.
    role: Role,
    found: &'a mut BTreeMap<String, Statement>,
}

impl Literals<'_> {
    fn role_of(&self, span: proc_macro2::Span) -> Role {
        let (first, last) = (span.start().line, span.end().line);
        let lines = self.text.lines().skip(first - 1).take(last + 1 - first);
        Role::of_text(&lines.collect::<Vec<_>>().join("\n"))
    }
}

impl<'ast> Visit<'ast> for Literals<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.ident != "tests" {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        let outer = self.role;
        self.role = self.role_of(syn::spanned::Spanned::span(function));
        visit::visit_item_fn(self, function);
        self.role = outer;
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        let outer = self.role;
        self.role = self.role_of(syn::spanned::Spanned::span(function));
        visit::visit_impl_item_fn(self, function);
        self.role = outer;
    }

    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        let sql = literal.value().trim_start().to_owned();
        if !VERBS.iter().any(|verb| sql.starts_with(verb)) {
            return;
        }
        let place = format!("{}:{}", self.place, literal.span().start().line);
        let role = self.role;
        let known = self.found.entry(sql.clone()).or_insert(Statement { sql, place, role });
        if known.role != role {
            known.role = Role::Either;
        }
    }
}
