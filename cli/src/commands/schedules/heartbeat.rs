//! `holdfast heartbeat`.

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{
    GetHeartbeatRequest, GetHeartbeatResponse, HeartbeatEvent, ListHeartbeatEventsRequest,
    RunHeartbeatRequest, SetHeartbeatRequest,
};
use serde_json::{Value, json};

use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 8] =
    ["agent", "enabled", "every", "beats", "quiet", "channel", "last_status", "last_reason"];
const EVENT_COLUMNS: [&str; 6] = ["at", "status", "reason", "channel", "preview", "duration_ms"];
const NEXT_COLUMNS: [&str; 2] = ["utc", "local"];

#[derive(Debug, Subcommand)]
pub enum Heartbeat {
    /// Show the state of an agent's heartbeat
    Status {
        #[command(flatten)]
        of: HeartbeatOwner,
    },
    /// List the outcomes of past heartbeats, newest first
    Events {
        #[command(flatten)]
        of: HeartbeatOwner,
        /// Maximum number of heartbeats to list
        #[arg(long, default_value_t = 20)]
        limit: u32,
    },
    /// Show the outcome of the last heartbeat
    Last {
        #[command(flatten)]
        of: HeartbeatOwner,
    },
    /// Run an agent's heartbeat immediately
    Run {
        #[command(flatten)]
        of: HeartbeatOwner,
    },
    /// List the next times of the heartbeat
    Next {
        #[command(flatten)]
        of: HeartbeatOwner,
        /// Number of times to list
        #[arg(long, default_value_t = 5)]
        count: u32,
    },
    /// Switch an agent's heartbeat on
    On {
        #[command(flatten)]
        of: HeartbeatOwner,
    },
    /// Switch an agent's heartbeat off
    Off {
        #[command(flatten)]
        of: HeartbeatOwner,
    },
}

/// The agent whose heartbeat is meant
#[derive(Debug, Args)]
pub struct HeartbeatOwner {
    /// Name or id of the agent [default: the default agent]
    #[arg(default_value = "", hide_default_value = true)]
    agent: String,
}

impl Heartbeat {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::Status { of } => screen.one(&COLUMNS, &view(&status(client, of.agent, 5).await?)),
            Self::Events { of, limit } => {
                screen.list(&EVENT_COLUMNS, events(client, of.agent, limit).await?)
            }
            Self::Last { of } => {
                let last = events(client, of.agent, 1).await?.pop();
                let last = last.ok_or_else(|| Error::Usage("it has not beaten yet".to_owned()))?;
                screen.one(&EVENT_COLUMNS, &last)
            }
            Self::Run { of } => {
                let request =
                    RunHeartbeatRequest { agent: of.agent.clone(), request_id: String::new() };
                let request = client.request(request);
                let ran = client.answer(client.heartbeats().run_heartbeat(request).await)?;
                let done = if ran.ran { "asked for" } else { "left out" };
                screen.done(done, &json!({"ran": ran.ran, "reason": ran.reason}))
            }
            Self::Next { of, count } => {
                let status = status(client, of.agent, count).await?;
                let rows = status.next.iter().map(|at| next(at, &status.time_zone));
                screen.list(&NEXT_COLUMNS, rows.collect())
            }
            Self::On { of } => set(client, screen, of.agent, true).await,
            Self::Off { of } => set(client, screen, of.agent, false).await,
        }
    }
}

async fn status(client: &Client, agent: String, next: u32) -> Result<GetHeartbeatResponse, Error> {
    let request = client.request(GetHeartbeatRequest { agent, next });
    client.answer(client.heartbeats().get_heartbeat(request).await)
}

async fn events(client: &Client, agent: String, limit: u32) -> Result<Vec<Value>, Error> {
    let request = client.request(ListHeartbeatEventsRequest { agent, limit });
    let listed = client.answer(client.heartbeats().list_heartbeat_events(request).await)?;
    Ok(listed.events.iter().map(event).collect())
}

async fn set(client: &Client, screen: &Screen, agent: String, enabled: bool) -> Result<(), Error> {
    let request = client.request(SetHeartbeatRequest { agent: agent.clone(), enabled });
    client.answer(client.heartbeats().set_heartbeat(request).await)?;
    screen.done("set", &json!({"agent": agent, "enabled": enabled}))
}

fn event(event: &HeartbeatEvent) -> Value {
    json!({
        "at": jiff::Timestamp::from_millisecond(event.ts).map(|at| at.to_string()).ok(),
        "ts": event.ts,
        "status": event.status,
        "reason": event.reason,
        "channel": event.channel,
        "to": event.to,
        "preview": event.preview,
        "duration_ms": event.duration_ms,
        "has_media": event.has_media,
        "silent": event.silent,
        "indicator_type": event.indicator_type,
        "run_id": event.run_id,
    })
}

fn view(status: &GetHeartbeatResponse) -> Value {
    let last = status.last.clone().unwrap_or_default();
    json!({
        "agent": status.agent,
        "enabled": status.enabled,
        "every": status.every,
        "beats": status.beats,
        "quiet": status.quiet,
        "channel": status.channel,
        "to": status.to,
        "last_status": last.status,
        "last_reason": last.reason,
        "last": status.last.as_ref().map(event),
        "next": status.next.iter().map(|at| time(Some(at))).collect::<Vec<_>>(),
    })
}

/// Returns a time in UTC and in the agent's time zone.
fn next(at: &prost_types::Timestamp, zone: &str) -> Value {
    let local = jiff::Timestamp::new(at.seconds, at.nanos)
        .ok()
        .and_then(|at| at.in_tz(zone).ok())
        .map(|at| at.strftime("%Y-%m-%d %H:%M:%S %Z").to_string());
    json!({"utc": time(Some(at)), "local": local})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_in_both_zones() {
        let at = prost_types::Timestamp { seconds: 1_795_352_400, nanos: 0 };

        let shown = next(&at, "Europe/Oslo");

        assert_eq!(shown["local"], "2026-11-22 14:00:00 CET");
        assert!(shown["utc"].as_str().unwrap().starts_with("2026-11-22T13:00:00"));
        assert_eq!(next(&at, "Mars/Olympus")["local"], Value::Null);
    }
}
