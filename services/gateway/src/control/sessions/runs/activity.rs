//! Activities of sessions: a list, and a stream of the same list after each change.

use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _, stream, stream::BoxStream};
use holdfast_bus::{Subject, Subscription};
use holdfast_proto::gateway::v1::{
    self as pb, ListActivityRequest, ListActivityResponse, WatchActivityRequest,
    WatchActivityResponse,
};
use holdfast_session::{Activity, ActivityFilter, Doing};
use holdfast_types::{SessionId, TenantId, Wait};
use jiff::Timestamp;
use tokio::time::{Instant, sleep, timeout};
use tonic::Status;

use super::super::{convert, paging};
use crate::{
    Error,
    control::{AgentNames, State, non_empty, page_size, timestamp},
};

const DEFAULT_PAGE_SIZE: u32 = 100;
const MAX_PAGE_SIZE: u32 = 200;

/// Activities of a list if the request names none: sessions that work, or wait for the mesh or a
/// decision.
const DEFAULT_ACTIVITIES: [Doing; 5] =
    [Doing::Thinking, Doing::Calling, Doing::WaitingApproval, Doing::Queued, Doing::WaitingEvent];

/// Minimum time between two responses of a stream.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Time after which the list is read although no process has told of a change.
const MAX_INTERVAL: Duration = Duration::from_secs(3);

/// Time after which an unchanged list is sent again.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Time after which a stream ends.
const MAX_STREAM_TIME: Duration = Duration::from_secs(3_600);

pub(super) async fn list(
    state: &State,
    tenant: TenantId,
    request: ListActivityRequest,
) -> Result<ListActivityResponse, Error> {
    let most = page_size(request.limit, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)?;
    let after = paging::parse_token(request.page_token, |token| token.parse().ok())?;
    let filter = filter(state, tenant, (request.agent, &request.doing), (most, after)).await?;

    let (activities, more) = read(state, tenant, filter).await?;

    let last = activities.last().filter(|_| more).and_then(|one| one.session.as_ref());
    let next_page_token = last.map(|session| session.id.clone()).unwrap_or_default();
    let at = Some(timestamp(Timestamp::now()));
    Ok(ListActivityResponse { activities, next_page_token, at })
}

/// State of a stream of lists.
struct Watch {
    state: State,
    tenant: TenantId,
    filter: ActivityFilter,
    /// Deltas of all sessions of the tenant; `None` without NATS: the list is then read regularly.
    changes: Option<Subscription>,
    sent: Option<(Instant, Vec<pb::Activity>)>,
    until: Instant,
}

pub(super) async fn watch(
    state: &State,
    tenant: TenantId,
    request: WatchActivityRequest,
) -> Result<BoxStream<'static, Result<WatchActivityResponse, Status>>, Error> {
    let most = page_size(request.limit, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)?;
    let filter = filter(state, tenant, (request.agent, &request.doing), (most, None)).await?;
    let changes = state.bus.subscribe(&Subject::tenant_deltas(tenant)).await.ok();
    let until = Instant::now() + MAX_STREAM_TIME;
    let watch = Watch { state: state.clone(), tenant, filter, changes, sent: None, until };
    let responses = stream::unfold(watch, |mut watch| async move {
        let next = watch.next().await?;
        Some((next.map_err(Status::from), watch))
    });
    Ok(responses.boxed())
}

impl Watch {
    /// The next list that differs from the one before; `None` at the end.
    async fn next(&mut self) -> Option<Result<WatchActivityResponse, Error>> {
        loop {
            if self.sent.is_some() {
                self.wait().await;
            }
            if Instant::now() >= self.until {
                return None;
            }
            let (activities, is_cut) =
                match read(&self.state, self.tenant, self.filter.clone()).await {
                    Ok(read) => read,
                    Err(error) => return Some(Err(error)),
                };
            if let Some((at, sent)) = &self.sent
                && *sent == activities
                && at.elapsed() < KEEP_ALIVE
            {
                continue;
            }
            self.sent = Some((Instant::now(), activities.clone()));
            let at = Some(timestamp(Timestamp::now()));
            return Some(Ok(WatchActivityResponse { activities, is_cut, at }));
        }
    }

    /// Waits until something may have changed.
    async fn wait(&mut self) {
        sleep(MIN_INTERVAL).await;
        let Some(changes) = &mut self.changes else {
            return sleep(MAX_INTERVAL - MIN_INTERVAL).await;
        };
        let mut is_changed = false;
        while changes.next().now_or_never().flatten().is_some() {
            is_changed = true;
        }
        if !is_changed {
            let _: Result<_, _> = timeout(MAX_INTERVAL - MIN_INTERVAL, changes.next()).await;
        }
    }
}

async fn filter(
    state: &State,
    tenant: TenantId,
    (agent, doing): (String, &[String]),
    (most, after): (i64, Option<SessionId>),
) -> Result<ActivityFilter, Error> {
    let agent = match non_empty(agent) {
        Some(agent) => Some(state.directory.agents().get(tenant, &agent).await?.id),
        None => None,
    };
    let parse = |word: &String| {
        Doing::parse(word).ok_or_else(|| Error::UnknownValue {
            field: "doing",
            given: word.chars().take(80).collect(),
            wanted: "thinking, calling, waiting_approval, queued, waiting_message, waiting_event or \
                     paused",
        })
    };
    let doing = match doing {
        [] => DEFAULT_ACTIVITIES.to_vec(),
        words => words.iter().map(parse).collect::<Result<_, _>>()?,
    };
    Ok(ActivityFilter { agent, doing, limit: most, after })
}

/// A page, and whether there are more.
async fn read(
    state: &State,
    tenant: TenantId,
    filter: ActivityFilter,
) -> Result<(Vec<pb::Activity>, bool), Error> {
    let most = filter.limit;
    let filter = ActivityFilter { limit: most + 1, ..filter };
    let found = state.sessions.views().activities(tenant, filter).await?;
    let names = state.agent_names(tenant).await?;
    let (page, more) = paging::split_page(found, most);
    let now = Timestamp::now();
    Ok((page.into_iter().map(|one| shown(one, &names, now)).collect(), more))
}

fn shown(one: Activity, names: &AgentNames, now: Timestamp) -> pb::Activity {
    let note = match one.wait {
        Some(Wait::Message { note, .. }) => note,
        Some(Wait::Event { filter, note, .. }) => match note.is_empty() {
            true => filter.event.unwrap_or_default(),
            false => note,
        },
        Some(Wait::Anything) | None => String::new(),
    };
    pb::Activity {
        session: Some(convert::with_short_summary(convert::session(one.session, names, now))),
        doing: one.doing.as_str().to_owned(),
        since: Some(timestamp(one.since)),
        run_id: one.run.map(|run| run.to_string()).unwrap_or_default(),
        step: one.step,
        tools: one.tools,
        behavior: one.behavior.unwrap_or_default(),
        runner_id: one.runner.map(|runner| runner.to_string()).unwrap_or_default(),
        attempt: one.attempts,
        note,
        message: one.message,
        until: one.wait_until.map(timestamp),
    }
}
