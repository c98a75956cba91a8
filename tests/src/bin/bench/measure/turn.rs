//! Duration of a turn with a model that answers at once: sequential turns of one caller.

use crate::{
    Pace,
    client::{Client, unique_session},
    mesh::Mesh,
    models::Model,
    openai::Conversation,
    report::Line,
    stats::Samples,
};

/// Enough for pools, plans and caches to be what they will be.
const WARM_UP: usize = 30;

/// p50 and p99 that are to be reached, in milliseconds.
type Bounds = (f64, f64);

pub async fn measure(mesh: &Mesh, pace: Pace) -> anyhow::Result<Vec<Line>> {
    let client = mesh.client(&mesh.tenant)?;
    let (many, some) = (pace.count(500, 100), pace.count(300, 60));

    let one = in_one_session(&client, Model::Instant, many).await?;
    let new = in_new_sessions(&client, some).await?;
    let tool = in_one_session(&client, Model::Tool, some).await?;
    let http = by_http(mesh, some).await?;

    Ok([
        lines("one session, history kept", &one, Some((6.0, 10.0))),
        lines("a new session each", &new, None),
        lines("one tool call, one session", &tool, Some((10.0, 14.0))),
        lines("POST /v1/chat/completions, one session", &http, None),
    ]
    .concat())
}

fn lines(what: &str, samples: &Samples, bounds: Option<Bounds>) -> Vec<Line> {
    let mut p50 = Line::millis(format!("{what}, p50"), samples.median());
    let mut p99 = Line::millis(format!("{what}, p99"), samples.permille(990))
        .note(format!("{} turns", samples.count()));
    if let Some((most, most_of_all)) = bounds {
        p50 = p50.at_most(most);
        p99 = p99.at_most(most_of_all);
    }
    vec![p50, p99]
}

async fn in_one_session(client: &Client, model: Model, count: usize) -> anyhow::Result<Samples> {
    let session = unique_session("turn");
    let mut times = Vec::new();
    for _ in 0..WARM_UP + count {
        times.push(client.turn(0, model, &session).await?.done);
    }
    Ok(times.into_iter().skip(WARM_UP).collect())
}

async fn in_new_sessions(client: &Client, count: usize) -> anyhow::Result<Samples> {
    let mut times = Vec::new();
    for _ in 0..count {
        times.push(client.turn(0, Model::Instant, &unique_session("new")).await?.done);
    }
    Ok(times.into_iter().collect())
}

async fn by_http(mesh: &Mesh, count: usize) -> anyhow::Result<Samples> {
    let user = unique_session("http");
    let mut talk = Conversation::new(mesh.http(), &mesh.tenant.key, Model::Instant, user)?;
    let mut times = Vec::new();
    for nth in 0..WARM_UP + count {
        times.push(talk.turn(&format!("What about train {nth} to Lisbon?")).await?);
    }
    Ok(times.into_iter().skip(WARM_UP).collect())
}
