//! Preparation of a model request: the instructions, the tools that the policy allows, the request.
//!
//! The instructions are those of an agent with 10 skills, 8 files of 20,000 characters each, and
//! its usual tools; the conversation has 100 messages.

use std::{hint::black_box, sync::Arc, time::Duration};

use anyhow::Context as _;
use holdfast_agent::{
    PromptInput,
    bootstrap::{Audience, BootstrapFile, BootstrapName},
    build_on,
    policy::{Catalog, CompiledPolicy, Defaults, Settings, Subject, Tool},
    prompt::{PromptMode, PromptSettings, Skill, StablePart, TurnContext, dynamic},
};
use holdfast_types::{Body, Entry, SessionKind, ToolSpec, Usage};
use tokio::time::Instant;

use crate::{
    Pace,
    client::unique_session,
    mesh::Mesh,
    models::Model,
    report::{Line, Unit, float},
};

const NOW: &str = "Tuesday, 2026-12-01 14:05";
const FILE_CHARS: usize = 20_000;
const SKILLS: usize = 10;
const MESSAGES: usize = 100;
const TOOLS: usize = 60;

pub async fn measure(mesh: &Mesh, pace: Pace) -> anyhow::Result<Vec<Line>> {
    let mut lines = contexts(pace)?;
    lines.push(policy(pace)?);
    let client = mesh.client(&mesh.tenant)?;
    client.turn(0, Model::Instant, &unique_session("hello")).await?;
    let size = float(mesh.models.last_size(Model::Instant).await?) / 1024.0;
    let line = Line::new("the request for a first message, default tools", size, Unit::Kilobytes);
    lines.push(line.at_most(12.0).note("body as sent, with the templates of a new agent"));
    Ok(lines)
}

fn contexts(pace: Pace) -> anyhow::Result<Vec<Line>> {
    let files: Vec<BootstrapFile> = BootstrapName::ALL
        .into_iter()
        .map(|name| {
            let content = "some text ".chars().cycle().take(FILE_CHARS).collect();
            BootstrapFile { name, content: Some(content) }
        })
        .collect();
    let names: Vec<String> = (0..SKILLS).map(|n| format!("skill-{n}")).collect();
    let places: Vec<String> = names.iter().map(|n| format!("skills/{n}/SKILL.md")).collect();
    let skills: Vec<Skill<'_>> = names
        .iter()
        .zip(&places)
        .map(|(name, location)| Skill { name, description: "what it is good for", location })
        .collect();
    let tools = tools();
    let full = PromptSettings {
        instructions: "Be helpful.",
        tools: &tools,
        skills: &skills,
        files: &files,
        workspace: Some("/workspace"),
        ..PromptSettings::of("main", SessionKind::Main, Audience::Owner)
    };
    let lite = PromptSettings { mode: PromptMode::Lite, ..full };
    // Those that a person would choose: half of the skills, some tools, no memory.
    let custom = PromptSettings {
        tools: tools.get(..4).context("fewer tools than four")?,
        skills: &skills[..SKILLS / 2],
        memory: Some(false),
        ..full
    };
    let journal = journal();
    let moment = TurnContext::at(NOW);
    let count = pace.count(2_000, 50);
    let cold = |setting: &PromptSettings<'_>| {
        let (part, now) = (StablePart::of(setting), dynamic(setting, &moment, &journal));
        black_box((part, now));
    };
    let kept = StablePart::of(&full);
    let cached = || {
        let (key, part) = (full.key(), kept.clone());
        black_box((key, part, dynamic(&full, &moment, &journal)));
    };
    let whole = || {
        let input =
            PromptInput { setting: full, moment, journal: &journal, context_limit: 200_000 };
        black_box(build_on(kept.clone(), input));
    };
    let chars = format!("{} characters of instructions", kept.text().chars().count());
    Ok(vec![
        Line::micros("Lite instructions", median(count, || cold(&lite))).at_most(2.5),
        Line::micros("Full, kept from the turn before", median(count, cached)).at_most(10.0),
        Line::micros("Full, written anew", median(count, || cold(&full)))
            .at_most(1_000.0)
            .note(chars),
        Line::micros("Custom", median(count, || cold(&custom))).at_most(100.0),
        Line::micros("Full with 100 messages, kept", median(count, whole))
            .note("the messages copied and counted"),
    ])
}

fn policy(pace: Pace) -> anyhow::Result<Line> {
    let names = (0..TOOLS).map(|n| format!("mcp_server_tool_{n}"));
    let (catalog, _) = Catalog::new(names.map(|name| Tool::native(&name)));
    let settings: Settings = serde_json::from_value(serde_json::json!({
        "deny": ["group:automation", "*_7"],
        "by_provider": {"ollama": {"deny": ["*_9"]}},
    }))?;
    let policy =
        CompiledPolicy::new(Arc::new(catalog), &Defaults::default(), &settings, &settings)?;
    let subject = Subject::new(SessionKind::Group);
    let took = median(pace.count(5_000, 50), || {
        black_box(policy.view(&subject).offered());
    });
    Ok(Line::micros(format!("policy for {TOOLS} tools"), took).at_most(10.0))
}

/// The median time of one, of many.
fn median(count: usize, mut what: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..count)
        .map(|_| {
            let begun = Instant::now();
            what();
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    times.get(count / 2).copied().unwrap_or_default()
}

fn tools() -> Vec<ToolSpec> {
    let names = ["read", "write", "edit", "exec", "message", "session_status", "web_fetch"];
    let spec = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: "Does what its name says, for whoever asks.".to_owned(),
        input: serde_json::json!({"type": "object", "properties": {"path": {"type": "string"}}}),
    };
    names.map(spec).to_vec()
}

fn journal() -> Vec<Entry> {
    let said = |n: usize| format!("message {n}: {}", "a few words ".repeat(12));
    (0..MESSAGES)
        .map(|n| match n % 2 {
            0 => Entry::Heard {
                seq: i64::try_from(n).unwrap_or_default(),
                body: Body { text: said(n), ..Body::default() },
            },
            _ => Entry::Thought {
                text: said(n),
                calls: Vec::new(),
                usage: Usage::default(),
                model: String::new(),
                carry: None,
                record: None,
            },
        })
        .collect()
}
