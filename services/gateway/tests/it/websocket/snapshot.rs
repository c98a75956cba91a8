//! Snapshot of LurkBot's protocol: what does not fit is read by its cursors.

use std::collections::BTreeSet;

use anyhow::Context as _;
use holdfast_proto::gateway::v1::{
    self as pb, AddJobRequest, messages_client::MessagesClient, schedules_client::SchedulesClient,
};
use serde_json::{Value, json};

use super::client::{Client, hello};
use crate::world::{World, message, until};

/// More than a snapshot has.
const COUNT: usize = 53;

/// Answers a message in each of the sessions, and waits until their order stays.
async fn add_sessions(world: &World) -> anyhow::Result<()> {
    let mut messages = MessagesClient::new(world.shared_channel().await?);
    for number in 0..COUNT {
        let session = format!("s{number}");
        let request = pb::SendRequest { session, ..message("hi") };
        messages.send(world.anna.request(request)).await?;
    }
    let answered = "select count(*) from session.sessions where turns = 1";
    let count = i64::try_from(COUNT)?;
    until(async || (world.number(answered).await.unwrap() == count).then_some(())).await;
    Ok(())
}

async fn add_jobs(world: &World) -> anyhow::Result<()> {
    let mut schedules = SchedulesClient::new(world.shared_channel().await?);
    for number in 0..COUNT {
        let job = json!({
            "name": format!("job {number}"),
            "schedule": { "kind": "every", "every_ms": 86_400_000 },
            "payload": { "kind": "systemEvent", "text": "tea is ready" },
        });
        let request = AddJobRequest { job: job.to_string(), ..AddJobRequest::default() };
        schedules.add_job(world.anna.request(request)).await?;
    }
    Ok(())
}

/// Calls a method of LurkBot's protocol, and returns its response.
async fn ask(client: &mut Client, method: &str, params: Value) -> anyhow::Result<Value> {
    let frame = json!({ "id": "1", "type": "request", "method": method, "params": params });
    client.send(&frame).await?;
    loop {
        let frame = client.frame().await?;
        if frame["type"] == "response" {
            return Ok(frame);
        }
    }
}

/// Values of a field of each item.
fn values(items: &Value, field: &str) -> Vec<String> {
    let items = items.as_array().into_iter().flatten();
    items.map(|item| item[field].as_str().unwrap_or_default().to_owned()).collect()
}

/// Reads a list from a cursor of the snapshot to its end by pages of two.
async fn read_on(
    client: &mut Client,
    (method, list): (&str, &str),
    cursor: &Value,
) -> anyhow::Result<Vec<String>> {
    let (mut found, mut cursor) = (Vec::new(), cursor.clone());
    while !cursor.is_null() {
        let params = json!({ "cursor": cursor, "limit": 2 });
        let answer = ask(client, method, params).await?;
        let page = answer.get("result").with_context(|| answer.to_string())?;
        let field = if list == "jobs" { "id" } else { "key" };
        found.extend(values(&page[list], field));
        assert_eq!(page["hasMore"], !page["nextCursor"].is_null());
        cursor = page["nextCursor"].clone();
    }
    Ok(found)
}

#[tokio::test]
async fn a_snapshot_is_read_on_by_its_cursors_and_each_session_and_job_comes_once()
-> anyhow::Result<()> {
    let world = World::start().await?;
    add_sessions(&world).await?;
    add_jobs(&world).await?;

    let (mut client, ok) = Client::lurkbot(world.http, hello(&world.anna.key)).await?;

    let snapshot = &ok["snapshot"];
    let mut sessions = values(&snapshot["sessions"], "key");
    let mut jobs = values(&snapshot["cronJobs"], "id");
    assert_eq!((sessions.len(), jobs.len()), (50, 50));
    let list = ("sessions.list", "sessions");
    sessions.extend(read_on(&mut client, list, &snapshot["sessionsCursor"]).await?);
    let list = ("cron.list", "jobs");
    jobs.extend(read_on(&mut client, list, &snapshot["cronJobsCursor"]).await?);
    for found in [sessions, jobs] {
        assert_eq!(found.len(), COUNT, "{found:?}");
        assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), COUNT, "{found:?}");
    }

    // A cursor is a place, and no right: another tenant has nothing there.
    let (mut stranger, other) = Client::lurkbot(world.http, hello(&world.ben.key)).await?;
    assert_eq!(other["snapshot"]["sessions"], json!([]));
    let params = json!({ "cursor": snapshot["sessionsCursor"] });
    let answer = ask(&mut stranger, "sessions.list", params).await?;
    assert_eq!(answer["result"]["sessions"], json!([]));
    let params = json!({ "cursor": snapshot["cronJobsCursor"] });
    let answer = ask(&mut stranger, "cron.list", params).await?;
    assert_eq!(answer["result"]["jobs"], json!([]));
    // Who may not read is shown nothing.
    let writer = world.key(&world.anna, &["chat"], None).await?;
    let (_, narrow) = Client::lurkbot(world.http, hello(&writer)).await?;
    assert_eq!(narrow["snapshot"]["sessions"], json!([]));
    assert_eq!(narrow["snapshot"]["sessionsCursor"], Value::Null);
    Ok(())
}

#[tokio::test]
async fn a_cursor_that_is_wrong_is_refused_by_name() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (mut client, _) = Client::lurkbot(world.http, hello(&world.anna.key)).await?;
    let session_cursor = format!("-1700000000000000-{:032x}", 1);
    let job_cursor = format!("job_{:032x}", 1);

    for (method, params, says) in [
        ("sessions.list", json!({ "cursor": "2" }), "`sessionsCursor` of a snapshot"),
        ("sessions.list", json!({ "cursor": session_cursor, "offset": 1 }), "offset"),
        ("cron.list", json!({ "cursor": session_cursor }), "`cronJobsCursor` of a snapshot"),
        ("cron.list", json!({ "cursor": job_cursor, "sortBy": "name" }), "sortBy"),
    ] {
        let error = ask(&mut client, method, params).await?["error"].clone();
        assert_eq!(error["code"], "INVALID_REQUEST", "{error}");
        assert!(error["message"].as_str().unwrap().contains(says), "{error}");
    }
    Ok(())
}
