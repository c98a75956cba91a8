//! The quiet tenant: turns, webhooks and jobs at a steady rate, and how long each part takes.

use std::{
    collections::HashMap,
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, ensure};
use holdfast_testkit::webhook::Post;
use holdfast_tests::clockwork::insert_jobs;
use holdfast_types::DeliveryId;
use jiff::Timestamp;
use serde_json::json;
use sqlx::PgConnection;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::neighbour::Neighbour;
use crate::{
    client::{Client, at_rate, unique_session},
    mesh::Mesh,
    models::Model,
    stats::Samples,
};

const TURNS_PER_SECOND: u32 = 4;
const WEBHOOKS_PER_SECOND: u32 = 3;
const JOBS_PER_SECOND: u32 = 2;
/// Conversations of the turns, and senders of the webhooks.
const CONVERSATIONS: usize = 6;
/// What takes longer is broken.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct QuietTenant {
    neighbour: Neighbour,
    client: Client,
    http: reqwest::Client,
    webhook_url: String,
}

/// How long each part of the work took.
#[derive(Debug)]
pub struct WaitTimes {
    /// From sending a message to the end of its stream.
    turns: Samples,
    /// From a post to its 2xx.
    webhooks: Samples,
    /// From the end of a turn to the request at the platform.
    deliveries: Samples,
    /// From the time of a job to the begin of its turn.
    wake_ups: Samples,
}

/// One part of the work.
type Part = fn(&WaitTimes) -> &Samples;

impl WaitTimes {
    pub const PARTS: [(Part, &'static str); 4] = [
        (|times| &times.turns, "turns"),
        (|times| &times.webhooks, "inbound webhooks"),
        (|times| &times.deliveries, "deliveries"),
        (|times| &times.wake_ups, "wake-ups"),
    ];
}

impl fmt::Display for WaitTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (part, name)) in Self::PARTS.into_iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            let tail = part(self).permille(950).as_secs_f64() * 1000.0;
            write!(f, "{separator}{name} p95 {tail:.1} ms")?;
        }
        Ok(())
    }
}

impl QuietTenant {
    pub async fn create(mesh: &Mesh, plan: Option<String>) -> anyhow::Result<Self> {
        let neighbour = Neighbour::create(mesh, "quiet", (plan, Model::Instant)).await?;
        Ok(Self {
            client: mesh.client(&neighbour.tenant)?,
            http: reqwest::Client::builder().tcp_nodelay(true).no_proxy().build()?,
            webhook_url: format!("http://{}/webhook/{}", mesh.bridge(), neighbour.webhook.id),
            neighbour,
        })
    }

    /// Works for so long, and waits until all of it is done.
    ///
    /// # Errors
    ///
    /// If a call is refused, or something is not done within a minute.
    pub async fn work(&self, mesh: &Mesh, time: Duration) -> anyhow::Result<WaitTimes> {
        let mut admin = mesh.admin().await?;
        let delivered_before = self.neighbour.receiver.unique().len();
        let jobs = self.add_jobs(&mut admin, time).await?;
        let (turns, webhooks) = tokio::try_join!(self.turns(time), self.post_webhooks(time))?;
        let deliveries = self.deliveries(&mut admin, (delivered_before, webhooks.count())).await?;
        let wake_ups = self.wake_ups(&mut admin, &jobs).await?;
        Ok(WaitTimes { turns, webhooks, deliveries, wake_ups })
    }

    async fn turns(&self, time: Duration) -> anyhow::Result<Samples> {
        let name = Arc::<str>::from(unique_session("quiet"));
        let turns = at_rate(TURNS_PER_SECOND, time, |nth| {
            let (client, name) = (self.client.clone(), Arc::clone(&name));
            async move {
                let session = format!("{name}-{}", nth % CONVERSATIONS);
                let turn = client.turn(nth, Model::Instant, &session).await.context("a turn")?;
                Ok(turn.done)
            }
        });
        Ok(turns.await?.into_iter().collect())
    }

    async fn post_webhooks(&self, time: Duration) -> anyhow::Result<Samples> {
        let posts = at_rate(WEBHOOKS_PER_SECOND, time, |nth| {
            let (http, url) = (self.http.clone(), self.webhook_url.clone());
            let webhook = self.neighbour.webhook.clone();
            async move {
                let sender = format!("person-{}", nth % CONVERSATIONS);
                let body = json!({ "sender": sender, "text": "Which train?" }).to_string();
                let mut request = http.post(url).timeout(TIMEOUT);
                for (name, value) in webhook.headers(&Uuid::now_v7().to_string(), &body)? {
                    request = request.header(name, value);
                }
                let begun = Instant::now();
                let status = request.body(body).send().await?.status();
                ensure!(status.is_success(), "a webhook was answered with {status}");
                Ok(begun.elapsed())
            }
        });
        Ok(posts.await?.into_iter().collect())
    }

    /// Adds jobs that are due one after the other for so long.
    async fn add_jobs(
        &self,
        admin: &mut PgConnection,
        time: Duration,
    ) -> anyhow::Result<Vec<Uuid>> {
        let first = Timestamp::now() + Duration::from_secs(1);
        let interval = Duration::from_secs(1) / JOBS_PER_SECOND;
        let count = u32::try_from(time.as_secs())? * JOBS_PER_SECOND;
        let at = |nth| {
            let time: Timestamp = first + interval * nth;
            Timestamp::from_millisecond(time.as_millisecond())
        };
        let times = (0..count).map(at).collect::<Result<Vec<_>, _>>()?;
        insert_jobs(admin, &[(self.neighbour.tenant.id, self.neighbour.agent)], &times).await
    }

    /// Of the replies after the first `before` ones.
    async fn deliveries(
        &self,
        admin: &mut PgConnection,
        (before, count): (usize, usize),
    ) -> anyhow::Result<Samples> {
        const ENDED: &str = "
            select d.delivery_id, (extract(epoch from r.finished_at) * 1000000)::bigint
            from session.deliveries d join session.runs r using (tenant_id, run_id)
            where d.tenant_id = $1 and d.delivery_id = any($2)";
        let begun = Instant::now();
        let mut posts = Vec::new();
        while posts.len() < count {
            let arrived = posts.len();
            ensure!(begun.elapsed() < TIMEOUT, "{arrived} of {count} replies were delivered");
            sleep(Duration::from_millis(100)).await;
            posts = self.neighbour.receiver.unique().split_off(before);
        }
        let arrivals: HashMap<Uuid, u64> =
            posts.iter().map(arrival).collect::<anyhow::Result<_>>()?;
        let ids: Vec<Uuid> = arrivals.keys().copied().collect();
        let ended: Vec<(Uuid, i64)> = sqlx::query_as(ENDED)
            .bind(self.neighbour.tenant.id.as_uuid())
            .bind(ids)
            .fetch_all(admin)
            .await?;
        let waits = ended.iter().map(|(id, ended)| {
            let arrived = arrivals.get(id).copied().unwrap_or_default();
            Duration::from_micros(arrived.saturating_sub(ended.unsigned_abs()))
        });
        Ok(waits.collect())
    }

    async fn wake_ups(&self, admin: &mut PgConnection, jobs: &[Uuid]) -> anyhow::Result<Samples> {
        const BEGUN: &str = "
            select (extract(epoch from r.started_at - l.slot_at) * 1000000)::bigint
            from schedule.runs l
            join session.runs r on r.tenant_id = l.tenant_id and r.run_id = l.run_id
            where l.tenant_id = $1 and l.job_id = any($2)";
        let begun = Instant::now();
        let mut waits: Vec<i64> = Vec::new();
        while waits.len() < jobs.len() {
            ensure!(begun.elapsed() < TIMEOUT, "{} of {} jobs ran", waits.len(), jobs.len());
            sleep(Duration::from_millis(200)).await;
            waits = sqlx::query_scalar(BEGUN)
                .bind(self.neighbour.tenant.id.as_uuid())
                .bind(jobs)
                .fetch_all(&mut *admin)
                .await?;
        }
        let micros = waits.into_iter().map(|micros| u64::try_from(micros).unwrap_or(0));
        Ok(micros.map(Duration::from_micros).collect())
    }
}

/// The delivery of a post, and when it arrived, in microseconds of Unix time.
fn arrival(post: &Post) -> anyhow::Result<(Uuid, u64)> {
    let id: DeliveryId = post.key().context("a post without a key")?.parse()?;
    let at = SystemTime::now() - post.at.elapsed();
    Ok((id.as_uuid(), u64::try_from(at.duration_since(UNIX_EPOCH)?.as_micros())?))
}
