//! The service `Mesh`: processes, queues, backends and alerts of the installation.
//!
//! Nothing is stored for it: processes are asked, and counts are read when an operator looks.

use std::time::Duration;

use holdfast_bus::ProcessReport;
use holdfast_lock::Locks;
use holdfast_pg::Pools;
use holdfast_proto::gateway::v1::{
    self as pb, GetMeshRequest, GetMeshResponse,
    mesh_server::{Mesh as Service, MeshServer},
};
use holdfast_schedule::store::DueJobs;
use holdfast_session::{MeshCounts, PoolGauges, WaitingSession};
use jiff::Timestamp;
use tokio::time::{Instant, timeout};
use tonic::{Request, Response, Status, service::Routes};

use super::{State, millis, timestamp};
use crate::Error;

/// Wait for processes to report.
const REPORT_TIMEOUT: Duration = Duration::from_millis(500);

/// Wait for a backend.
const BACKEND_TIMEOUT: Duration = Duration::from_secs(2);

/// Wait of a session from which on it is an alert.
const MAX_SESSION_WAIT: Duration = Duration::from_secs(60);

/// Implements `holdfast.gateway.v1.Mesh`.
#[derive(Debug)]
pub struct Mesh {
    pub state: State,
    pub pools: Pools,
    pub locks: Locks,
}

/// Adds the service to `routes`.
pub fn add_service(routes: Routes, mesh: Mesh, body_limit: usize) -> Routes {
    routes.add_service(MeshServer::new(mesh).max_decoding_message_size(body_limit))
}

#[tonic::async_trait]
impl Service for Mesh {
    async fn get_mesh(
        &self,
        request: Request<GetMeshRequest>,
    ) -> Result<Response<GetMeshResponse>, Status> {
        let (_, GetMeshRequest {}) = holdfast_grpc::caller(request)?;
        let sessions = &self.state.sessions;

        let (reports, backends, counts, pools, jobs) = tokio::join!(
            ProcessReport::of_all(&self.state.bus, REPORT_TIMEOUT),
            self.backends(),
            sessions.queues().mesh_counts(),
            sessions.runner_pools().gauges(),
            self.state.jobs.due_counts(),
        );

        // Without NATS nobody can be asked; its backend says so.
        let mut reports = reports.unwrap_or_default();
        reports.sort_by(|a, b| (&a.service, &a.id).cmp(&(&b.service, &b.id)));
        let (counts, pools) = (counts.map_err(Error::from)?, pools.map_err(Error::from)?);
        let queues = self.queues(&counts, jobs.map_err(Error::from)?).await;
        Ok(Response::new(GetMeshResponse {
            alerts: alerts(&reports, &counts, &pools),
            processes: reports.into_iter().map(process).collect(),
            queues,
            backends,
            pools: pools.into_iter().map(pool).collect(),
            at: Some(timestamp(Timestamp::now())),
        }))
    }
}

impl Mesh {
    async fn queues(&self, counts: &MeshCounts, jobs: DueJobs) -> Vec<pb::MeshQueue> {
        let mut queues = queues(counts, jobs);
        for queue in queues.iter_mut().filter(|queue| !queue.oldest_tenant.is_empty()) {
            // A tenant that was deleted since its work was counted keeps its id.
            if let Ok(found) = self.state.directory.tenants().get(&queue.oldest_tenant).await {
                queue.oldest_tenant = found.name;
            }
        }
        queues
    }

    async fn backends(&self) -> Vec<pb::MeshBackend> {
        let postgres = async {
            let began = Instant::now();
            let (version, bytes) = self.pools.server_status().await.map_err(|e| e.to_string())?;
            Ok((version, bytes, began.elapsed()))
        };
        let nats = async {
            let (version, took) =
                self.state.bus.server_status().await.map_err(|e| e.to_string())?;
            Ok((version, 0, took))
        };
        let redis = async {
            let began = Instant::now();
            let (version, bytes) = self.locks.server_status().await.map_err(|e| e.to_string())?;
            Ok((version, bytes, began.elapsed()))
        };
        let (postgres, nats, redis) = tokio::join!(
            backend("postgres", postgres),
            backend("nats", nats),
            backend("redis", redis)
        );
        vec![postgres, nats, redis]
    }
}

/// State of a backend: its version, its size in bytes, and the time of a round trip.
async fn backend(
    name: &str,
    asked: impl Future<Output = Result<(String, u64, Duration), String>>,
) -> pb::MeshBackend {
    let backend = pb::MeshBackend { name: name.to_owned(), ..pb::MeshBackend::default() };
    match timeout(BACKEND_TIMEOUT, asked).await {
        Ok(Ok((version, bytes, took))) => pb::MeshBackend {
            reachable: true,
            version,
            bytes,
            latency_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            ..backend
        },
        Ok(Err(error)) => pb::MeshBackend { error, ..backend },
        Err(_) => {
            let error = format!("no answer within {} s", BACKEND_TIMEOUT.as_secs());
            pb::MeshBackend { error, ..backend }
        }
    }
}

fn process(report: ProcessReport) -> pb::MeshProcess {
    let started_at = Timestamp::from_millisecond(report.started_at_ms).ok();
    pb::MeshProcess {
        service: report.service,
        id: report.id,
        version: report.version,
        started_at: started_at.map(timestamp),
        pool: report.pool,
        running: report.running,
        capacity: report.capacity,
        sandbox: report.sandbox,
        no_commands: report.no_commands,
        is_stopping: report.is_stopping,
    }
}

fn pool(gauges: PoolGauges) -> pb::MeshRunnerPool {
    pb::MeshRunnerPool {
        pool: gauges.pool,
        live_runners: gauges.live_runners,
        waiting_sessions: gauges.waiting_sessions,
    }
}

/// Queues, with ids of tenants in place of names.
fn queues(counts: &MeshCounts, jobs: DueJobs) -> Vec<pb::MeshQueue> {
    let queue = |name: &str, (waiting, running, dead), wait, of: Option<WaitingSession>| {
        let of = of.map(|oldest| (oldest.tenant.to_string(), oldest.session.to_string()));
        let (oldest_tenant, oldest_session) = of.unwrap_or_default();
        pb::MeshQueue {
            name: name.to_owned(),
            waiting,
            running,
            oldest_wait_ms: millis(wait),
            dead,
            oldest_tenant,
            oldest_session,
        }
    };
    let sessions = (counts.ready_sessions, counts.running_sessions, 0);
    let messages = (counts.waiting_messages, 0, counts.dead_messages);
    let deliveries = (counts.pending_deliveries, counts.sending_deliveries, counts.dead_deliveries);
    let due_jobs = pb::MeshQueue {
        oldest_tenant: jobs.oldest_of.map(|tenant| tenant.to_string()).unwrap_or_default(),
        ..queue("jobs", (jobs.count, 0, 0), jobs.oldest, None)
    };
    vec![
        queue("sessions", sessions, counts.oldest_ready, counts.oldest_ready_of),
        queue("messages", messages, counts.oldest_message, counts.oldest_message_of),
        queue("deliveries", deliveries, counts.oldest_delivery, counts.oldest_delivery_of),
        due_jobs,
    ]
}

/// Alert of the chart (`helm/holdfast/files/alerts.yaml`) that can be told from here.
struct Alert {
    name: &'static str,
    severity: &'static str,
    summary: &'static str,
    is_firing: bool,
    detail: String,
}

/// Alerts of the chart that only the metrics of all processes tell.
const OF_METRICS: [(&str, &str, &str); 11] = [
    ("HoldfastPodDown", "warning", "A pod of Holdfast does not answer."),
    ("HoldfastRequestsFail", "critical", "More than 5 % of the gateways' requests fail."),
    ("HoldfastRunnersLoseLeases", "warning", "Runners steadily lose their leases."),
    ("HoldfastRunnersCrash", "warning", "Sessions were taken over from runners that ended."),
    ("HoldfastTurnsBreak", "warning", "A turn ended with an error that the runner does not know."),
    ("HoldfastModelsFail", "warning", "More than a quarter of the requests to a provider fail."),
    ("HoldfastJobsLate", "warning", "One of a hundred jobs fires more than 30 s late."),
    (
        "HoldfastSecretsServiceAbsent",
        "critical",
        "No secrets service answers. Turns that need a secret wait.",
    ),
    (
        "HoldfastSecretsRefused",
        "warning",
        "A service asked for a secret that it may not open, or that does not open.",
    ),
    ("HoldfastBusDrops", "warning", "Messages of NATS are dropped. Answers are late."),
    ("HoldfastDatabaseReplaced", "critical", "Another server took the place of the database."),
];

fn alerts(
    reports: &[ProcessReport],
    counts: &MeshCounts,
    pools: &[PoolGauges],
) -> Vec<pb::MeshAlert> {
    let count = |service: &str| reports.iter().filter(|one| one.service == service).count();
    let (gateways, runners) = (count("gateway"), count("agent-runner"));
    let is_empty = |pool: &&PoolGauges| pool.live_runners == 0 && pool.waiting_sessions > 0;
    let empty: Vec<&str> = pools.iter().filter(is_empty).map(|pool| pool.pool.as_str()).collect();
    let computed = [
        Alert {
            name: "HoldfastGatewayAbsent",
            severity: "critical",
            summary: "No gateway answers.",
            is_firing: gateways == 0,
            detail: format!("{gateways} gateways"),
        },
        Alert {
            name: "HoldfastRunnersAbsent",
            severity: "critical",
            summary: "No runner answers. Messages are accepted and not answered.",
            is_firing: runners == 0,
            detail: format!("{runners} runners"),
        },
        Alert {
            name: "HoldfastRunnerPoolEmpty",
            severity: "critical",
            summary: "Sessions wait for a pool of runners in which none is alive.",
            is_firing: !empty.is_empty(),
            detail: empty.join(", "),
        },
        Alert {
            name: "HoldfastSessionsWait",
            severity: "warning",
            summary: "A session has waited for a runner for more than a minute.",
            is_firing: counts.oldest_ready > MAX_SESSION_WAIT,
            detail: format!("{} s", counts.oldest_ready.as_secs()),
        },
        Alert {
            name: "HoldfastDeadLetters",
            severity: "warning",
            summary: "A message was given up after five attempts.",
            is_firing: counts.new_dead_messages > 0,
            detail: format!("{} in 15 minutes", counts.new_dead_messages),
        },
        Alert {
            name: "HoldfastDeliveriesUnknown",
            severity: "warning",
            summary: "Nobody can tell whether a reply reached its platform.",
            is_firing: counts.new_unknown_deliveries > 0,
            detail: format!("{} in 15 minutes", counts.new_unknown_deliveries),
        },
        Alert {
            name: "HoldfastDeliveriesDead",
            severity: "warning",
            summary: "A reply could not be delivered and was given up.",
            is_firing: counts.new_dead_deliveries > 0,
            detail: format!("{} in 15 minutes", counts.new_dead_deliveries),
        },
    ];
    let computed = computed.into_iter().map(|alert| pb::MeshAlert {
        name: alert.name.to_owned(),
        severity: alert.severity.to_owned(),
        summary: alert.summary.to_owned(),
        state: if alert.is_firing { "firing" } else { "ok" }.to_owned(),
        detail: alert.detail,
    });
    let unknown = OF_METRICS.iter().map(|(name, severity, summary)| pb::MeshAlert {
        name: (*name).to_owned(),
        severity: (*severity).to_owned(),
        summary: (*summary).to_owned(),
        state: "unknown".to_owned(),
        detail: String::new(),
    });
    computed.chain(unknown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHART: &str = include_str!("../../../../../helm/holdfast/files/alerts.yaml");

    #[test]
    fn the_alerts_are_those_of_the_chart() {
        let names = CHART.lines().filter(|line| line.starts_with("Holdfast"));
        let mut chart: Vec<&str> = names.map(|line| line.trim_end_matches(':')).collect();
        chart.sort_unstable();

        let told = alerts(&[], &MeshCounts::default(), &[]);

        let mut named: Vec<&str> = told.iter().map(|alert| alert.name.as_str()).collect();
        named.sort_unstable();
        assert_eq!(named, chart);
    }

    #[test]
    fn an_alert_fires_while_its_condition_holds() {
        let firing = |reports: &[ProcessReport], counts: &MeshCounts, pools: &[PoolGauges]| {
            let all = alerts(reports, counts, pools);
            let names = all.into_iter().filter(|alert| alert.state == "firing");
            names.map(|alert| alert.name).collect::<Vec<_>>()
        };
        let process =
            |service: &str| ProcessReport { service: service.into(), ..Default::default() };
        let there = [process("gateway"), process("agent-runner")];
        let well = MeshCounts { oldest_ready: MAX_SESSION_WAIT, ..MeshCounts::default() };
        let ill = MeshCounts {
            oldest_ready: MAX_SESSION_WAIT + Duration::from_secs(1),
            new_dead_messages: 1,
            new_dead_deliveries: 1,
            new_unknown_deliveries: 1,
            ..MeshCounts::default()
        };
        let pool = PoolGauges { pool: "gpu".into(), live_runners: 0, waiting_sessions: 1 };

        assert_eq!(firing(&there, &well, &[]), Vec::<String>::new());
        assert_eq!(firing(&there[..1], &well, &[]), ["HoldfastRunnersAbsent"]);
        assert_eq!(firing(&there, &well, &[pool]), ["HoldfastRunnerPoolEmpty"]);
        let named = firing(&there, &ill, &[]);
        assert_eq!(named.len(), 4, "{named:?}");
    }
}
