//! Cost of work in steps of behaviours, against the same calls of the same tool in the plain loop.
//!
//! Both are measured in turns, so that what else the machine does meets both. Each piece of work
//! has a session of its own: `plan`, ten times `do`, `check`, each with one action; or twelve calls
//! one after the other, then the answer.

use std::time::Duration;

use anyhow::ensure;
use tokio::time::sleep;

use crate::{
    Pace,
    client::{Client, unique_session},
    database,
    mesh::Mesh,
    models::{Model, ROUNDS},
    report::{Line, Unit, float},
    spent::Spent,
};

/// What pieces of work used together.
#[derive(Debug, Default)]
struct Cost {
    works: usize,
    /// Tokens that the model read, and wrote.
    tokens: (u64, u64),
    requests: u64,
    writing_commits: i64,
    /// CPU time of our services.
    own: Duration,
    /// The same with that of the backends.
    all: Duration,
}

pub async fn measure(mesh: &Mesh, pace: Pace) -> anyhow::Result<Vec<Line>> {
    let client = mesh.client(&mesh.tenant)?;
    let (blocks, works) = (pace.count(8, 2), pace.count(10, 3));
    let (mut steps, mut plain) = (Cost::default(), Cost::default());
    for model in [Model::Behaviors, Model::Rounds] {
        let mut warm_up = Cost::default();
        warm_up.add_works(mesh, &client, model, pace.count(5, 1)).await?;
    }
    for _ in 0..blocks {
        steps.add_works(mesh, &client, Model::Behaviors, works).await?;
        plain.add_works(mesh, &client, Model::Rounds, works).await?;
    }
    let mut lines = Vec::new();
    for (cost, model, name) in
        [(&steps, Model::Behaviors, "behaviours"), (&plain, Model::Rounds, "plain loop")]
    {
        lines.extend(cost.lines(name)?);
        lines.extend(database_lines(mesh, &client, model, (name, works)).await?);
    }
    let ratio = |of: fn(&Cost) -> Duration| {
        steps.per_request(of).as_secs_f64() / plain.per_request(of).as_secs_f64()
    };
    lines.extend([
        Line::new(
            "CPU of a step, services: behaviours / plain",
            ratio(|cost| cost.own),
            Unit::Ratio,
        ),
        Line::new(
            "CPU of a step, with backends: behaviours / plain",
            ratio(|cost| cost.all),
            Unit::Ratio,
        )
        .at_most(1.2),
    ]);
    Ok(lines)
}

impl Cost {
    async fn add_works(
        &mut self,
        mesh: &Mesh,
        client: &Client,
        model: Model,
        works: usize,
    ) -> anyhow::Result<()> {
        let mut admin = mesh.admin().await?;
        let commits = database::transactions(&mut admin).await?.writing;
        let (requests, spent) = (mesh.models.requests().await?, Spent::so_far(mesh)?);
        for _ in 0..works {
            let turn = client.turn(0, model, &unique_session("work")).await?;
            self.tokens.0 += turn.tokens.0;
            self.tokens.1 += turn.tokens.1;
        }
        let spent = Spent::so_far(mesh)?.since(&spent);
        self.works += works;
        self.own += spent.own();
        self.all += spent.all();
        self.requests += mesh.models.requests().await? - requests;
        self.writing_commits += database::transactions(&mut admin).await?.writing - commits;
        Ok(())
    }

    fn per_request(&self, of: fn(&Self) -> Duration) -> Duration {
        of(self) / u32::try_from(self.requests.max(1)).unwrap_or(u32::MAX)
    }

    fn lines(&self, name: &str) -> anyhow::Result<Vec<Line>> {
        let requests = usize::try_from(self.requests)?;
        ensure!(requests >= self.works * ROUNDS, "{name}: {requests} requests are too few");
        let each = |count: usize| float(count) / float(self.works);
        let line = |what: &str, count: usize| {
            Line::new(format!("{name}: {what}"), each(count), Unit::Count)
        };
        let millis = |what: &str, time: Duration| {
            let millis = time.as_secs_f64() * 1000.0 / float(self.works);
            Line::new(format!("{name}: {what}"), millis, Unit::Millis)
        };
        let step = self.per_request(|cost| cost.all);
        Ok(vec![
            line("tokens read", usize::try_from(self.tokens.0)?)
                .note(format!("{} pieces of work, one after the other", self.works)),
            line("tokens written", usize::try_from(self.tokens.1)?),
            line("model requests", requests),
            millis("CPU of gateway, runner, bridge and scheduler", self.own),
            millis("CPU with Postgres, NATS and Redis", self.all),
            Line::millis(format!("{name}: CPU of a step"), step).note("of all, for each request"),
            line("commits that write", usize::try_from(self.writing_commits)?),
        ])
    }
}

/// Transactions and statements of a piece of work, with those of polls and probes meanwhile.
async fn database_lines(
    mesh: &Mesh,
    client: &Client,
    model: Model,
    (name, works): (&str, usize),
) -> anyhow::Result<[Line; 2]> {
    let mut admin = mesh.admin().await?;
    let work = async || {
        for _ in 0..works {
            client.turn(0, model, &unique_session("work")).await?;
        }
        anyhow::Ok(())
    };
    sleep(database::STATS_DELAY).await;
    let before = database::transactions(&mut admin).await?.all;
    work().await?;
    sleep(database::STATS_DELAY).await;
    let transactions = usize::try_from(database::transactions(&mut admin).await?.all - before)?;
    let statements = database::count_statements(&mut admin, mesh.backends().dir(), work).await?;
    let line = |what: &str, count: usize| {
        Line::new(format!("{name}: {what}"), float(count) / float(works), Unit::Count)
    };
    Ok([
        line("transactions in all", transactions)
            .note("with those of polls and probes in 12 s and more"),
        line("statements", statements)
            .note("with `begin`, and those of polls and probes meanwhile"),
    ])
}
