//! Conversion of outbox rows to events.
//!
//! A transaction of a turn writes as little as possible there: the ids. What an event has besides
//! is read here, for a whole batch at once. If a row is gone meanwhile, with its session, the event
//! lacks these fields.

use std::collections::HashMap;

use holdfast_pg::Connection;
use holdfast_types::{AccountId, AgentId, DeliveryId, MessageId, RunId, SessionId, TenantId};
use jiff::Timestamp;
use serde_json::Value;
use sqlx::{FromRow, types::Json};
use uuid::Uuid;

use super::{Event, EventData, NewEvent};
use crate::Error;

/// Takes rows from the outbox. Returns their number and the events that they tell of.
pub(super) async fn take(conn: &mut Connection, limit: i64) -> Result<(u64, Vec<NewEvent>), Error> {
    // The version before deletes rows of session.events when it has published them; a trigger moves
    // those to session.relayed_events.
    const SQL: &str = "
        with taken as (
            delete from session.events where event_id = any(array(
                select event_id from session.events order by event_id limit $1))
            returning *),
        relayed as (
            delete from session.relayed_events where event_id = any(array(
                select event_id from session.relayed_events order by event_id limit $1))
            returning *)
        select tenant_id, family, session_id, name, payload, created_at
        from (select * from taken union all select * from relayed) rows order by event_id";

    let rows: Vec<Row> = holdfast_pg::query_as(SQL).bind(limit).fetch_all(&mut *conn).await?;
    if rows.is_empty() {
        return Ok((0, Vec::new()));
    }
    let details = Details::load(conn, &rows).await?;
    let events = rows.iter().flat_map(|row| details.events(row)).collect();
    Ok((rows.len() as u64, events))
}

#[derive(FromRow)]
struct Row {
    tenant_id: Uuid,
    family: String,
    session_id: Uuid,
    name: String,
    payload: Json<Value>,
    created_at: jiff_sqlx::Timestamp,
}

impl Row {
    fn text(&self, field: &str) -> Option<&str> {
        self.payload.get(field)?.as_str()
    }

    fn string(&self, field: &str) -> String {
        self.text(field).unwrap_or_default().to_owned()
    }

    fn number(&self, field: &str) -> i64 {
        self.payload.get(field).and_then(Value::as_i64).unwrap_or_default()
    }

    /// A UUID as Postgres writes it.
    fn uuid(&self, field: &str) -> Uuid {
        self.text(field).and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    fn run(&self) -> RunId {
        self.uuid("run").into()
    }

    /// `seq` of the messages that the row is about.
    fn seqs(&self) -> Vec<i64> {
        let many = self.payload.get("messages").and_then(Value::as_array);
        let one = self.payload.get("seq").and_then(Value::as_i64);
        many.into_iter().flatten().filter_map(Value::as_i64).chain(one).collect()
    }
}

#[derive(FromRow)]
struct RunRow {
    run_id: Uuid,
    replied: bool,
    model: String,
    input_tokens: i64,
    cached_tokens: i64,
    output_tokens: i64,
    cost_micros: i64,
    messages: i32,
    started_at: jiff_sqlx::Timestamp,
}

#[derive(FromRow)]
struct DeliveryRow {
    delivery_id: Uuid,
    run_id: Uuid,
    account_id: Uuid,
    channel: String,
}

/// Rows of a batch's messages, runs, deliveries and sessions.
#[derive(Default)]
struct Details {
    agents: HashMap<Uuid, AgentId>,
    /// Id and source, by session and `seq`.
    messages: HashMap<(Uuid, i64), (MessageId, String)>,
    runs: HashMap<Uuid, RunRow>,
    /// `seq` of the messages of runs whose row does not have them.
    seqs_of_run: HashMap<Uuid, Vec<i64>>,
    deliveries: HashMap<Uuid, DeliveryRow>,
    /// Kind of channel, by the text of the account's id.
    channels: HashMap<String, String>,
}

impl Details {
    async fn load(conn: &mut Connection, rows: &[Row]) -> Result<Self, Error> {
        const AGENTS: &str = "
            select s.session_id, s.agent_id
            from (select distinct * from unnest($1::uuid[], $2::uuid[]) k (tenant_id, session_id)) k
            join session.sessions s
                on s.tenant_id = k.tenant_id and s.session_id = k.session_id";
        const RUNS: &str = "
            select r.run_id, r.reply_seq is not null as replied, r.model, r.input_tokens,
                   r.cached_tokens, r.output_tokens, r.cost_micros, r.messages, r.started_at
            from unnest($1::uuid[], $2::uuid[]) k (tenant_id, run_id)
            join session.runs r on r.tenant_id = k.tenant_id and r.run_id = k.run_id";
        const DELIVERIES: &str = "
            select d.delivery_id, d.run_id, d.account_id, d.channel
            from unnest($1::uuid[], $2::uuid[]) k (tenant_id, delivery_id)
            join session.deliveries d
                on d.tenant_id = k.tenant_id and d.delivery_id = k.delivery_id";

        let keys = |name: &str, field: &str| -> (Vec<Uuid>, Vec<Uuid>) {
            let wanted = rows.iter().filter(|row| row.name == name);
            wanted.map(|row| (row.tenant_id, row.uuid(field))).unzip()
        };
        let mut details = Self::default();
        let agents: Vec<(Uuid, Uuid)> = holdfast_pg::query_as(AGENTS)
            .bind(rows.iter().map(|row| row.tenant_id).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.session_id).collect::<Vec<_>>())
            .fetch_all(&mut *conn)
            .await?;
        details.agents.extend(agents.into_iter().map(|(session, agent)| (session, agent.into())));
        let (tenants, runs) = {
            let (mut finished, died) = (keys("RunFinished", "run"), keys("MessageDied", "run"));
            finished.0.extend(died.0);
            finished.1.extend(died.1);
            finished
        };
        if !runs.is_empty() {
            let found: Vec<RunRow> =
                holdfast_pg::query_as(RUNS).bind(tenants).bind(runs).fetch_all(&mut *conn).await?;
            details.runs.extend(found.into_iter().map(|row| (row.run_id, row)));
        }
        let (tenants, deliveries) = keys("DeliverySettled", "delivery");
        if !deliveries.is_empty() {
            let found: Vec<DeliveryRow> = holdfast_pg::query_as(DELIVERIES)
                .bind(tenants)
                .bind(deliveries)
                .fetch_all(&mut *conn)
                .await?;
            details.deliveries.extend(found.into_iter().map(|row| (row.delivery_id, row)));
        }
        details.load_messages(conn, rows).await?;
        Ok(details)
    }

    async fn load_messages(&mut self, conn: &mut Connection, rows: &[Row]) -> Result<(), Error> {
        const MESSAGES: &str = "
            select i.session_id, i.seq, i.message_id, i.source
            from unnest($1::uuid[], $2::uuid[], $3::bigint[]) k (tenant_id, session_id, seq)
            join session.inbox i
                on i.tenant_id = k.tenant_id and i.session_id = k.session_id and i.seq = k.seq";
        const CHANNELS: &str =
            "select account_id, channel from control.accounts where account_id = any($1)";

        let mut keys: (Vec<Uuid>, Vec<Uuid>, Vec<i64>) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            for seq in row.seqs() {
                keys.0.push(row.tenant_id);
                keys.1.push(row.session_id);
                keys.2.push(seq);
            }
        }
        let mut found: Vec<(Uuid, i64, Uuid, String)> = Vec::new();
        if !keys.0.is_empty() {
            let query = holdfast_pg::query_as(MESSAGES).bind(keys.0).bind(keys.1).bind(keys.2);
            found = query.fetch_all(&mut *conn).await?;
        }
        found.extend(self.load_messages_of_runs(&mut *conn, rows).await?);
        let mut accounts: Vec<Uuid> = Vec::new();
        for (session, seq, message, source) in found {
            accounts.extend(source.parse::<AccountId>().ok().map(AccountId::as_uuid));
            self.messages.insert((session, seq), (message.into(), source));
        }
        if !accounts.is_empty() {
            let channels: Vec<(Uuid, String)> =
                holdfast_pg::query_as(CHANNELS).bind(accounts).fetch_all(conn).await?;
            let by_source =
                channels.into_iter().map(|(id, kind)| (AccountId::from(id).to_string(), kind));
            self.channels.extend(by_source);
        }
        Ok(())
    }

    /// Returns the messages of runs whose rows do not name them: a runner of the version before this
    /// one has written those.
    async fn load_messages_of_runs(
        &mut self,
        conn: &mut Connection,
        rows: &[Row],
    ) -> Result<Vec<(Uuid, i64, Uuid, String)>, Error> {
        const SQL: &str = "
            select i.session_id, i.seq, i.message_id, i.source, i.run_id
            from unnest($1::uuid[], $2::uuid[], $3::uuid[]) k (tenant_id, session_id, run_id)
            join session.inbox i on i.tenant_id = k.tenant_id and i.session_id = k.session_id
                 and i.run_id = k.run_id
            order by i.seq";
        let old: Vec<&Row> = rows
            .iter()
            .filter(|row| row.name == "RunFinished" && row.payload.get("messages").is_none())
            .collect();
        if old.is_empty() {
            return Ok(Vec::new());
        }
        let found: Vec<(Uuid, i64, Uuid, String, Uuid)> = holdfast_pg::query_as(SQL)
            .bind(old.iter().map(|row| row.tenant_id).collect::<Vec<_>>())
            .bind(old.iter().map(|row| row.session_id).collect::<Vec<_>>())
            .bind(old.iter().map(|row| row.run().as_uuid()).collect::<Vec<_>>())
            .fetch_all(conn)
            .await?;
        let mut messages = Vec::new();
        for (session, seq, message, source, run) in found {
            self.seqs_of_run.entry(run).or_default().push(seq);
            messages.push((session, seq, message, source));
        }
        Ok(messages)
    }

    /// Returns the events that a row of the outbox tells of. Rows of a later version tell nothing.
    fn events(&self, row: &Row) -> Vec<NewEvent> {
        let at = row.created_at.to_jiff();
        match (row.family.as_str(), row.name.as_str()) {
            ("messages", "MessageAccepted") => {
                row.seqs().into_iter().map(|seq| self.accepted(row, seq)).collect()
            }
            ("messages", "MessageDied") => self.run_events(row, "dead"),
            ("messages", "MessageRejected") => {
                let seqs = row.seqs().into_iter();
                seqs.map(|seq| self.ended(row, seq, (row.run(), "failed"))).collect()
            }
            ("runs", _) => self.run_events(row, row.text("outcome").unwrap_or_default()),
            ("approvals", _) => vec![self.event(row, at, None, approval(row))],
            ("deliveries", _) => self.delivery(row).into_iter().collect(),
            ("people", "AccountsLinked") => {
                vec![self.event(row, at, None, EventData::AccountsLinked {})]
            }
            ("people", "AccountsUnlinked") => {
                vec![self.event(row, at, None, EventData::AccountsUnlinked {})]
            }
            ("todos", "TodoChanged") => {
                let data = EventData::TodoChanged {
                    todos: row.string("todos"),
                    changes: row.number("changes"),
                    by: row.string("by"),
                };
                vec![self.event(row, at, None, data)]
            }
            ("jobs" | "reminders", _) => {
                job(row).into_iter().map(|data| self.event(row, at, None, data)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn event(
        &self,
        row: &Row,
        at: Timestamp,
        channel: Option<String>,
        data: EventData,
    ) -> NewEvent {
        let session = (!row.session_id.is_nil()).then(|| SessionId::from(row.session_id));
        let agent = self.agents.get(&row.session_id).copied();
        let event: Event = data.into_event(at, (agent, session), channel);
        NewEvent { tenant: TenantId::from(row.tenant_id), event }
    }

    fn message(&self, row: &Row, seq: i64) -> (Option<MessageId>, Option<&str>) {
        let found = self.messages.get(&(row.session_id, seq));
        (found.map(|(id, _)| *id), found.map(|(_, source)| source.as_str()))
    }

    fn channel_of(&self, source: Option<&str>) -> Option<String> {
        source.and_then(|source| self.channels.get(source)).cloned()
    }

    fn accepted(&self, row: &Row, seq: i64) -> NewEvent {
        let (message, source) = self.message(row, seq);
        let data =
            EventData::MessageAccepted { seq, message, source: source.map(ToOwned::to_owned) };
        self.event(row, row.created_at.to_jiff(), self.channel_of(source), data)
    }

    fn ended(&self, row: &Row, seq: i64, (run, outcome): (RunId, &str)) -> NewEvent {
        let (message, source) = self.message(row, seq);
        let data = match outcome {
            "completed" => EventData::MessageAnswered { seq, message, run },
            outcome => EventData::MessageFailed { seq, message, run, outcome: outcome.to_owned() },
        };
        self.event(row, row.created_at.to_jiff(), self.channel_of(source), data)
    }

    /// A run stores nothing when it starts, so its start is logged with its end.
    fn run_events(&self, row: &Row, outcome: &str) -> Vec<NewEvent> {
        let (run, at) = (row.run(), row.created_at.to_jiff());
        let found = self.runs.get(&run.as_uuid());
        let started_at = found.map_or(at, |found| found.started_at.to_jiff());
        let mut told = vec![self.event(row, started_at, None, EventData::RunStarted { run })];
        let calls = row.payload.get("tools").and_then(Value::as_array);
        for called in calls.into_iter().flatten() {
            let part = |at: usize| called.get(at).and_then(Value::as_str).unwrap_or_default();
            let data =
                EventData::ToolCalled { run, call: part(0).to_owned(), tool: part(1).to_owned() };
            told.push(self.event(row, at, None, data));
        }
        let ended = EventData::RunEnded {
            run,
            outcome: outcome.to_owned(),
            steps: row.number("steps"),
            messages: found.map_or(0, |found| found.messages.into()),
            replied: found.is_some_and(|found| found.replied),
        };
        told.push(self.event(row, at, None, ended));
        if let Some(used) = found.filter(|found| !found.model.is_empty()) {
            let data = EventData::UsageRecorded {
                run,
                model: used.model.clone(),
                input_tokens: used.input_tokens,
                cached_tokens: used.cached_tokens,
                output_tokens: used.output_tokens,
                cost_micros: used.cost_micros,
            };
            told.push(self.event(row, at, None, data));
        }
        let seqs = match self.seqs_of_run.get(&run.as_uuid()) {
            Some(seqs) => seqs.clone(),
            None => row.seqs(),
        };
        told.extend(seqs.into_iter().map(|seq| self.ended(row, seq, (run, outcome))));
        told
    }

    fn delivery(&self, row: &Row) -> Option<NewEvent> {
        let found = self.deliveries.get(&row.uuid("delivery"))?;
        let (delivery, run) = (DeliveryId::from(found.delivery_id), RunId::from(found.run_id));
        let account = AccountId::from(found.account_id);
        let data = match row.text("state")? {
            "sent" => EventData::DeliverySent { delivery, run, account },
            "dead" => EventData::DeliveryDead { delivery, run, account },
            _ => EventData::DeliveryUnknown { delivery, run, account },
        };
        Some(self.event(row, row.created_at.to_jiff(), Some(found.channel.clone()), data))
    }
}

fn approval(row: &Row) -> EventData {
    let (approval, run) = (row.uuid("approval").into(), row.run());
    let (call, tool) = (row.string("call"), row.string("tool"));
    match row.text("state") {
        Some("pending") => EventData::ApprovalRequested { approval, run, call, tool },
        Some("expired") => EventData::ApprovalExpired { approval, run, call, tool },
        state => {
            let state = state.unwrap_or_default().to_owned();
            EventData::ApprovalDecided { approval, run, call, tool, state }
        }
    }
}

fn job(row: &Row) -> Option<EventData> {
    let (job, slot, reason) = (row.string("job"), row.string("slot"), row.string("reason"));
    if row.name == "reminder.failed" {
        let again = row.payload.get("again").and_then(Value::as_bool).unwrap_or_default();
        return Some(EventData::ReminderFailed { job, slot, reason, again });
    }
    let job = job.parse().ok()?;
    Some(match row.name.as_str() {
        "job.fired" => EventData::JobFired { job, slot },
        "job.succeeded" => EventData::JobSucceeded { job, slot },
        "job.skipped" => EventData::JobSkipped { job, slot, reason },
        _ => EventData::JobFailed { job, slot, reason },
    })
}
