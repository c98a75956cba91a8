//! `usage.*`, `sessions.usage`: tokens and costs of the tenant.

use std::collections::BTreeMap;

use holdfast_proto::gateway::v1::{self as pb, budgets_server::Budgets as _};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::{
        call::{Call, rpc},
        connection::now_ms,
        error::MethodError,
        keys,
        snapshot::millis,
    },
    Method, READ, Reply, method, sessions,
    sessions::NoParams,
};
use crate::control::budgets::Budgets;

pub const METHODS: &[Method] = &[
    method!("usage.status", READ, status),
    method!(
        "usage.cost",
        READ,
        cost,
        ["mode", "utcOffset", "timeZone", "agentScope", "creatorKey", "refresh"]
    ),
    method!(
        "sessions.usage",
        READ,
        of_sessions,
        [
            "agentScope",
            "mode",
            "groupBy",
            "includeHistorical",
            "utcOffset",
            "timeZone",
            "includeContextWeight",
            "refresh",
        ]
    ),
];

/// Days of a report, unless the client asks for others; and the most.
const DEFAULT_DAYS: u32 = 30;
const MAX_DAYS: u32 = 90;

/// Sessions of a report, unless the client asks for others.
const DEFAULT_SESSIONS: usize = 50;

/// Plans of providers are not known here.
async fn status(_: Call, NoParams {}: NoParams) -> Reply {
    Ok(json!({ "updatedAt": now_ms(), "providers": [] }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct CostParams {
    days: Option<u32>,
    start_date: Option<String>,
    end_date: Option<String>,
    range: Option<String>,
    agent_id: Option<String>,
}

async fn cost(call: Call, params: CostParams) -> Reply {
    let CostParams { days, start_date, end_date, range, agent_id } = params;
    let period = Period { days, from: start_date, until: end_date, range };
    let lines = lines(&call, agent_id, &period).await?;
    let (daily, totals) = by_day(&lines);
    Ok(json!({
        "updatedAt": now_ms(),
        "days": period.days(),
        "daily": daily,
        "totals": totals.shown(),
    }))
}

/// Days of a report.
struct Period {
    days: Option<u32>,
    from: Option<String>,
    until: Option<String>,
    range: Option<String>,
}

impl Period {
    /// Number of days until today that include the period.
    fn days(&self) -> u32 {
        let of_range = match self.range.as_deref() {
            Some("7d") => Some(7),
            Some("30d") => Some(30),
            Some(_) => Some(MAX_DAYS),
            None => None,
        };
        let since = self.from.as_ref().and_then(|from| {
            let from: jiff::civil::Date = from.parse().ok()?;
            let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
            u32::try_from(today.since(from).ok()?.get_days() + 1).ok()
        });
        self.days.or(of_range).or(since).unwrap_or(DEFAULT_DAYS).clamp(1, MAX_DAYS)
    }

    fn includes(&self, day: &str) -> bool {
        self.from.as_deref().is_none_or(|from| day >= from)
            && self.until.as_deref().is_none_or(|until| day <= until)
    }
}

async fn lines(
    call: &Call,
    agent: Option<String>,
    period: &Period,
) -> Result<Vec<pb::UsageLine>, MethodError> {
    let (agent, days) = (agent.unwrap_or_default(), period.days());
    let request = pb::GetUsageRequest { agent, days, group_by: Vec::new() };
    let handler = Budgets(call.state().clone());
    let mut lines = rpc!(call, "Budgets/GetUsage", handler, get_usage, request)?.lines;
    lines.retain(|line| period.includes(&line.day));
    Ok(lines)
}

#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    input: u64,
    cached: u64,
    output: u64,
    micros: u64,
    runs: u64,
}

impl Totals {
    fn add(&mut self, line: &pb::UsageLine) {
        self.input += line.input_tokens.saturating_sub(line.cached_tokens);
        self.cached += line.cached_tokens;
        self.output += line.output_tokens;
        self.micros += line.micros;
        self.runs += line.runs;
    }

    fn shown(&self) -> Value {
        #[expect(clippy::cast_precision_loss, reason = "shown to people")]
        let cost = self.micros as f64 / 1e6;
        json!({
            "input": self.input,
            "output": self.output,
            "cacheRead": self.cached,
            "cacheWrite": 0,
            "totalTokens": self.input + self.cached + self.output,
            "totalCost": cost,
            "inputCost": 0,
            "outputCost": 0,
            "cacheReadCost": 0,
            "cacheWriteCost": 0,
            "missingCostEntries": 0,
        })
    }
}

/// Totals of each day and of all days.
fn by_day(lines: &[pb::UsageLine]) -> (Vec<Value>, Totals) {
    let (mut days, mut all) = (BTreeMap::<&str, Totals>::new(), Totals::default());
    for line in lines {
        days.entry(&line.day).or_default().add(line);
        all.add(line);
    }
    let daily = days.iter().map(|(day, totals)| {
        let mut shown = totals.shown();
        shown["date"] = (*day).into();
        shown["tokens"] = shown["totalTokens"].clone();
        shown["cost"] = shown["totalCost"].clone();
        shown["messages"] = (totals.runs * 2).into();
        shown["toolCalls"] = 0.into();
        shown["errors"] = 0.into();
        shown
    });
    (daily.collect(), all)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SessionsParams {
    key: Option<String>,
    agent_id: Option<String>,
    start_date: Option<String>,
    end_date: Option<String>,
    range: Option<String>,
    limit: Option<usize>,
}

async fn of_sessions(call: Call, params: SessionsParams) -> Reply {
    let SessionsParams { key, agent_id, start_date, end_date, range, limit } = params;
    let period = Period { days: None, from: start_date, until: end_date, range };
    let lines = lines(&call, agent_id.clone(), &period).await?;
    let mut sessions = sessions::all(&call, agent_id.unwrap_or_default()).await?;
    sessions.sort_by_key(|session| std::cmp::Reverse(millis(session.updated_at.as_ref())));
    let is_wanted = |session: &&pb::Session| {
        key.as_ref().is_none_or(|key| keys::shown(&session.key) == *key || session.key == *key)
    };
    let rows: Vec<Value> = sessions
        .iter()
        .filter(is_wanted)
        .take(limit.unwrap_or(DEFAULT_SESSIONS))
        .map(session_row)
        .collect();
    let (daily, totals) = by_day(&lines);
    let group = |field: fn(&pb::UsageLine) -> &str, name: &str| {
        let mut groups = BTreeMap::<String, Totals>::new();
        for line in &lines {
            groups.entry(field(line).to_owned()).or_default().add(line);
        }
        let shown = groups.into_iter().map(|(value, totals)| {
            json!({ name: value, "count": totals.runs, "totals": totals.shown() })
        });
        shown.collect::<Vec<_>>()
    };
    let dates = |at: usize| daily.get(at).map(|day| day["date"].clone()).unwrap_or_default();
    Ok(json!({
        "updatedAt": now_ms(),
        "startDate": period.from.clone().map_or_else(|| dates(0), Value::from),
        "endDate": period.until.clone().map_or_else(|| dates(daily.len().saturating_sub(1)), Value::from),
        "sessions": rows,
        "totals": totals.shown(),
        "aggregates": {
            "messages": {
                "total": totals.runs * 2,
                "user": totals.runs,
                "assistant": totals.runs,
                "toolCalls": 0,
                "toolResults": 0,
                "errors": 0,
            },
            "tools": { "totalCalls": 0, "uniqueTools": 0, "tools": [] },
            "byModel": group(|line| &line.model, "model"),
            "byProvider": group(
                |line| line.model.split_once(':').map_or("", |(provider, _)| provider),
                "provider",
            ),
            "byAgent": group(|line| &line.agent, "agentId"),
            "byChannel": [],
            "daily": daily,
        },
    }))
}

fn session_row(session: &pb::Session) -> Value {
    let usage = session.usage.unwrap_or_default();
    let totals = Totals {
        input: usage.input_tokens.saturating_sub(usage.cached_tokens),
        cached: usage.cached_tokens,
        output: usage.output_tokens,
        ..Totals::default()
    };
    let mut shown = totals.shown();
    shown["sessionId"] = session.id.as_str().into();
    shown["firstActivity"] = millis(session.created_at.as_ref()).into();
    shown["lastActivity"] = millis(session.updated_at.as_ref()).into();
    json!({
        "key": keys::shown(&session.key),
        "label": session.label,
        "sessionId": session.id,
        "agentId": session.agent,
        "updatedAt": millis(session.updated_at.as_ref()),
        "usage": shown,
    })
}
