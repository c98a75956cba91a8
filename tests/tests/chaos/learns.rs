//! Skills survive a runner's crash: a skill is found in a registry, installed, used, and then
//! recommended, by one runner and by the next.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use holdfast_proto::gateway::v1 as pb;
use holdfast_proto::gateway::v1::agents_client::AgentsClient;
use holdfast_proto::gateway::v1::skills_client::SkillsClient;
use holdfast_testkit::{Backends, Reply, Request};
use holdfast_tests::mesh::{Mesh, MeshConfig};
use holdfast_tests::person::{GrpcClient, REPLY_TIMEOUT, TelegramUser, until};
use holdfast_tests::turnstile;
use holdfast_types::QueueMode;
use serde_json::json;

use crate::RUNNER;

const SKILL: &str = "---\nname: water-plants\ndescription: Water the plants.\nversion: \"1.0\"\n---\n\n\
                     Pour 0.2 l into each pot.\n";

/// One of the skill's words: too little to recommend it, until it was used.
const QUESTION: &str = "how are the plants?";

/// Finds and installs what it is told to learn, reads what it is told to use, and says whether
/// something is recommended to it.
fn learner(asked: &Request) -> Reply {
    let said = asked.last_user_text();
    let shown = asked.body.to_string();
    let results = asked.messages().iter().rev().take_while(|message| message["role"] != "user");
    let results: Vec<&str> = results
        .filter(|message| message["role"] == "tool")
        .filter_map(|message| message["content"].as_str())
        .collect();
    let call = |tool: &str, input: serde_json::Value| {
        Reply::call(format!("c{}", results.len()), tool, input.to_string())
    };
    // Newest first.
    match results.as_slice() {
        [] if said.starts_with("learn") => call("find_skills", json!({"query": "water plants"})),
        [found] if found.contains("slug `water-plants`, registry `shelf`") => {
            call("install_skill", json!({"slug": "water-plants", "registry": "shelf"}))
        }
        [] if shown.contains("calls the skill water-plants") => {
            call("read", json!({"path": "skills/water-plants/SKILL.md"}))
        }
        [] if shown.contains("seem to fit best: water-plants.") => {
            Reply::text("I would water the plants")
        }
        [] => Reply::text("nothing fits"),
        [newest, ..] => Reply::text(*newest),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_skill_is_found_installed_used_and_then_recommended_whichever_runner_is_there()
-> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let tenants = vec![QueueMode::Steer, QueueMode::Steer];
    let plan = MeshConfig { runners: 2, tenants, ..MeshConfig::small(RUNNER) };
    let mesh = Mesh::prepare(&plan, Backends::get().await?).await?;
    mesh.fakes.model.answer(learner);
    let folder = tempfile::tempdir()?;
    let settings = registry(folder.path())?;
    let settings = [("HOLDFAST_CONFIG", settings.as_str())];
    for node in mesh.gateways.iter().chain(&mesh.bridges) {
        node.start().await?;
        node.ready(REPLY_TIMEOUT).await?;
    }
    let caller = GrpcClient::of(&mesh, 0)?;
    for caller in [&caller, &GrpcClient::of(&mesh, 1)?] {
        set_up(caller).await?;
    }
    mesh.runners[0].start_with(&settings).await?;
    mesh.runners[0].ready(REPLY_TIMEOUT).await?;
    let bot = mesh.tenants[0].bot.as_str();
    // The first one is the owner.
    let (owner, guest) = (TelegramUser::of(&mesh, bot, 1), TelegramUser::of(&mesh, bot, 42));

    ensure!(owner.ask(QUESTION).await? == "nothing fits", "something is recommended already");
    let refused = guest.ask("learn how to water the plants").await?;
    ensure!(refused.contains("in a conversation with your owner only"), "a guest: {refused}");
    // A registry's text is text from outside, so a person decides about the installation.
    let asked = owner.ask("learn how to water the plants").await?;
    let answer = asked.lines().find(|line| line.starts_with("/approve"));
    let answer = answer.and_then(|line| line.split(" – ").next());
    owner.send(answer.with_context(|| format!("nobody is asked: {asked}"))?);
    let expected = "The skill `water-plants` 1.0 of the registry `shelf` is installed";
    let is_installed = async || Ok(owner.heard().iter().any(|text| text.contains(expected)));
    until("the skill is installed", is_installed).await?;
    mesh.runners[0].kill().await?;
    mesh.runners[1].start_with(&settings).await?;
    ensure!(owner.ask(QUESTION).await? == "nothing fits", "it was not used yet");
    let used = owner.ask("/water-plants on the balcony").await?;
    ensure!(used.contains("Pour 0.2 l into each pot."), "it is not used: {used}");
    mesh.runners[1].kill().await?;
    mesh.runners[0].start_with(&settings).await?;
    let recommended = owner.ask(QUESTION).await?;
    ensure!(recommended == "I would water the plants", "it is not recommended: {recommended}");

    let theirs = TelegramUser::of(&mesh, &mesh.tenants[1].bot, 1);
    ensure!(theirs.ask(QUESTION).await? == "nothing fits", "another tenant has it");
    ensure!(changes(&GrpcClient::of(&mesh, 1)?).await?.is_empty(), "another tenant sees it");
    let changes = changes(&caller).await?;
    let [change] = changes.as_slice() else { anyhow::bail!("it was recorded as {changes:?}") };
    ensure!(
        (change.action.as_str(), change.registry.as_str()) == ("install", "shelf")
            && change.sha256.len() == 64,
        "{change:?}"
    );
    let violations = mesh.fakes.model.violations();
    ensure!(violations.is_empty(), "calls and results do not pair up: {violations:?}");
    Ok(())
}

/// Makes a folder with one skill a registry; says where the settings with it are.
fn registry(folder: &Path) -> anyhow::Result<String> {
    let shelf = folder.join("shelf");
    fs::create_dir_all(shelf.join("water-plants"))?;
    fs::write(shelf.join("water-plants/SKILL.md"), SKILL)?;
    let settings = folder.join("holdfast.toml");
    let text = format!(
        "[[skills.registries]]\nkind = \"directory\"\nname = \"shelf\"\npath = {}\n",
        json!(shelf.to_str().context("a path that is no text")?)
    );
    fs::write(&settings, text)?;
    Ok(settings.to_str().context("a path that is no text")?.to_owned())
}

/// The agent is recommended skills; and it has an owner.
async fn set_up(caller: &GrpcClient) -> anyhow::Result<()> {
    let mut agents = AgentsClient::new(caller.channel.clone());
    let get = pb::GetAgentRequest { agent: "main".to_owned() };
    let agent = agents.get_agent(caller.request(get)?).await?.into_inner().agent;
    let mut agent = agent.context("there is no agent")?;
    let context = agent.context.get_or_insert_default();
    context.recommend_skills = Some(pb::RecommendSkills::default());
    let update = pb::UpdateAgentRequest { agent: Some(agent), base_version: None };
    agents.update_agent(caller.request(update)?).await?;
    caller.put_owner("telegram:1").await
}

async fn changes(caller: &GrpcClient) -> anyhow::Result<Vec<pb::SkillChange>> {
    let mut skills = SkillsClient::new(caller.channel.clone());
    let list = caller.request(pb::ListSkillChangesRequest::default())?;
    Ok(skills.list_skill_changes(list).await?.into_inner().changes)
}
