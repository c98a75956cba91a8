//! Calls that wait for a client of OpenAI's API, while every process of the mesh is killed.

use std::time::Duration;

use anyhow::ensure;
use holdfast_testkit::{Backends, Reply, Request};
use holdfast_tests::mesh::{Mesh, MeshConfig};
use holdfast_tests::turnstile;
use serde_json::{Value, json};

use crate::RUNNER;

const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Calls two tools of the client, then says what they found.
fn looking(asked: &Request) -> Reply {
    let results = asked.tool_results();
    match results.is_empty() {
        true => Reply::calls([("a", "look", r#"{"at":1}"#), ("b", "look", r#"{"at":2}"#)]),
        false => {
            let found: Vec<&str> = results.iter().map(|(_, output)| output.as_str()).collect();
            Reply::text(found.join(" and "))
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_wait_for_a_client_survive_every_process_and_are_nobody_elses()
-> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let plan = MeshConfig {
        tenants: vec![holdfast_types::QueueMode::Steer, holdfast_types::QueueMode::Steer],
        ..MeshConfig::small(RUNNER)
    };
    let mesh = Mesh::prepare(&plan, Backends::get().await?).await?;
    mesh.fakes.model.answer(looking);
    let (gateway, runner) = (&mesh.gateways[0], &mesh.runners[0]);
    for node in [gateway, runner] {
        node.start().await?;
        node.ready(START_TIMEOUT).await?;
    }
    let url = format!("http://{}/v1/chat/completions", gateway.spec().http);
    let client = reqwest::Client::builder().no_proxy().build()?;
    let ask = async |tenant: usize, messages: &[Value]| -> anyhow::Result<(u16, Value)> {
        let body = json!({
            "model": "holdfast",
            "messages": messages,
            "tools": [{"type": "function", "function": {"name": "look"}}],
        });
        let call = client.post(&url).bearer_auth(&mesh.tenants[tenant].key).json(&body);
        let answer = call.send().await?;
        Ok((answer.status().as_u16(), answer.json().await?))
    };
    let mut messages = vec![json!({"role": "user", "content": "what is there?"})];

    let (status, answer) = ask(0, &messages).await?;
    ensure!(status == 200, "{answer}");
    let message = answer["choices"][0]["message"].clone();
    let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
    ensure!(calls.len() == 2, "{answer}");
    for node in [runner, gateway] {
        node.kill().await?;
        node.start().await?;
        node.ready(START_TIMEOUT).await?;
    }
    let result = |call: &Value, output: &str| json!({"role": "tool", "tool_call_id": call["id"], "content": output});
    let results = [result(&calls[0], "a door"), result(&calls[1], "a window")];
    let (status, refused) = ask(1, &results).await?;
    ensure!(status == 400, "another tenant answers the calls: {refused}");
    messages.push(message);
    messages.extend(results);
    let (status, answer) = ask(0, &messages).await?;

    ensure!(status == 200, "{answer}");
    let text = &answer["choices"][0]["message"]["content"];
    ensure!(text == "a door and a window", "{answer}");
    let sessions = mesh.number("select count(*) from session.sessions").await?;
    ensure!(sessions == 1, "{sessions} sessions: the waiting one does not go on");
    let violations = mesh.fakes.model.violations();
    ensure!(violations.is_empty(), "calls and results do not pair up: {violations:?}");
    Ok(())
}
