//! Checks of the mesh's guarantees, in the tables and in the platforms' logs.
//!
//! Each query selects violations of a guarantee and must return nothing. The queries run as the
//! schema's owner, who bypasses row-level security, and only after the mesh is idle.

mod events;
mod queries;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use sqlx::{Connection as _, PgConnection};

use crate::load::{MessageRetention, SentMessage, TestChannel};
use crate::mesh::Mesh;
use crate::script::{MessageKind, ids};
pub use events::{LogPosition, event_log, judge_received};
use queries::BROKEN;

#[derive(Debug, Default)]
pub struct Findings {
    pub broken: Vec<String>,
    /// What there was to look at: a check of nothing proves nothing.
    pub counts: BTreeMap<&'static str, u64>,
    /// Messages that were given up and were no poison: each lost five runners to something else.
    pub collateral: Vec<String>,
}

impl Findings {
    fn count(&mut self, what: &'static str, number: usize) {
        self.counts.insert(what, u64::try_from(number).unwrap_or(u64::MAX));
    }

    fn ensure(&mut self, holds: bool, promise: &str, offender: impl fmt::Display) {
        if !holds {
            self.broken.push(format!("{promise}: {offender}"));
        }
    }
}

pub async fn check(mesh: &Mesh, said: &[SentMessage]) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    let mut admin = PgConnection::connect(&mesh.admin_url()).await?;
    for (promise, query) in BROKEN {
        let offenders: Vec<String> = sqlx::query_scalar(query).fetch_all(&mut admin).await?;
        // A few tell as much as all.
        for offender in offenders.iter().take(5) {
            findings.ensure(false, promise, offender);
        }
        if offenders.len() > 5 {
            findings.ensure(false, promise, format!("{} more", offenders.len() - 5));
        }
    }
    let inbox = Inbox::read(&mut admin).await?;
    accepted(&mut findings, said, &inbox);
    poison(&mut findings, said, &inbox);
    keyed(&mut findings, mesh, &mut admin).await?;
    plain(&mut findings, mesh, &mut admin).await?;
    once(&mut findings, mesh, &mut admin).await?;
    acts(&mut findings, mesh, &mut admin).await?;
    for complaint in mesh.fakes.complaints.all() {
        findings.ensure(false, "I10 a model sees its tenant's messages only", complaint);
    }
    for violation in mesh.fakes.model.violations() {
        findings.ensure(false, "a model's calls and their results pair up", violation);
    }
    Ok(findings)
}

/// Entries and messages of the sessions that the broken promises name, by a session, a run or the id
/// of a message.
pub async fn journals_of(mesh: &Mesh, broken: &[String]) -> anyhow::Result<Vec<String>> {
    // What happened from shortly before the messages were accepted until their ends.
    const SQL: &str = "
        with named as (
            select i.session_id, min(i.accepted_at) - interval '5 seconds' as first,
                   max(coalesce(i.finished_at, now())) + interval '5 seconds' as last
            from session.inbox i
            where split_part(i.body->>'text', ' ', 1) = any($1) or i.session_id::text = any($1)
               or i.run_id::text = any($1)
            group by i.session_id limit 5)
        select line from (
            select session_id, e.created_at as at, e.seq as place,
                   session_id::text || ' entry ' || e.seq || ', epoch ' || e.epoch || ', '
                   || e.created_at::time(3) || ', run ' || e.run_id || ' ' || e.kind || ' '
                   || left(e.body::text, 300) as line
            from session.entries e join named using (session_id)
            where e.created_at between first and last
            union all
            select session_id, i.accepted_at, i.seq,
                   session_id::text || ' message ' || i.seq || ' ' || i.message_id || ' at '
                   || i.accepted_at::time(3) || ', ended ' || coalesce(i.finished_at::time(3)::text, '-')
                   || ' by run ' || coalesce(i.run_id::text, '-') || ' ' || coalesce(i.outcome, '-')
                   || ' ' || left(i.body->>'text', 100)
            from session.inbox i join named using (session_id)
            where i.accepted_at between first and last
            limit 300) lines
        order by session_id, at, place";

    let words = |text: &String| -> Vec<String> {
        let of = |c: char| !c.is_ascii_alphanumeric() && c != '-';
        text.split(of).filter(|word| word.len() >= 9).map(str::to_owned).collect()
    };
    let named: Vec<String> = broken.iter().flat_map(words).collect();
    let mut admin = PgConnection::connect(&mesh.admin_url()).await?;
    Ok(sqlx::query_scalar(SQL).bind(&named).fetch_all(&mut admin).await?)
}

/// What the tables say of each message, by the id in its text.
struct Inbox(HashMap<String, Row>);

struct Row {
    message: String,
    state: String,
    outcome: String,
    reason: String,
    times: String,
}

impl Inbox {
    async fn read(admin: &mut PgConnection) -> sqlx::Result<Self> {
        const SQL: &str = "
            select split_part(body->>'text', ' ', 1), replace(message_id::text, '-', ''), state,
                   coalesce(outcome, ''), coalesce(reason, ''),
                   coalesce('accepted ' || accepted_at::time(0) || ', ended ' || finished_at::time(0)
                            || ', ' || source || ' ' || mode, '')
            from session.inbox where body->>'text' ~ '^t[0-9]+m[0-9]{6} '";
        let rows: Vec<(String, String, String, String, String, String)> =
            sqlx::query_as(SQL).fetch_all(admin).await?;
        let row = |(id, message, state, outcome, reason, times)| {
            (id, Row { message, state, outcome, reason, times })
        };
        Ok(Self(rows.into_iter().map(row).collect()))
    }
}

fn accepted(findings: &mut Findings, said: &[SentMessage], inbox: &Inbox) {
    for said in said {
        let Some(row) = inbox.0.get(&said.id) else {
            let removed =
                said.retention == MessageRetention::Removed || said.door == TestChannel::Discord;
            findings.ensure(removed, "I1 what was accepted is there", &said.id);
            continue;
        };
        if let Some(message) = &said.message {
            let same = *message == format!("msg_{}", row.message);
            findings.ensure(same, "I2 every sender is told of the same message", &said.id);
        }
        let ok = matches!(row.outcome.as_str(), "completed" | "interrupted" | "cancelled" | "dead");
        let how = format!("{} is {}: {}", said.id, row.outcome, row.reason);
        findings.ensure(ok, "no message fails, since its model never does", how);
    }
    let extra = inbox.0.len().saturating_sub(said.len());
    findings.ensure(extra == 0, "I2 nothing is stored that nobody said", extra);
    findings.count("messages accepted", said.len());
    for (name, door) in [
        ("messages by gRPC", TestChannel::Grpc),
        ("messages by webhook", TestChannel::Webhook),
        ("messages by Telegram", TestChannel::Telegram),
        ("messages by Matrix", TestChannel::Matrix),
        ("messages by Slack", TestChannel::Slack),
        ("messages by Discord", TestChannel::Discord),
        ("messages by e-mail", TestChannel::Email),
    ] {
        findings.count(name, said.iter().filter(|said| said.door == door).count());
    }
    findings.count("copies sent", said.iter().map(|said| said.copies).sum());
    for (name, outcome) in [
        ("messages completed", "completed"),
        ("messages interrupted", "interrupted"),
        ("messages dead", "dead"),
    ] {
        findings.count(name, inbox.0.values().filter(|row| row.outcome == outcome).count());
    }
    for said in said.iter().filter(|said| said.word != MessageKind::Poison) {
        let dead = inbox.0.get(&said.id).filter(|row| row.state == "dead");
        findings.collateral.extend(dead.map(|row| format!("{} {}", said.id, row.times)));
    }
}

/// I8: poison dies, and only poison is bound to.
fn poison(findings: &mut Findings, said: &[SentMessage], inbox: &Inbox) {
    let all: Vec<&SentMessage> =
        said.iter().filter(|said| said.word == MessageKind::Poison).collect();
    for said in &all {
        let Some(row) = inbox.0.get(&said.id) else { continue };
        let how = format!("{} is {}, {}: {}", said.id, row.state, row.outcome, row.reason);
        let ended = row.state == "dead" && row.reason.contains("5 attempts");
        // Newer input may end its turn before it has killed its fifth runner.
        findings.ensure(
            ended || row.outcome == "interrupted",
            "I8 poison leaves after 5 attempts",
            how,
        );
    }
    findings.count("poison messages", all.len());
}

/// I4 on a channel that takes a key: each reply arrives exactly once.
async fn keyed(
    findings: &mut Findings,
    mesh: &Mesh,
    admin: &mut PgConnection,
) -> anyhow::Result<()> {
    const SQL: &str = "
        select 'dlv_' || replace(delivery_id::text, '-', ''), body
        from session.deliveries
        where channel = 'webhook' and coalesce(act->>'act', '') <> 'close'";
    let sent: HashMap<String, String> =
        sqlx::query_as::<_, (String, String)>(SQL).fetch_all(admin).await?.into_iter().collect();
    let unique = mesh.fakes.receiver.unique();
    let mut seen = HashSet::new();
    let mut texts = HashSet::new();
    for post in &unique {
        let key = post.key().unwrap_or("no key").to_owned();
        let text = post.json()["text"].as_str().unwrap_or_default().to_owned();
        let known = sent.get(&key).is_some_and(|body| body == &text);
        findings.ensure(known, "I4 what arrives was stored as a reply", format!("{key} `{text}`"));
        // What tells a sender that a message was given up is the same each time.
        let new = ids(&text).is_empty() || texts.insert(text.clone());
        findings.ensure(new, "I4 a reply arrives once", &text);
        seen.insert(key);
    }
    for (key, text) in &sent {
        findings.ensure(seen.contains(key), "I4 a reply to a keyed channel arrives", text);
    }
    findings.count("replies to a keyed channel", sent.len());
    findings
        .count("posts to a keyed channel, repetitions included", mesh.fakes.receiver.posts().len());
    Ok(())
}

/// I4 on a channel that takes none: each reply arrives at most once, and what is flagged `sent`
/// did.
async fn plain(
    findings: &mut Findings,
    mesh: &Mesh,
    admin: &mut PgConnection,
) -> anyhow::Result<()> {
    const SQL: &str = "select body, state from session.deliveries where channel = 'telegram'";
    let stored: Vec<(String, String)> = sqlx::query_as(SQL).fetch_all(admin).await?;
    let mut arrived: HashMap<String, usize> = HashMap::new();
    for sent in mesh.fakes.telegram.sends() {
        *arrived.entry(sent.text).or_default() += 1;
    }
    let mut unknown = 0;
    for (text, state) in stored.iter().filter(|(text, _)| !ids(text).is_empty()) {
        let times = arrived.remove(text).unwrap_or(0);
        findings.ensure(
            times <= 1,
            "I4 a reply arrives at most once",
            format!("`{text}` {times} times"),
        );
        let lied = state == "sent" && times != 1;
        findings.ensure(!lied, "I4 what is `sent` has arrived", text);
        unknown += usize::from(state == "unknown");
    }
    for text in arrived.keys().filter(|text| !ids(text).is_empty()) {
        findings.ensure(false, "I4 what arrives was stored as a reply", text);
    }
    findings.count("replies to a plain channel", stored.len());
    findings.count("of those unknown", unknown);
    Ok(())
}

/// I4 on channels whose platform has keys or can be asked: each reply arrives exactly once.
async fn once(
    findings: &mut Findings,
    mesh: &Mesh,
    admin: &mut PgConnection,
) -> anyhow::Result<()> {
    const SQL: &str = "
        select channel, target->>'chat', body from session.deliveries
        where channel in ('matrix', 'slack', 'discord', 'email') and act is null";
    let Some(platforms) = &mesh.fakes.platforms else { return Ok(()) };
    let stored: Vec<(String, String, String)> = sqlx::query_as(SQL).fetch_all(admin).await?;
    let mut arrived: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    for (_, channel, chat, text) in platforms.heard() {
        *arrived.entry((channel.to_owned(), chat, text)).or_default() += 1;
    }
    // What tells a sender that a message was given up is the same each time.
    for reply in stored.iter().filter(|(_, _, text)| !ids(text).is_empty()) {
        let times = arrived.remove(reply).unwrap_or_default();
        let what = format!("{reply:?} {times} times");
        findings.ensure(
            times == 1,
            "I4 a reply to a keyed or reconcilable platform arrives exactly once",
            what,
        );
    }
    for reply in arrived.keys().filter(|(_, _, text)| !ids(text).is_empty()) {
        findings.ensure(false, "I4 what arrives was stored as a reply", format!("{reply:?}"));
    }
    for (what, channel) in [
        ("replies to Matrix", "matrix"),
        ("replies to Slack", "slack"),
        ("replies to Discord", "discord"),
        ("replies by e-mail", "email"),
    ] {
        findings.count(what, stored.iter().filter(|(of, _, _)| of == channel).count());
    }
    Ok(())
}

/// I6: what acts on the world does so at most once, and at least once if it says so.
async fn acts(
    findings: &mut Findings,
    mesh: &Mesh,
    admin: &mut PgConnection,
) -> anyhow::Result<()> {
    const SQL: &str = "
        select c->>'input', coalesce((b.body->>'failed')::boolean, false)
        from session.entries t, jsonb_array_elements(t.body->'calls') c
        join session.entries b on b.kind = 'returned' and b.body->>'call' = c->>'id'
        where t.kind = 'thought' and c->>'tool' = 'act' and b.session_id = t.session_id";
    let returned: Vec<(String, bool)> = sqlx::query_as(SQL).fetch_all(admin).await?;
    let mut done: HashMap<String, usize> = HashMap::new();
    for post in mesh.fakes.world.posts() {
        *done.entry(post.json()["key"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    let deeds: HashSet<String> = mesh
        .fakes
        .world
        .posts()
        .iter()
        .map(|post| post.json()["id"].as_str().unwrap_or_default().to_owned())
        .collect();
    for (key, times) in &done {
        findings.ensure(
            *times == 1,
            "I6 an act is done at most once",
            format!("{key} {times} times"),
        );
    }
    let mut unknown = 0;
    for (input, failed) in &returned {
        let id = ids(input).pop().unwrap_or_default();
        findings.ensure(*failed || deeds.contains(&id), "I6 what is said to be done was done", &id);
        unknown += usize::from(*failed);
    }
    findings.count("acts on the world", done.len());
    findings.count("acts that returned", returned.len());
    findings.count("of those unknown to the model", unknown);
    Ok(())
}
