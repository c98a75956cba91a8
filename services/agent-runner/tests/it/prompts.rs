//! The prompt as a model receives it: each section from what the product knows.

use agent_runner::Config;
use holdfast_directory::{Actor, NewAccount, Product, ProductCommand, TenantChanges};
use holdfast_sandbox::BackendChoice;
use holdfast_session::NewMessage;
use holdfast_testkit::Reply;
use holdfast_types::{
    AccountId, AgentKind, Author, Body, ContextOptions, DmScope, PromptStrategy, Reactions,
    SessionKey, Target,
};
use holdfast_workspace::{Base, ChangeAuthor, Edit};
use serde_json::json;

use crate::world::{MESH, World, place};

/// A world whose tenant and agent have all that a prompt can tell.
async fn furnished() -> anyhow::Result<(World, AccountId)> {
    let world = World::start().await?;
    let (tenant, by, directory) = (world.tenant, Actor::Operator, &world.directory);
    let product = Product {
        name: "Acme".to_owned(),
        docs_url: "https://acme.example/docs".to_owned(),
        commands: vec![ProductCommand {
            command: "acme chat".to_owned(),
            description: "talk to an agent".to_owned(),
        }],
    };
    let changes = TenantChanges { product: Some(product), ..TenantChanges::default() };
    directory.tenants().update(tenant, by, changes).await?;
    let owners = json!({ "owners": ["telegram:7"] });
    directory.policies().put(tenant, by, None, None, &owners).await?;
    directory.models().put_alias(tenant, by, "quick", "fake:small").await?;
    let account = NewAccount {
        channel: "telegram".to_owned(),
        name: "bot".to_owned(),
        enabled: true,
        settings: json!({}),
        secrets: Some(json!({ "token": "1:a" })),
    };
    let account = directory.accounts().create(tenant, by, account).await?;
    Ok((world, account.id))
}

/// Runners with commands, memory tools and a call style of their own.
fn config(world: &World) -> Config {
    let mut config = world.config();
    config.mesh.secret = MESH.into();
    config.runner.memory.extractions = 0;
    config.runner.memory.index_turns = false;
    config.runner.sandbox.backend = BackendChoice::Bubblewrap;
    config.runner.prompt.tool_call_style = Some("Say nothing before a call.".to_owned());
    config
}

/// A direct message of the owner on Telegram.
fn of_owner(world: &World, account: AccountId) -> NewMessage {
    let author = Author { id: "telegram:7".to_owned(), roles: Vec::new() };
    let scope = DmScope::PerChannelPeer;
    NewMessage {
        key: SessionKey::direct(&world.agent.name, scope, "telegram", "bot", "7").unwrap(),
        target: Some(Target { account, ..place("7") }),
        body: Body { author: Some(author), ..Body::text("hello") },
        ..world.message("s", "hello")
    }
}

/// The system message of the newest request.
fn told(world: &World) -> String {
    let newest = world.model.requests().pop().unwrap();
    newest.messages()[0]["content"].as_str().unwrap_or_default().to_owned()
}

/// Sends a message, and returns the system message of the request that it led to.
async fn told_for(world: &World, message: NewMessage) -> anyhow::Result<String> {
    world.text(&world.send(message).await?).await?;
    Ok(told(world))
}

/// The headings outside of files, without those of files.
fn headings(prompt: &str) -> Vec<&str> {
    let mut is_inside = false;
    let outside = |line: &&str| {
        is_inside = (is_inside || line.starts_with("<file")) && *line != "</file>";
        !is_inside && (line.starts_with("# ") || line.starts_with("## ")) && !line.ends_with(".md")
    };
    prompt.lines().filter(outside).collect()
}

/// Text of a section, without its heading.
fn section<'a>(prompt: &'a str, heading: &str) -> &'a str {
    let after = prompt.split(&format!("{heading}\n")).nth(1).unwrap_or_default();
    after.split("\n\n").next().unwrap_or_default()
}

#[tokio::test]
async fn the_sections_tell_what_the_product_knows_in_their_order() -> anyhow::Result<()> {
    let (world, account) = furnished().await?;
    let _runner = world.runner_with(config(&world), |app| app).await?;

    let prompt = told_for(&world, of_owner(&world, account)).await?;

    assert!(prompt.starts_with("You are a personal assistant running inside Acme."), "{prompt}");
    assert_eq!(
        headings(&prompt),
        [
            "## Instructions",
            "## Safety",
            "## Tooling",
            "## Tool Call Style",
            "## Acme CLI Quick Reference",
            "## Skills",
            "## Memory Recall",
            "## User Identity",
            "## Current Date & Time",
            "## Workspace",
            "## Documentation",
            "## Sandbox",
            "## Workspace Files (injected)",
            "## Voice (TTS)",
            "## Acme Self-Update",
            "## Model Aliases",
            "# Project Context",
            "## Silent Replies",
            "## Heartbeats",
            "## Now",
            "## Reply Tags",
            "## Messaging",
            "## Runtime",
            "## Reactions",
        ],
        "{prompt}"
    );
    for (heading, text) in [
        ("## Tool Call Style", "- Say nothing before a call."),
        ("## Acme CLI Quick Reference", "- acme chat: talk to an agent"),
        ("## Memory Recall", "use `memory_search`"),
        ("## User Identity", "Owner: telegram:7"),
        ("## Workspace", "Working directory: /workspace"),
        ("## Documentation", "https://acme.example/docs"),
        ("## Sandbox", "Container: bubblewrap\nRestrictions: Files of this workspace only; no"),
        ("## Workspace Files (injected)", "SOUL.md, IDENTITY.md, USER.md, AGENTS.md, TOOLS.md"),
        ("## Voice (TTS)", "[[tts]]"),
        ("## Model Aliases", "- quick: fake:small"),
        ("## Heartbeats", "answer with exactly HEARTBEAT_OK"),
        ("## Messaging", "actions here: send, media, react,"),
        ("## Reactions", "at most one reaction in 5 to 10 exchanges"),
    ] {
        let found = section(&prompt, heading);
        assert!(found.contains(text), "{heading}: {found}");
    }
    Ok(())
}

#[tokio::test]
async fn what_is_not_there_or_not_wanted_is_not_told() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.change_agent(|agent| agent.settings.reactions = Reactions::Off).await?;
    let mut config = world.config();
    config.runner.sandbox.hosted = true;
    let _runner = world.runner_with(config, |app| app).await?;

    let prompt = told_for(&world, world.owners("hello")).await?;
    let elsewhere = NewMessage { target: Some(place("7")), ..world.owners("hello") };
    let on_a_deleted_account = told_for(&world, elsewhere).await?;

    assert!(prompt.starts_with("You are a personal assistant running inside Holdfast."));
    assert!(prompt.contains("## Holdfast CLI Quick Reference\n"), "{prompt}");
    for prompt in [&prompt, &on_a_deleted_account] {
        for heading in [
            "User Identity",
            "Documentation",
            "Sandbox",
            "Voice",
            "Self-Update",
            "Model Aliases",
            "Reactions",
        ] {
            let found = headings(prompt).into_iter().find(|line| line.contains(heading));
            assert_eq!(found, None);
        }
        assert!(!section(prompt, "## Messaging").contains("actions here"), "{prompt}");
    }
    Ok(())
}

#[tokio::test]
async fn a_program_with_a_prompt_of_its_own_gets_the_line_that_says_who_answers()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world
        .change_agent(|agent| {
            let strategy = PromptStrategy::None;
            agent.settings.context = ContextOptions { strategy, ..ContextOptions::default() };
        })
        .await?;
    let _runner = world.runner().await?;
    let rhyme = Body { role: Some("system".into()), silent: true, ..Body::text("Rhyme.") };
    world.send(NewMessage { body: rhyme, ..world.message("s", "") }).await?;

    let prompt = told_for(&world, world.message("s", "hello")).await?;

    assert_eq!(
        prompt.split_whitespace().collect::<Vec<_>>().join(" "),
        "You are a personal assistant running inside Holdfast. Your name is main. \
         ## Instructions for this conversation Rhyme."
    );
    Ok(())
}

#[tokio::test]
async fn a_simple_agent_is_its_instructions_and_its_notes() -> anyhow::Result<()> {
    let world = World::start().await?;
    world
        .change_agent(|agent| {
            agent.settings.kind = AgentKind::Simple;
            agent.instructions = "You coach runners.".to_owned();
        })
        .await?;
    put(&world, "MEMORY.md", "Anna runs on Mondays.").await?;
    let _runner = world.runner().await?;

    let prompt = told_for(&world, world.owners("hello")).await?;

    assert!(prompt.starts_with("## Instructions\nYou coach runners.\n"), "{prompt}");
    assert_eq!(
        headings(&prompt),
        ["## Instructions", "## Safety", "## Memory Recall", "## Now"],
        "{prompt}"
    );
    assert!(prompt.contains("Anna runs on Mondays."), "{prompt}");
    let tools = world.model.requests()[0].tool_names().len();
    assert!(tools > 3, "{tools}");
    Ok(())
}

async fn put(world: &World, path: &str, text: &str) -> anyhow::Result<()> {
    let content = text.as_bytes().to_vec();
    let edit = Edit::Put { path: path.parse()?, content, base: Base::Any };
    let by = ChangeAuthor::new("ann", "a test");
    world.workspaces.commit(world.tenant, world.agent.id, &by, vec![edit]).await?;
    Ok(())
}

#[tokio::test]
async fn a_long_file_is_shown_with_its_beginning_and_its_end() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    world.ask("s", "hello").await?;
    let long = format!("{}{}END", "ä".repeat(14_000), "x".repeat(16_000));
    put(&world, "AGENTS.md", &long).await?;
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;

    let prompt = told_for(&world, world.owners("hello")).await?;

    assert!(prompt.contains("trimmed: AGENTS.md, 14000 + 4000 of 30003 characters shown"));
    assert_eq!(prompt.matches('ä').count(), 14_000);
    let end = format!("\n{}END\n</file>", "x".repeat(3_997));
    assert!(prompt.contains(&end) && !prompt.contains(&"x".repeat(3_998)), "{}", prompt.len());
    Ok(())
}

#[tokio::test]
async fn subagents_and_jobs_are_shown_two_files_only() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    let name = &world.agent.name;

    let job = NewMessage { key: SessionKey::cron(name, "j", "r")?, ..world.message("s", "dig") };
    let of_job = told_for(&world, job).await?;
    let spawn = r#"{"task":"dig","wait":true}"#;
    world.model.answer(move |asked| match asked.messages().last() {
        Some(last) if last["role"] == "tool" => Reply::text("done"),
        _ if asked.last_user_text().contains("dig") => Reply::text("dug"),
        _ => Reply::call("a", "sessions_spawn", spawn),
    });
    world.text(&world.send(world.owners("have it done")).await?).await?;
    let requests = world.model.requests();
    let child = requests.iter().rev().find(|asked| asked.last_user_text().contains("dig")).unwrap();
    let of_subagent = child.messages()[0]["content"].as_str().unwrap().to_owned();

    for prompt in [of_job, of_subagent] {
        let files: Vec<&str> = prompt.lines().filter(|line| line.starts_with("<file")).collect();
        assert_eq!(files, ["<file name=\"AGENTS.md\">", "<file name=\"TOOLS.md\">"], "{prompt}");
    }
    Ok(())
}
