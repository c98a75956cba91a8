//! The shipped verbs make the transitions of the model: its walks are repeated against a database, and
//! every result and every row must be the same.
//!
//! `HOLDFAST_SEED` repeats one random walk.

use std::{collections::HashMap, time::Duration};

use anyhow::Context as _;
use holdfast_session::{
    Claim, Completion, Delivery, Error, LoadedSession, MAX_ATTEMPTS, NewDelivery, SendCapacity,
    SendResult, Sessions, StepWrite,
};
use holdfast_types::{DeliveryClass, DeliveryId, Entry as JournalEntry, RunId, RunnerId, Target};
use sqlx::{AssertSqlSafe, PgConnection};
use stateright::Model as _;
use uuid::Uuid;

use crate::{
    model::{
        Action, Answer, Channel, ClaimName, DeliveryName, DeliveryState, Entry, LeaseState,
        MessageName, MessageState, Outcome, Protocol, Rules, SHIPPED, State,
    },
    world::{Tenant, World, completion, thought},
};

/// Tables that the standby has, those that others refer to first.
const TABLES: [&str; 7] =
    ["sessions", "session_lease", "inbox", "entries", "runs", "deliveries", "tenant_flight"];

/// Longer than any walk: leases expire only by the model's action.
const LEASE: Duration = Duration::from_secs(3600);

const WALKS: u64 = 12;
const STEPS_PER_WALK: usize = 80;

const WALKED: Protocol = Protocol {
    rules: Rules { max_attempts: MAX_ATTEMPTS, replies: true, ..SHIPPED },
    runners: 2,
    bridges: 2,
    messages: 3,
    max_epoch: 1000,
    max_entries: 1000,
    max_sends: 1000,
    max_failovers: 1,
};

#[tokio::test]
async fn the_shipped_protocol_does_what_the_model_does() -> anyhow::Result<()> {
    let world = World::start().await?;
    let own: Option<u64> = std::env::var("HOLDFAST_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in own.map_or(0..WALKS, |seed| seed..seed + 1) {
        let channel = if seed % 2 == 0 { Channel::Keyed } else { Channel::Plain };
        let mut random = seed;
        let mut replay = Replay::start(&world, channel).await?;
        for _ in 0..STEPS_PER_WALK {
            let mut actions = Vec::new();
            replay.protocol.actions(&replay.state, &mut actions);
            let choice = usize::try_from(next_random(&mut random) % 1_000_003)? % actions.len();
            replay.step(actions[choice]).await.with_context(|| format!("HOLDFAST_SEED={seed}"))?;
        }
        replay.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_write_of_a_lost_timeline_is_refused_though_its_epoch_is_given_again()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let mut replay = Replay::start(&world, Channel::Keyed).await?;
    let outcomes = replay
        .run(&[
            Action::Ingest { key: 0 },
            Action::Replicate,
            Action::Claim { runner: 0, answer: Answer::Received },
            Action::Load { runner: 0 },
            Action::FailOver,
            Action::Claim { runner: 1, answer: Answer::Received },
            Action::Append { runner: 0, answer: Answer::Received },
        ])
        .await?;
    assert_eq!(outcomes.last(), Some(&Outcome::Fenced));
    Ok(())
}

#[tokio::test]
async fn a_message_in_the_place_of_a_lost_one_is_not_finished_unread() -> anyhow::Result<()> {
    let world = World::start().await?;
    for last in [
        Action::Append { runner: 0, answer: Answer::Received },
        Action::Complete { runner: 0, answer: Answer::Received },
    ] {
        let mut replay = Replay::start(&world, Channel::Keyed).await?;
        let outcomes = replay
            .run(&[
                Action::Ingest { key: 0 },
                Action::Claim { runner: 0, answer: Answer::Received },
                Action::Replicate,
                Action::Ingest { key: 1 },
                Action::Load { runner: 0 },
                Action::FailOver,
                Action::Ingest { key: 2 },
                last,
                Action::Load { runner: 0 },
                Action::Complete { runner: 0, answer: Answer::Received },
            ])
            .await?;
        assert_eq!(outcomes[7], Outcome::JournalMoved);
        assert_eq!(outcomes[9], Outcome::Ended { again: false });
        replay.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_model_and_the_shipped_protocol_give_up_the_same_message() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut replay = Replay::start(&world, Channel::Plain).await?;
    let attempt =
        [Action::Claim { runner: 0, answer: Answer::Lost }, Action::ExpireLease, Action::Sweep];
    replay.run(&[Action::Ingest { key: 0 }, Action::Ingest { key: 1 }]).await?;
    let mut last = None;
    for _ in 0..MAX_ATTEMPTS {
        last = replay.run(&attempt).await?.pop();
    }
    assert_eq!(last, Some(Outcome::Swept { orphaned: 0, dead: 1 }));
    Ok(())
}

/// SplitMix64.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A runner's process.
struct Runner {
    id: RunnerId,
    sessions: Sessions,
    claim: Option<Claim>,
    loaded: Option<LoadedSession>,
}

/// A walk of the model, repeated against a session of the database.
struct Replay<'w> {
    protocol: Protocol,
    state: State,
    world: &'w World,
    tenant: Tenant<'w>,
    target: Target,
    class: DeliveryClass,
    runners: Vec<Runner>,
    bridges: Vec<(RunnerId, Option<Delivery>)>,
    messages: HashMap<Uuid, MessageName>,
    admin: PgConnection,
}

/// The rows of a session, as far as the model has them.
#[derive(Debug, PartialEq)]
struct Rows {
    state: LeaseState,
    epoch: i64,
    owner: Option<usize>,
    lease_expired: bool,
    attempts: i32,
    finished: usize,
    inbox: Vec<(MessageName, MessageState)>,
    entries: Vec<Entry>,
    /// The message after which a reply is named; `None` for a dead letter.
    deliveries: Vec<(Option<MessageName>, DeliveryState, i32)>,
}

impl<'w> Replay<'w> {
    async fn start(world: &'w World, channel: Channel) -> anyhow::Result<Self> {
        let protocol = Protocol { rules: Rules { channel, ..WALKED.rules }, ..WALKED };
        let tenant = world.tenant();
        let target = Target { channel: tenant.id.as_uuid().to_string(), ..tenant.target() };
        let runner = || -> anyhow::Result<Runner> {
            let sessions = Sessions::new(world.pools()?).with_lease(LEASE);
            Ok(Runner { id: RunnerId::generate(), sessions, claim: None, loaded: None })
        };
        let mut replay = Self {
            state: protocol.init_states().remove(0),
            world,
            tenant,
            target,
            class: match channel {
                Channel::Keyed => {
                    DeliveryClass::Keyed { window: std::time::Duration::from_secs(86_400) }
                }
                Channel::Plain => DeliveryClass::Plain,
            },
            runners: (0..protocol.runners).map(|_| runner()).collect::<Result<_, _>>()?,
            bridges: (0..protocol.bridges).map(|_| (RunnerId::generate(), None)).collect(),
            messages: HashMap::new(),
            admin: world.admin_connection().await?,
            protocol,
        };
        // The session exists from the beginning, so that a failover does not lose it.
        tenant.say("s", "first", "hello").await?;
        replay
            .admin(
                "delete from session.inbox where tenant_id = '$T';
                 delete from session.tenant_flight where tenant_id = '$T';
                 update session.session_lease
                 set state = 'WAIT', next_in = 1, fair_key = null, ready_at = null
                 where tenant_id = '$T'",
            )
            .await?;
        replay.replicate().await?;
        Ok(replay)
    }

    /// Removes the session, which the next walk's runners would claim.
    async fn end(mut self) -> anyhow::Result<()> {
        self.admin("delete from session.sessions where tenant_id = '$T'").await
    }

    async fn run(&mut self, actions: &[Action]) -> anyhow::Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for action in actions {
            outcomes.push(self.step(*action).await?);
        }
        Ok(outcomes)
    }

    /// Performs an action in the model and in the database, and compares them.
    async fn step(&mut self, action: Action) -> anyhow::Result<Outcome> {
        let (next, expected) = self.protocol.rules.step(&self.state, action);
        let outcome = self.perform(action).await.with_context(|| format!("{action:?}"))?;
        if let (Action::Ingest { .. }, Outcome::Accepted { place, .. }) = (action, &expected) {
            let id = self.newest_message(*place).await?;
            self.messages.insert(id, next.primary.inbox[*place].name);
        }
        assert_eq!(outcome, expected, "{action:?} after {:?}", self.state);
        let stored = self.stored().await?;
        assert_eq!(stored, rows_of(&next), "{action:?} after {:?}", self.state);
        self.state = next;
        Ok(outcome)
    }

    async fn perform(&mut self, action: Action) -> anyhow::Result<Outcome> {
        match action {
            Action::Ingest { key } => {
                let mut message = self.tenant.message("s", &key.to_string(), &key.to_string());
                message.target = Some(self.target.clone());
                let accepted = self.world.sessions.ingest(self.tenant.id, message).await?;
                let place = usize::try_from(accepted.seq - 1)?;
                return Ok(Outcome::Accepted { place, duplicate: accepted.duplicate });
            }
            Action::Claim { runner, answer } => return self.claim(runner, answer).await,
            Action::Load { runner } => return self.load(runner).await,
            Action::Append { runner, answer } => return self.append(runner, answer).await,
            Action::Complete { runner, answer } => return self.complete(runner, answer).await,
            Action::Release { runner } => {
                let Runner { sessions, claim, .. } = &mut self.runners[runner];
                let claim = claim.take().context("no claim")?;
                return refused(sessions.release(&claim).await, |()| Outcome::Written);
            }
            Action::Renew { runner } => return self.renew(runner).await,
            Action::ClaimDelivery { bridge, answer } => {
                return self.claim_delivery(bridge, answer).await;
            }
            Action::Sweep => {
                let swept = self.world.sweep().await?;
                // The model has no backoff.
                self.admin(
                    "update session.session_lease set ready_at = clock_timestamp()
                     where tenant_id = '$T' and state = 'READY'",
                )
                .await?;
                return Ok(Outcome::Swept { orphaned: swept.orphaned, dead: swept.dead });
            }
            Action::RecordSent { bridge, answer } => {
                let result = SendResult::Sent { platform_id: "m1".to_owned() };
                return self.record(bridge, result, answer).await;
            }
            Action::RecordRetry { bridge } => {
                let reason = "not reached".to_owned();
                let result = SendResult::Retry { after: Duration::ZERO, reason };
                return self.record(bridge, result, Answer::Received).await;
            }
            Action::CrashRunner { runner } => self.runners[runner].claim = None,
            Action::CrashBridge { bridge } => self.bridges[bridge].1 = None,
            Action::Send { .. } => {}
            Action::ExpireLease => self.expire("session_lease", "RUNNING").await?,
            Action::ExpireSends => self.expire("deliveries", "sending").await?,
            Action::Replicate => self.replicate().await?,
            Action::FailOver => self.fail_over().await?,
        }
        Ok(Outcome::Nothing)
    }

    async fn claim(&mut self, runner: usize, answer: Answer) -> anyhow::Result<Outcome> {
        let process = &mut self.runners[runner];
        let Some(claim) = process.sessions.claim(process.id, 1).await?.pop() else {
            return Ok(Outcome::NoneReady);
        };
        let outcome = Outcome::Claimed { epoch: claim.epoch, attempts: claim.attempts };
        process.claim = (answer == Answer::Received).then_some(claim);
        process.loaded = None;
        Ok(outcome)
    }

    async fn load(&mut self, runner: usize) -> anyhow::Result<Outcome> {
        let process = &mut self.runners[runner];
        let claim = process.claim.clone().context("no claim")?;
        let loaded = match process.sessions.load(&claim, 100).await {
            Ok(loaded) => loaded,
            Err(error) => {
                process.claim = None;
                return refused(Err(error), |()| Outcome::Nothing);
            }
        };
        let mut waiting = Vec::new();
        for row in &loaded.waiting {
            let state = if row.seen { MessageState::Seen } else { MessageState::New };
            waiting.push((usize::try_from(row.seq - 1)?, row.body.text.parse()?, state));
        }
        let entries =
            loaded.entries.iter().map(|(.., entry)| entry_of(entry)).collect::<Result<_, _>>()?;
        process.loaded = Some(loaded);
        Ok(Outcome::Loaded { waiting, entries })
    }

    /// Name of the claim that a runner writes with.
    fn claim_name(&self, runner: usize) -> anyhow::Result<String> {
        let held = self.state.runners[runner].as_ref().context("no claim")?;
        let ClaimName { epoch, owner, timeline } = held.claim;
        Ok(format!("{epoch} {owner} {timeline}"))
    }

    async fn append(&mut self, runner: usize, answer: Answer) -> anyhow::Result<Outcome> {
        let name = self.claim_name(runner)?;
        let process = &mut self.runners[runner];
        let (claim, loaded) = process.read()?;
        let write = StepWrite {
            run: Some(run_of(loaded)),
            at: Some(loaded.next_entry),
            newest: loaded.waiting.last().map(|row| (row.seq, row.message)),
            entries: vec![thought(&name)],
            seen: loaded.waiting.iter().map(|row| row.seq).collect(),
            ..StepWrite::default()
        };
        let written = process.sessions.append(&claim, write).await;
        match (&written, &mut process.loaded) {
            (Ok(signals), Some(loaded)) if answer == Answer::Received => {
                loaded.next_entry = signals.next_entry;
            }
            _ => process.loaded = None,
        }
        process.drop_if_fenced(&written);
        refused(written, |_| Outcome::Written)
    }

    async fn complete(&mut self, runner: usize, answer: Answer) -> anyhow::Result<Outcome> {
        let name = self.claim_name(runner)?;
        let target = self.target.clone();
        let process = &mut self.runners[runner];
        let (claim, loaded) = process.read()?;
        let run = run_of(loaded);
        let id = DeliveryId::from(run.as_uuid());
        let end = Completion {
            at: Some(loaded.next_entry),
            newest: loaded.waiting.last().map(|row| (row.seq, row.message)),
            entries: vec![thought(&name)],
            done: loaded.waiting.iter().map(|row| row.seq).collect(),
            deliveries: vec![NewDelivery {
                target,
                text: "reply".to_owned(),
                act: None,
                id,
                delay: Duration::ZERO,
            }],
            ..completion(run)
        };
        let ended = process.sessions.complete(&claim, end).await;
        process.loaded = None;
        if ended.is_ok() && answer == Answer::Received {
            process.claim = None;
        }
        process.drop_if_fenced(&ended);
        refused(ended, |ended| Outcome::Ended { again: ended.again })
    }

    async fn renew(&mut self, runner: usize) -> anyhow::Result<Outcome> {
        let process = &mut self.runners[runner];
        let claim = process.claim.clone().context("no claim")?;
        let renewed = process.sessions.renew(process.id, &[claim]).await?;
        if renewed.renewed.is_empty() {
            process.claim = None;
            return Ok(Outcome::Fenced);
        }
        Ok(Outcome::Renewed)
    }

    async fn claim_delivery(&mut self, bridge: usize, answer: Answer) -> anyhow::Result<Outcome> {
        let (id, sending) = &mut self.bridges[bridge];
        let deliveries = self.world.sessions.deliveries();
        let capacity = SendCapacity::slots(1);
        let mut due = deliveries.claim(&self.target.channel, self.class, *id, &capacity).await?;
        let Some(delivery) = due.pop() else { return Ok(Outcome::NoneReady) };
        let place = usize::try_from(delivery.out_seq - 1)?;
        let attempt = delivery.attempt;
        *sending = (answer == Answer::Received).then_some(delivery);
        Ok(Outcome::Sending { place, attempt })
    }

    async fn record(
        &mut self,
        bridge: usize,
        result: SendResult,
        answer: Answer,
    ) -> anyhow::Result<Outcome> {
        let (id, sending) = &mut self.bridges[bridge];
        let delivery = sending.clone().context("nothing is being sent")?;
        self.world.sessions.deliveries().record_result(&delivery, *id, result).await?;
        if answer == Answer::Received {
            *sending = None;
        }
        Ok(Outcome::Recorded)
    }

    /// Runs statements as the owner; `$T` is the tenant's id.
    async fn admin(&mut self, sql: &str) -> anyhow::Result<()> {
        let sql = sql.replace("$T", &self.tenant.id.as_uuid().to_string());
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.admin).await?;
        Ok(())
    }

    async fn expire(&mut self, table: &str, state: &str) -> anyhow::Result<()> {
        self.admin(&format!(
            "update session.{table} set lease_until = clock_timestamp() - interval '1 s'
             where tenant_id = '$T' and state = '{state}'"
        ))
        .await
    }

    async fn replicate(&mut self) -> anyhow::Result<()> {
        let copies = TABLES.map(|table| {
            format!(
                "create table if not exists standby.{table} (like session.{table});
                 delete from standby.{table} where tenant_id = '$T';
                 insert into standby.{table} select * from session.{table} where tenant_id = '$T';"
            )
        });
        self.admin(&format!("create schema if not exists standby; {}", copies.concat())).await
    }

    /// Puts the standby's rows in the place of the primary's.
    async fn fail_over(&mut self) -> anyhow::Result<()> {
        let removed =
            TABLES.map(|table| format!("delete from session.{table} where tenant_id = '$T';"));
        // Triggers count the sessions that are inserted.
        let restored = TABLES.map(|table| {
            let counted = match table {
                "tenant_flight" => "delete from session.tenant_flight where tenant_id = '$T';",
                _ => "",
            };
            format!(
                "{counted} insert into session.{table} select * from standby.{table} where tenant_id = '$T';"
            )
        });
        self.admin(&format!("{}{}", removed.concat(), restored.concat())).await
    }

    async fn newest_message(&mut self, place: usize) -> anyhow::Result<Uuid> {
        const SQL: &str = "select message_id from session.inbox where tenant_id = $1 and seq = $2";
        let seq = i64::try_from(place + 1)?;
        let tenant = self.tenant.id.as_uuid();
        Ok(sqlx::query_scalar(SQL).bind(tenant).bind(seq).fetch_one(&mut self.admin).await?)
    }

    /// Reads the rows, and checks that the lease row's counters agree with them.
    async fn stored(&mut self) -> anyhow::Result<Rows> {
        const LEASE: &str = "
            select state, epoch, owner, coalesce(lease_until < clock_timestamp(), false), attempts,
                   next_in, done_in, next_out, next_entry
            from session.session_lease where tenant_id = $1";
        const INBOX: &str =
            "select message_id, state from session.inbox where tenant_id = $1 order by seq";
        const ENTRIES: &str = "select body from session.entries where tenant_id = $1 order by seq";
        const DELIVERIES: &str = "
            select delivery_id, state, owner, coalesce(lease_until < clock_timestamp(), false), attempt
            from session.deliveries where tenant_id = $1 order by out_seq";
        type LeaseRow = (String, i64, Option<Uuid>, bool, i32, i64, i64, i64, i64);
        type DeliveryRow = (Uuid, String, Option<Uuid>, bool, i32);

        let tenant = self.tenant.id.as_uuid();
        let lease: LeaseRow = sqlx::query_as(LEASE).bind(tenant).fetch_one(&mut self.admin).await?;
        let inbox: Vec<(Uuid, String)> =
            sqlx::query_as(INBOX).bind(tenant).fetch_all(&mut self.admin).await?;
        let bodies: Vec<sqlx::types::Json<JournalEntry>> =
            sqlx::query_scalar(ENTRIES).bind(tenant).fetch_all(&mut self.admin).await?;
        let sends: Vec<DeliveryRow> =
            sqlx::query_as(DELIVERIES).bind(tenant).fetch_all(&mut self.admin).await?;

        let (state, epoch, owner, lease_expired, attempts, next_in, done_in, next_out, next_entry) =
            lease;
        let counters = [inbox.len(), sends.len(), bodies.len()].map(|count| count as i64 + 1);
        assert_eq!([next_in, next_out, next_entry], counters);
        let owner = self.runners.iter().position(|runner| Some(runner.id.as_uuid()) == owner);
        let mut deliveries = Vec::new();
        for (id, state, owner, expired, attempt) in sends {
            let sender = self.bridges.iter().position(|(id, _)| Some(id.as_uuid()) == owner);
            let state = match (state.as_str(), sender) {
                ("sending", Some(owner)) => DeliveryState::Sending { owner, expired },
                ("pending", _) => DeliveryState::Pending,
                ("sent", _) => DeliveryState::Sent,
                ("unknown", _) => DeliveryState::Unknown,
                other => anyhow::bail!("{other:?}"),
            };
            deliveries.push((self.messages.get(&id).copied(), state, attempt));
        }
        Ok(Rows {
            state: match state.as_str() {
                "READY" => LeaseState::Ready,
                "RUNNING" => LeaseState::Running,
                _ => LeaseState::Idle,
            },
            epoch,
            owner,
            lease_expired,
            attempts,
            finished: usize::try_from(done_in)?,
            inbox: inbox
                .iter()
                .map(|(id, state)| (self.messages[id], message_state(state)))
                .collect(),
            entries: bodies.iter().map(|body| entry_of(body)).collect::<Result<_, _>>()?,
            deliveries,
        })
    }
}

impl Runner {
    /// The claim, and the session as it was read.
    fn read(&self) -> anyhow::Result<(Claim, &LoadedSession)> {
        let claim = self.claim.clone().context("no claim")?;
        Ok((claim, self.loaded.as_ref().context("the session was not read")?))
    }

    fn drop_if_fenced<T>(&mut self, written: &Result<T, Error>) {
        if written.as_ref().is_err_and(Error::is_fenced) {
            self.claim = None;
        }
    }
}

fn run_of(loaded: &LoadedSession) -> RunId {
    loaded.waiting.first().map_or_else(RunId::generate, |row| row.message.into())
}

/// Result of a verb that can be refused.
fn refused<T>(
    result: Result<T, Error>,
    done: impl FnOnce(T) -> Outcome,
) -> anyhow::Result<Outcome> {
    match result {
        Ok(value) => Ok(done(value)),
        Err(error) if error.is_fenced() => Ok(Outcome::Fenced),
        Err(Error::JournalMoved) => Ok(Outcome::JournalMoved),
        Err(other) => Err(other.into()),
    }
}

fn message_state(state: &str) -> MessageState {
    match state {
        "new" => MessageState::New,
        "seen" => MessageState::Seen,
        "done" => MessageState::Done,
        _ => MessageState::Dead,
    }
}

fn entry_of(entry: &JournalEntry) -> anyhow::Result<Entry> {
    let JournalEntry::Thought { text, .. } = entry else { return Ok(Entry::GivenUp) };
    let [epoch, owner, timeline] = text.split(' ').collect::<Vec<_>>()[..] else {
        anyhow::bail!("`{text}` is not a claim's name")
    };
    let (epoch, owner, timeline) = (epoch.parse()?, owner.parse()?, timeline.parse()?);
    Ok(Entry::Thought(ClaimName { epoch, owner, timeline }))
}

/// The rows of a state of the model.
fn rows_of(state: &State) -> Rows {
    let row = &state.primary;
    Rows {
        state: row.state,
        epoch: row.epoch,
        owner: row.owner,
        lease_expired: row.lease_expired,
        attempts: row.attempts,
        finished: row.inbox.len() - row.unfinished().count(),
        inbox: row.inbox.iter().map(|message| (message.name, message.state)).collect(),
        entries: row.entries.clone(),
        deliveries: row
            .deliveries
            .iter()
            .map(|delivery| {
                let name = match delivery.name {
                    DeliveryName::Reply(message) => Some(message),
                    DeliveryName::DeadLetter(_) => None,
                };
                (name, delivery.state, delivery.attempt)
            })
            .collect(),
    }
}
