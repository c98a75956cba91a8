//! Settings that are read again while a service runs.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use holdfast_testkit::Backends;
use holdfast_tests::mesh::{Mesh, MeshConfig};
use holdfast_tests::person::until;
use holdfast_tests::turnstile;
use reqwest::StatusCode;
use serde_json::json;
use tokio::time::sleep;

use crate::RUNNER;

const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Replaces the folder that the link `..data` leads to, as Kubernetes does with a ConfigMap.
fn mount(folder: &Path, version: u8, text: &str) -> anyhow::Result<()> {
    let content = folder.join(format!("..{version}"));
    std::fs::create_dir(&content)?;
    std::fs::write(content.join("holdfast.toml"), text)?;
    let link = folder.join("..new");
    symlink(&content, &link)?;
    std::fs::rename(&link, folder.join("..data"))?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_settings_are_taken_over_named_or_refused_without_a_restart() -> anyhow::Result<()>
{
    let _turn = turnstile::lock_shared().await?;
    let mesh = Mesh::prepare(&MeshConfig::small(RUNNER), Backends::get().await?).await?;
    let (gateway, folder) = (&mesh.gateways[0], tempfile::tempdir()?);
    let settings = folder.path().join("holdfast.toml");
    symlink("..data/holdfast.toml", &settings)?;
    mount(folder.path(), 1, "[gateway]\nanswer_timeout = '1s'\n")?;
    let file = settings.display().to_string();
    // The file's filter of the log is used, not that of the tests.
    gateway.start_with(&[("HOLDFAST_CONFIG", &file), ("HOLDFAST_TELEMETRY__LOG", "")]).await?;
    gateway.ready(START_TIMEOUT).await?;
    // No runner is there: each call waits as long as the settings say.
    let client = reqwest::Client::new();
    let url = format!("http://{}/v1/chat/completions", gateway.spec().http);
    let body = json!({"model": "holdfast", "messages": [{"role": "user", "content": "hi"}]});
    let waited = async || {
        let call = client.post(&url).bearer_auth(&mesh.tenants[0].key).json(&body).send().await?;
        ensure!(call.status() == StatusCode::GATEWAY_TIMEOUT, "{}", call.status());
        Ok(call.text().await?)
    };
    let is_written =
        async |line: &str| until(line, async || Ok(gateway.output().await.contains(line))).await;
    ensure!(waited().await?.contains("after 1 s"), "{}", waited().await?);

    mount(folder.path(), 2, "[gateway]\nanswer_timeout = '2s'\ntext_limit = 1000\n")?;
    is_written("new settings are in use: gateway.answer_timeout").await?;
    is_written("needs a restart: gateway.text_limit").await?;
    ensure!(waited().await?.contains("after 2 s"), "{}", waited().await?);

    mount(folder.path(), 3, "[gateway]\nanswer_timeout = '3s'\ncalls = 0\n")?;
    is_written("what they held before stays in use").await?;
    is_written("`gateway.calls` is 0, and nobody could get in: raise it").await?;
    ensure!(waited().await?.contains("after 2 s"), "{}", waited().await?);

    mount(
        folder.path(),
        4,
        "[gateway]\nanswer_timeout = '2s'\ntext_limit = 1000\n[telemetry]\nlog = 'off'\n",
    )?;
    // The line itself is no longer logged.
    sleep(Duration::from_secs(5)).await;
    let silent = gateway.output().await;
    gateway.hang_up().await?;
    sleep(Duration::from_secs(1)).await;
    ensure!(gateway.output().await == silent, "the log is not off");
    mount(folder.path(), 5, "[telemetry]\nlog = 'info'\n")?;
    gateway.hang_up().await?;
    is_written("new settings are in use: gateway.answer_timeout, telemetry.log").await?;
    ensure!(!silent.contains("panicked"), "{silent}");
    Ok(())
}
