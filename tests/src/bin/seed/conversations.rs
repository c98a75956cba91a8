//! Conversations of a month: whose they are, when their turns were, and what came of them.

use holdfast_types::{
    Body, CallRecord, Effect, Entry, Media, ModelRecord, Note, Sender, SessionId, ToolCall, Usage,
};
use jiff::{SignedDuration, Timestamp};
use rand::{RngExt as _, rngs::StdRng};
use uuid::{Builder, Uuid};

use crate::{
    Amounts, content,
    settings::{Account, Agent},
    tables::{DeadLetter, Delivery, EntryRow, Run, Session, Tables},
};

const MINUTES_PER_MONTH: i64 = 30 * 24 * 60;
/// Models with the price of a thousand tokens, in millionths of a US dollar.
const MODELS: &[(&str, u64)] =
    &[("scripted:one", 900), ("scripted:large", 4_000), ("scripted:fast", 150)];
/// Share of turns with tool calls, and of turns that fail.
const CALLS_SHARE: f64 = 0.15;
const FAILURES_SHARE: f64 = 0.02;
/// Share of conversations that somebody has pinned.
const PINNED_SHARE: f64 = 0.002;
const LONG_TITLE: &str = "The long conversation";

/// What was written.
#[derive(Debug)]
pub struct Written {
    /// Sessions that programs work with, each with its key and its agent.
    pub sessions: Vec<(Uuid, String, Uuid)>,
    /// Id of the longest session.
    pub long_session: String,
}

#[derive(Debug)]
pub struct Conversations<'a> {
    agents: &'a [Agent],
    accounts: &'a [Account],
    random: &'a mut StdRng,
    now: Timestamp,
}

/// Where a conversation is held.
struct Place {
    key: String,
    kind: &'static str,
    channel: Option<(Account, String)>,
    person: &'static str,
}

impl<'a> Conversations<'a> {
    pub fn new(agents: &'a [Agent], accounts: &'a [Account], random: &'a mut StdRng) -> Self {
        Self { agents, accounts, random, now: Timestamp::now() }
    }

    pub async fn write(
        mut self,
        tables: &mut Tables<'_>,
        amounts: &Amounts,
    ) -> anyhow::Result<Written> {
        let mut sessions = Vec::new();
        for number in 0..amounts.conversations {
            let agent = self.agents[number % self.agents.len()].clone();
            let place = self.place(&agent, number);
            let turns = self.random.random_range(4..=16);
            let ago = self.minutes_ago(number);
            let topic = content::topic(self.random);
            let title = topic.title(self.random);
            let is_for_programs = place.kind == "api";
            let session =
                self.conversation(tables, &agent, &place, (topic, title), (turns, ago))?;
            if is_for_programs {
                sessions.push((session, place.key.clone(), agent.id));
            }
            self.failures(tables, &place, session, (number, amounts))?;
            tables.write_batch().await?;
        }
        let long = self.long(tables, amounts.long_turns).await?;
        tables.write().await?;
        Ok(Written { sessions, long_session: SessionId::from(long).to_string() })
    }

    /// A conversation with more entries than anybody reads.
    async fn long(&mut self, tables: &mut Tables<'_>, turns: usize) -> anyhow::Result<Uuid> {
        let agent = self.agents[0].clone();
        let key = format!("agent:{}:api:long", agent.name);
        let place = Place { key, kind: "api", channel: None, person: "Anna Lindqvist" };
        let topic = content::topic(self.random);
        let session = self.id(self.now)?;
        let begun = self.ago(MINUTES_PER_MONTH);
        let step = (self.now.duration_since(begun).as_millis() - 60_000) / turns as i128;
        let mut row = session_row(session, &place, &agent, LONG_TITLE.to_owned(), begun);
        row.updated_at = self.now;
        for turn in 0..turns {
            let at = begun + SignedDuration::from_millis(i64::try_from(step * turn as i128)?);
            self.turn(tables, &mut row, &place, topic, (turn, at))?;
            // The session's row has to exist for none of the others.
            tables.write_batch().await?;
        }
        tables.sessions.push(row);
        Ok(session)
    }

    fn conversation(
        &mut self,
        tables: &mut Tables<'_>,
        agent: &Agent,
        place: &Place,
        (topic, title): (&'static content::Topic, String),
        (turns, ago): (usize, i64),
    ) -> anyhow::Result<Uuid> {
        let mut minutes = ago;
        let created = self.ago(minutes);
        let session = self.id(created)?;
        let mut row = session_row(session, place, agent, title, created);
        row.is_pinned = self.random.random_bool(PINNED_SHARE);
        if self.random.random_bool(0.3) {
            row.summary = format!("{}: {turns} turns, nothing is open.", row.label);
        }
        for turn in 0..turns {
            let at = self.ago(minutes);
            self.turn(tables, &mut row, place, topic, (turn, at))?;
            let left = minutes / i64::try_from(turns - turn)?;
            minutes -= self.random.random_range(0..=left.max(1)).min(minutes - 1).max(0);
        }
        tables.sessions.push(row);
        Ok(session)
    }

    fn turn(
        &mut self,
        tables: &mut Tables<'_>,
        session: &mut Session,
        place: &Place,
        topic: &content::Topic,
        (turn, at): (usize, Timestamp),
    ) -> anyhow::Result<()> {
        let run = self.id(at)?;
        let (question, answer) = topic.turn(self.random, turn);
        let (model, price) = *content::pick(self.random, MODELS);
        let fails = self.random.random_bool(FAILURES_SHARE);
        let calls = !fails && self.random.random_bool(CALLS_SHARE);
        session.turns += 1;
        let mut journal = Journal { session, run, at, model, usage: Usage::default(), tables };
        let sender = place
            .channel
            .as_ref()
            .map(|(_, chat)| Sender { id: chat.clone(), name: place.person.to_owned() });
        let seq = journal.session.turns;
        journal.add(Entry::Heard { seq, body: Body { sender, ..Body::text(question) } }, 0);
        if calls {
            self.tool_call(&mut journal, turn);
        }
        let used = Usage {
            input: self.random.random_range(800..12_000),
            cached: self.random.random_range(0..800),
            output: self.random.random_range(40..900),
            ..Usage::default()
        };
        let reason = fails.then(|| (*content::pick(self.random, content::FAILURES)).to_owned());
        match &reason {
            Some(reason) => journal.add(Entry::noted(Note::Failed, reason), 2_500),
            None => journal.think(answer.clone(), Vec::new(), used),
        }
        let (finished_at, usage) = (journal.at, journal.usage);
        let row = Run {
            id: run,
            session: session.id,
            agent: session.agent,
            outcome: if fails { "failed" } else { "completed" },
            reason,
            reply_seq: session.entries,
            steps: if calls { 2 } else { 1 },
            model,
            usage,
            cost_micros: i64::try_from((usage.input + 4 * usage.output) * price / 1_000)?,
            started_at: at,
            finished_at,
        };
        session.usage += usage;
        session.updated_at = finished_at;
        tables.runs.push(row);
        if let Some((account, chat)) = place.channel.as_ref().filter(|_| !fails) {
            let sent = (account, chat.as_str(), answer);
            let delivery = self.delivery(session.id, session.turns, run, sent, finished_at)?;
            tables.deliveries.push(delivery);
        }
        Ok(())
    }

    /// A thought with a call, and its result.
    fn tool_call(&mut self, journal: &mut Journal<'_, '_>, turn: usize) {
        let (tool, input, output) = *content::pick(self.random, content::CALLS);
        let call = format!("call_{turn}");
        let made = ToolCall { id: call.clone(), tool: tool.to_owned(), input: input.to_owned() };
        let used = Usage { input: 1_200, cached: 400, output: 60, ..Usage::default() };
        journal.think("I look it up.".to_owned(), vec![made], used);
        let effect = if tool == "exec" { Effect::Acts } else { Effect::Reads };
        journal.add(Entry::Called { call: call.clone(), effect }, 20);
        let failed = self.random.random_bool(0.1);
        let took = self.random.random_range(30..4_000);
        let record = CallRecord {
            started_at_ms: journal.at.as_millisecond(),
            took_ms: took,
            ..CallRecord::default()
        };
        let output = if failed { "it ended with status 1: no such file" } else { output };
        let returned = Entry::Returned {
            call,
            output: output.to_owned(),
            failed,
            media: Media::default(),
            record,
        };
        journal.add(returned, i64::try_from(took).unwrap_or(0));
    }

    fn delivery(
        &mut self,
        session: Uuid,
        seq: i64,
        run: Uuid,
        (account, chat, text): (&Account, &str, String),
        at: Timestamp,
    ) -> anyhow::Result<Delivery> {
        Ok(Delivery {
            id: self.id(at)?,
            session,
            seq,
            run,
            channel: account.channel.clone(),
            account: account.id,
            chat: chat.to_owned(),
            text,
            state: "sent",
            reason: None,
            at,
        })
    }

    /// Dead letters and failed deliveries, a few each.
    fn failures(
        &mut self,
        tables: &mut Tables<'_>,
        place: &Place,
        session: Uuid,
        (number, amounts): (usize, &Amounts),
    ) -> anyhow::Result<()> {
        let every = amounts.conversations / amounts.dead_letters;
        if number.is_multiple_of(every) {
            let at = self.ago(i64::try_from(number)? + 5);
            let (text, _) = content::topic(self.random).turn(self.random, number);
            let reason = "the runner ended five times while it was answered".to_owned();
            // The session had its messages before; this one is behind them.
            let Some(row) = tables.sessions.last_mut().filter(|row| row.id == session) else {
                return Ok(());
            };
            row.turns += 1;
            let seq = row.turns;
            let id = self.id(at)?;
            tables.dead_letters.push(DeadLetter { id, session, seq, text, reason, at });
        }
        let every = amounts.conversations / amounts.failed_deliveries;
        if place.channel.is_some() && number % every < 4 {
            let (state, reason) = match number % 2 {
                0 => ("dead", "403: the bot was blocked by the user"),
                _ => ("unknown", "the connection ended before the platform answered"),
            };
            let of_session = tables.deliveries.iter_mut().filter(|one| one.session == session);
            if let Some(last) = of_session.last() {
                last.state = state;
                last.reason = Some(reason.to_owned());
            }
        }
        Ok(())
    }

    fn place(&mut self, agent: &Agent, number: usize) -> Place {
        let person = content::person(self.random);
        let (name, place) = (&agent.name, number % 10);
        let account = self.accounts[number % self.accounts.len()].clone();
        let chat = format!("{}", 10_000 + number);
        let channel = account.channel.clone();
        match place {
            0..=4 => Place {
                key: format!("agent:{name}:api:{number}"),
                kind: "api",
                channel: None,
                person,
            },
            5..=7 => Place {
                key: format!("agent:{name}:dm:{channel}:{chat}"),
                kind: "dm",
                channel: Some((account, chat)),
                person,
            },
            8 => Place {
                key: format!("agent:{name}:group:{channel}:{chat}"),
                kind: "group",
                channel: Some((account, chat)),
                person,
            },
            _ => Place {
                key: format!("agent:{name}:cron:news:{number}"),
                kind: "cron",
                channel: None,
                person,
            },
        }
    }

    /// When a conversation began: more of them lately.
    fn minutes_ago(&mut self, number: usize) -> i64 {
        let most = if number.is_multiple_of(3) { 3 * 24 * 60 } else { MINUTES_PER_MONTH };
        self.random.random_range(30..most)
    }

    fn ago(&self, minutes: i64) -> Timestamp {
        self.now - SignedDuration::from_mins(minutes)
    }

    /// An id as of this time, so that newer ones are greater.
    fn id(&mut self, at: Timestamp) -> anyhow::Result<Uuid> {
        let millis = u64::try_from(at.as_millisecond())?;
        Ok(Builder::from_unix_timestamp_millis(millis, &self.random.random()).into_uuid())
    }
}

/// A turn that is being written.
struct Journal<'a, 'b> {
    session: &'a mut Session,
    run: Uuid,
    at: Timestamp,
    model: &'static str,
    usage: Usage,
    tables: &'a mut Tables<'b>,
}

impl Journal<'_, '_> {
    /// Adds an entry so many milliseconds after the one before.
    fn add(&mut self, entry: Entry, after: i64) {
        self.at += SignedDuration::from_millis(after);
        self.session.entries += 1;
        let (session, seq) = (self.session.id, self.session.entries);
        self.tables.entries.push(EntryRow { session, seq, run: self.run, entry, at: self.at });
    }

    fn think(&mut self, text: String, calls: Vec<ToolCall>, usage: Usage) {
        self.usage += usage;
        let took = 800 + 12 * i64::try_from(usage.output).unwrap_or(0);
        let model = self.model.to_owned();
        let stop = if calls.is_empty() { "end" } else { "tool_use" };
        let record = ModelRecord {
            started_at_ms: self.at.as_millisecond(),
            took_ms: took.unsigned_abs(),
            first_piece_ms: 600,
            attempts: 1,
            failed: Vec::new(),
            failures: Vec::new(),
            cost_micros: usage.input + 4 * usage.output,
            runner: None,
            trace: String::new(),
            stop: stop.to_owned(),
        };
        let record = Some(Box::new(record));
        self.add(Entry::Thought { text, calls, usage, model, carry: None, record }, took);
    }
}

fn session_row(
    id: Uuid,
    place: &Place,
    agent: &Agent,
    label: String,
    created_at: Timestamp,
) -> Session {
    Session {
        id,
        key: place.key.clone(),
        kind: place.kind,
        agent: agent.id,
        label,
        is_pinned: false,
        summary: String::new(),
        created_at,
        updated_at: created_at,
        turns: 0,
        entries: 0,
        usage: Usage::default(),
    }
}
