//! The product's runner, put together by its own `App`, with the tools that tests
//! need: two that act on the world, and one that ends the process that makes the call.
//!
//! Its settings are the runner's; `CHAOS_WORLD_URL` says where the world is.

use agent_runner::{App, Config};
use anyhow::Context as _;
use holdfast_kit::{config, shutdown, telemetry, tls};
use holdfast_tools::{Call, Tool, ToolError};
use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Does something in the world that cannot be undone.
#[derive(Debug, Deserialize, JsonSchema)]
struct Deed {
    /// What to do.
    id: String,
}

/// Posts to the world, which takes every post for a deed of its own.
#[derive(Clone)]
struct Act {
    http: reqwest::Client,
    world: String,
}

impl Tool for Act {
    const NAME: &'static str = "act";
    const EFFECT: Effect = Effect::Acts;
    type Input = Deed;

    async fn call(&self, call: Call, input: Deed) -> Result<String, ToolError> {
        let body = json!({"key": call.key, "id": input.id}).to_string();
        let posted = self.http.post(&self.world).body(body).send().await;
        match posted {
            Ok(answer) if answer.status().is_success() => Ok("done".to_owned()),
            Ok(answer) => Err(ToolError::Tell(format!("the world answered {}", answer.status()))),
            Err(error) => Err(ToolError::Tell(format!("the outcome is unknown: {error}"))),
        }
    }
}

/// Does the same, where the tenant's policy has the call approved first.
struct ActIfAllowed(Act);

impl Tool for ActIfAllowed {
    const NAME: &'static str = "act_if_allowed";
    const EFFECT: Effect = Effect::Acts;
    type Input = Deed;

    async fn call(&self, call: Call, input: Deed) -> Result<String, ToolError> {
        self.0.call(call, input).await
    }
}

/// Ends the process, as a tool with a defect would.
struct Explode;

impl Tool for Explode {
    const NAME: &'static str = "explode";
    const EFFECT: Effect = Effect::Reads;
    type Input = Deed;

    async fn call(&self, _: Call, _: Deed) -> Result<String, ToolError> {
        std::process::abort()
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let settings: Config = config::load("runner").context("the configuration is not usable")?;
    tls::install_crypto();
    let _flushed_on_drop = telemetry::init("agent-runner", &settings.telemetry)?;
    let stop = shutdown::on_signal()?;
    let world = std::env::var("CHAOS_WORLD_URL").context("`CHAOS_WORLD_URL` is not set")?;
    let act = Act { http: reqwest::Client::new(), world };
    let app = Box::pin(App::connect(settings)).await?;
    let app = app.with_tool(act.clone()).with_tool(ActIfAllowed(act)).with_tool(Explode);
    app.run(stop).await
}
