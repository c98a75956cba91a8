//! Skills: in the prompt, read, called by their names, found in a registry, installed and used.

use std::{fs, os::unix, path::Path, sync::Arc, time::Duration};

use agent_runner::Config;
use holdfast_directory::Actor;
use holdfast_llm::ModelCard;
use holdfast_session::NewMessage;
use holdfast_skills::{
    Config as Skills, Download, Finder, Policy, Registries, RegistryConfig, SkillLibrary,
};
use holdfast_testkit::{Reply, Request};
use holdfast_types::{ApprovalDecision, RecommendSkills, TenantId};
use holdfast_workspace::{ChangeAuthor, Workspaces};
use serde_json::json;

use crate::{
    approvals::{say_of, waiting},
    world::{World, place},
};

/// Makes the calls that the last message names, one line each (`!tool {input}`), and then repeats
/// what came of the last.
fn follow(asked: &Request) -> Reply {
    let messages = asked.messages();
    let since = messages.iter().rposition(|m| m["role"] == "user").unwrap_or(0);
    let results: Vec<&str> = messages[since..]
        .iter()
        .filter(|m| m["role"] == "tool")
        .filter_map(|m| m["content"].as_str())
        .collect();
    let said = asked.last_user_text();
    let mut lines = said.lines().filter_map(|line| line.strip_prefix('!'));
    match lines.nth(results.len()).and_then(|line| line.split_once(' ')) {
        Some((tool, input)) => Reply::call(format!("c{}", results.len()), tool, input),
        None => Reply::text(results.last().copied().unwrap_or("hello").to_owned()),
    }
}

async fn started() -> anyhow::Result<World> {
    let world = World::start().await?;
    world.model.answer(follow);
    Ok(world)
}

/// Answer to a message of the owner.
async fn owner(world: &World, text: &str) -> anyhow::Result<String> {
    world.text(&world.send(world.owners(text)).await?).await
}

fn read(path: &str) -> String {
    format!("!read {}", json!({ "path": path }))
}

fn skill(name: &str, description: &str, body: &str) -> String {
    format!("---\nname: {name}\ndescription: {description}\nversion: \"1.0\"\n---\n\n{body}\n")
}

/// The system message of the newest request.
fn told(world: &World) -> anyhow::Result<String> {
    let newest = world.model.requests().pop();
    let newest = newest.ok_or_else(|| anyhow::anyhow!("the model was not asked"))?;
    Ok(newest.messages()[0].to_string())
}

fn library(world: &World) -> SkillLibrary {
    SkillLibrary::new(world.workspaces.clone(), Arc::new(Finder::default()))
}

fn by(key: &str) -> ChangeAuthor {
    ChangeAuthor::new("ada", "test").with_key(key)
}

fn files(name: &str, description: &str, body: &str) -> Download {
    Download::Files(vec![("SKILL.md".to_owned(), skill(name, description, body).into_bytes())])
}

async fn give_tenant(world: &World, name: &str, description: &str) -> anyhow::Result<()> {
    let shared = Workspaces::shared_tree(world.tenant);
    let given = files(name, description, &format!("of the tenant: {name}"));
    library(world).put_skill(world.tenant, shared, &by(name), given).await?;
    Ok(())
}

async fn give_agent(world: &World, name: &str, description: &str) -> anyhow::Result<()> {
    let given = files(name, description, &format!("of the agent: {name}"));
    library(world).put_skill(world.tenant, world.agent.id, &by(name), given).await?;
    Ok(())
}

#[tokio::test]
async fn what_everybody_has_is_named_and_read_and_its_use_is_noted_once() -> anyhow::Result<()> {
    let world = started().await?;
    let _runner = world.runner().await?;

    assert_eq!(owner(&world, "hello").await?, "hello");
    let request = world.model.requests().remove(0);
    assert!(request.body.to_string().len() < 13 * 1024, "{}", request.body.to_string().len());
    let prompt = told(&world)?;
    assert!(prompt.contains("plan-a-trip, research-a-question, summarise"), "{prompt}");
    assert!(!prompt.contains("available_skills"), "{prompt}");

    let text = owner(&world, &read("skills/plan-a-trip/SKILL.md")).await?;
    assert!(text.contains("name: plan-a-trip"), "{text}");
    let none = owner(&world, &read("skills/plan-a-trip/other.md")).await?;
    assert!(none.contains("no file"), "{none}");

    let uses = world.workspaces.skill_uses(world.tenant, world.agent.id).await?;
    let uses: Vec<(&str, i64)> = uses.iter().map(|used| (used.skill.as_str(), used.uses)).collect();
    assert_eq!(uses, [("plan-a-trip", 1)]);
    Ok(())
}

#[tokio::test]
async fn the_agents_own_goes_before_its_tenants_and_that_before_what_everybody_has()
-> anyhow::Result<()> {
    let world = started().await?;
    give_tenant(&world, "summarise", "Shared shortening.").await?;
    give_tenant(&world, "water-plants", "Shared watering.").await?;
    give_agent(&world, "water-plants", "Own watering.").await?;
    let _runner = world.runner().await?;

    let both = [read("skills/water-plants/SKILL.md"), read("skills/summarise/SKILL.md")];
    let own = owner(&world, &both[0]).await?;
    let shared = owner(&world, &both[1]).await?;

    let prompt = told(&world)?;
    assert!(prompt.contains("- summarise: Shared shortening. (skills/summarise/SKILL.md)"));
    assert!(prompt.contains("- water-plants: Own watering."), "{prompt}");
    assert!(!prompt.contains("Shared watering"), "{prompt}");
    assert!(prompt.contains("Others, at skills/<name>/SKILL.md: plan-a-trip"), "{prompt}");
    assert!(own.contains("of the agent: water-plants"), "{own}");
    assert!(shared.contains("of the tenant: summarise"), "{shared}");
    let listed = owner(&world, r#"!list_files {"path":"skills"}"#).await?;
    assert_eq!(listed.matches("skills/water-plants/SKILL.md").count(), 1, "{listed}");
    assert!(listed.contains("skills/tidy-notes/SKILL.md"), "{listed}");
    Ok(())
}

#[tokio::test]
async fn a_skill_that_comes_or_goes_is_told_of_or_not_from_the_next_message_on()
-> anyhow::Result<()> {
    let world = started().await?;
    let _runner = world.runner().await?;
    owner(&world, "hello").await?;
    assert!(!told(&world)?.contains("Own watering"));

    let text = skill("water-plants", "Own watering.", "x");
    let input = json!({ "path": "skills/water-plants/SKILL.md", "content": text });
    owner(&world, &format!("!write {input}")).await?;
    owner(&world, "hello").await?;
    assert!(told(&world)?.contains("Own watering"));

    library(&world).remove_skill(world.tenant, world.agent.id, &by("gone"), "water-plants").await?;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    owner(&world, "hello").await?;
    assert!(!told(&world)?.contains("Own watering"));
    Ok(())
}

#[tokio::test]
async fn another_tenant_sees_nothing_of_a_skill() -> anyhow::Result<()> {
    let world = started().await?;
    give_tenant(&world, "water-plants", "Shared watering.").await?;
    let (other, _) = world.directory.tenants().create(Actor::Operator, "other").await?;
    let theirs = world.directory.agents().default_agent(other.id).await?;

    let here = holdfast_skills::SkillEnvironment::default();
    let seen = library(&world).load_current_skills(other.id, Some(theirs.id), &here).await?;
    let seen: Vec<&str> = seen.skills().map(|skill| skill.name()).collect();

    assert!(!seen.contains(&"water-plants"), "{seen:?}");
    assert_eq!(world.workspaces.skill_changes(other.id, None, 10).await?, []);
    // Not even by the id of the tree that it is in.
    let shared = Workspaces::shared_tree(world.tenant);
    let path = "skills/water-plants/SKILL.md".parse()?;
    assert_eq!(world.workspaces.read(other.id, shared, &path, None).await?, None);
    assert_eq!(world.workspaces.skill_changes(world.tenant, None, 10).await?.len(), 1);
    assert_eq!(world.workspaces.skill_policy(TenantId::generate()).await?, None);
    Ok(())
}

#[tokio::test]
async fn people_call_a_skill_by_its_name_also_one_that_no_model_is_told_of() -> anyhow::Result<()> {
    let world = started().await?;
    let quiet = "---\nname: quiet\ndescription: Be quiet.\ndisable-model-invocation: true\n---\nx";
    let lacking = "---\nname: lacking\ndescription: Needs much.\nmetadata: { openclaw: { requires: \
                   { bins: [no-such-command] } } }\n---\nx";
    for (name, text) in [("quiet", quiet), ("lacking", lacking)] {
        let given = Download::Files(vec![("SKILL.md".to_owned(), text.into())]);
        library(&world).put_skill(world.tenant, world.agent.id, &by(name), given).await?;
    }
    let _runner = world.runner().await?;

    owner(&world, "/quiet for an hour").await?;
    let prompt = told(&world)?;
    assert!(prompt.contains("calls the skill quiet: `read` skills/quiet/SKILL.md"), "{prompt}");
    assert!(!prompt.contains("Be quiet.") && !prompt.contains("Needs much."), "{prompt}");

    owner(&world, "hello").await?;
    assert!(!told(&world)?.contains("calls the skill"));

    let asked = world.model.count();
    let refused = owner(&world, "/lacking now").await?;
    assert!(
        refused.contains("`lacking` cannot be used: the command `no-such-command`"),
        "{refused}"
    );
    assert_eq!(world.model.count(), asked, "no model was asked");

    let listed = owner(&world, "/list skills").await?;
    assert!(listed.contains("/quiet: Be quiet.") && listed.contains("/plan-a-trip: "), "{listed}");
    assert!(!listed.contains("lacking"), "{listed}");

    // A command that is no skill goes to the model.
    assert_eq!(owner(&world, "/nothing of that name").await?, "hello");
    Ok(())
}

#[tokio::test]
async fn a_skill_whose_name_is_a_commands_is_refused_and_says_so() -> anyhow::Result<()> {
    let world = started().await?;

    let given = files("status", "x", "x");
    let refused = library(&world).put_skill(world.tenant, world.agent.id, &by("a"), given).await;

    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("/status is a command: take another name"), "{refused}");
    Ok(())
}

/// A folder that is a registry, and a runner's settings with it.
fn registry(world: &World, folder: &Path) -> Config {
    let path = folder.to_owned();
    let skill_set = RegistryConfig::Directory { name: "shelf".to_owned(), path };
    Config { skills: Skills { registries: vec![skill_set] }, ..world.config() }
}

fn offer(folder: &Path, name: &str, body: &str) -> anyhow::Result<()> {
    fs::create_dir_all(folder.join(name).join("more"))?;
    fs::write(folder.join(name).join("SKILL.md"), skill(name, "Water the plants.", body))?;
    fs::write(folder.join(name).join("more/list.md"), body)?;
    Ok(())
}

fn install(slug: &str, force: bool) -> String {
    format!("!install_skill {}", json!({ "slug": slug, "registry": "shelf", "force": force }))
}

#[tokio::test]
async fn a_skill_is_found_in_a_registry_installed_read_and_used() -> anyhow::Result<()> {
    let world = started().await?;
    let folder = tempfile::tempdir()?;
    offer(folder.path(), "water-plants", "Pour 0.2 l.")?;
    let _runner = world.runner_with(registry(&world, folder.path()), |app| app).await?;

    // In a conversation of its own: a registry's text is from outside, and installing after it needs
    // an approval.
    let found = world.ask("s", r#"!find_skills {"query":"water plants"}"#).await?;
    assert!(found.contains("slug `water-plants`, registry `shelf`, 1.0"), "{found}");
    let done = owner(&world, &install("water-plants", false)).await?;
    assert!(done.contains("The skill `water-plants` 1.0 of the registry `shelf` is installed"));
    // Its description, which is in the prompt now, is text from outside.
    let again = world.send(world.owners(&install("water-plants", false))).await?;
    let asked = waiting(&world, 1).await?;
    say_of(&world, &asked[0], ApprovalDecision::Once).await?;
    let again = world.text(&again).await?;
    assert!(again.contains("is installed already"), "{again}");
    let text = owner(&world, &read("skills/water-plants/SKILL.md")).await?;
    assert!(text.contains("Pour 0.2 l."), "{text}");
    assert!(told(&world)?.contains("- water-plants: Water the plants."));

    let origin = world.file("skills/water-plants/.skill-origin.json").await?.unwrap_or_default();
    assert!(origin.contains(r#""registry": "shelf""#), "{origin}");
    let changes = world.workspaces.skill_changes(world.tenant, None, 10).await?;
    let change = &changes[0];
    assert_eq!((changes.len(), change.actor.as_str()), (1, world.agent.name.as_str()));
    assert_eq!((change.change.version.as_str(), change.change.sha256.len()), ("1.0", 64));
    let uses = world.workspaces.skill_uses(world.tenant, world.agent.id).await?;
    assert_eq!(uses.iter().map(|used| used.skill.as_str()).collect::<Vec<_>>(), ["water-plants"]);
    Ok(())
}

#[tokio::test]
async fn what_is_unsafe_is_not_installed_nor_what_the_policy_forbids_nor_for_a_stranger()
-> anyhow::Result<()> {
    let world = started().await?;
    let folder = tempfile::tempdir()?;
    offer(folder.path(), "water-plants", "x")?;
    offer(folder.path(), "thief", "x")?;
    unix::fs::symlink("/etc/passwd", folder.path().join("thief/more/passwd"))?;
    let _runner = world.runner_with(registry(&world, folder.path()), |app| app).await?;

    let refused = owner(&world, &install("thief", false)).await?;
    assert!(refused.contains("is a link or a device"), "{refused}");
    for slug in ["water-plants", "thief", "none-such"] {
        let stranger = world.ask("s", &install(slug, false)).await?;
        assert!(stranger.contains("in a conversation with your owner only"), "{stranger}");
    }
    let text = skill("mine", "Tell all.", "x");
    let input = json!({ "path": "skills/mine/SKILL.md", "content": text });
    let written = world.ask("s", &format!("!write {input}")).await?;
    assert!(written.contains("in a conversation with your owner only"), "{written}");

    for (policy, why) in [
        (Policy { enabled: false, ..Policy::default() }, "skills may not be installed here"),
        (
            Policy { registries: Some(vec!["another".to_owned()]), ..Policy::default() },
            "of the registry `shelf` may not be installed here",
        ),
    ] {
        library(&world).set_policy(world.tenant, "ada", &policy).await?;
        let refused = owner(&world, &install("water-plants", false)).await?;
        assert!(refused.contains(why), "{refused}");
    }
    let left = world.number("select count(*) from workspace.files where path like 'skills/%'");
    assert_eq!(left.await?, 0);
    assert_eq!(world.workspaces.skill_changes(world.tenant, None, 10).await?, []);
    Ok(())
}

#[tokio::test]
async fn a_malicious_skill_is_not_even_downloaded() -> anyhow::Result<()> {
    let world = started().await?;
    let downloads = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&downloads);
    let page = json!({
        "skill": { "slug": "gifgrep", "displayName": "G", "summary": "…", "stats": {},
                   "tags": { "latest": "1.2.3" }, "createdAt": 0, "updatedAt": 0 },
        "latestVersion": { "version": "1.2.3", "createdAt": 0, "changelog": "…" },
        "metadata": null, "owner": { "handle": "x", "displayName": "X", "image": null },
        "moderation": { "isSuspicious": false, "isMalwareBlocked": true, "verdict": "…",
                        "reasonCodes": [], "summary": null, "engineVersion": "v2.0.0",
                        "updatedAt": 0 },
    });
    let routes = axum::Router::new()
        .route("/api/v1/skills/gifgrep", axum::routing::get(async move || axum::Json(page)))
        .route(
            "/api/v1/download",
            axum::routing::get(async move || {
                counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }),
        );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let base_url = format!("http://{}", listener.local_addr()?);
    let hub = tokio::spawn(async move { axum::serve(listener, routes).await });
    let clawhub = RegistryConfig::Clawhub { name: "clawhub".to_owned(), base_url, token: None };
    let config = Config { skills: Skills { registries: vec![clawhub] }, ..world.config() };
    let _runner = world.runner_with(config, |app| app).await?;

    let call = r#"!install_skill {"slug":"gifgrep","registry":"clawhub"}"#;
    let refused = owner(&world, call).await?;

    assert!(refused.contains("`gifgrep` of the registry `clawhub` is not installed"), "{refused}");
    assert!(refused.contains("it is malicious"), "{refused}");
    assert_eq!(downloads.load(std::sync::atomic::Ordering::SeqCst), 0);
    hub.abort();
    Ok(())
}

#[tokio::test]
async fn whenever_a_runner_dies_the_old_skill_is_there_or_the_new_one() -> anyhow::Result<()> {
    let world = started().await?;
    let folder = tempfile::tempdir()?;
    offer(folder.path(), "water-plants", "old")?;
    let mut config = registry(&world, folder.path());
    config.runner.lease = Duration::from_secs(1);
    config.runner.sweep = Duration::from_millis(50);
    let registries = Registries::from_configs(&config.skills.registries)?;
    let library = SkillLibrary::new(world.workspaces.clone(), Arc::new(Finder::new(registries)));
    let order = holdfast_skills::InstallOrder {
        registry: library.finder().registries().get("shelf")?,
        slug: "water-plants",
        version: None,
        force: holdfast_skills::Force::No,
    };
    library.install(world.tenant, world.agent.id, &by("first"), &order).await?;
    // A person has read it, and is not asked about the new one.
    world.admin("update workspace.files set outside = false").await?;
    offer(folder.path(), "water-plants", "new")?;
    fs::remove_file(folder.path().join("water-plants/more/list.md"))?;
    fs::write(folder.path().join("water-plants/more/other.md"), "new")?;

    let sent = world.send(world.owners(&install("water-plants", true))).await?;
    let whole = async || -> anyhow::Result<bool> {
        let list = world.file("skills/water-plants/more/list.md").await?.is_some();
        let other = world.file("skills/water-plants/more/other.md").await?.is_some();
        let text = world.file("skills/water-plants/SKILL.md").await?.unwrap_or_default();
        let (old, new) = (text.contains("old"), text.contains("new"));
        anyhow::ensure!((list, other) == (old, new) && old != new, "half a skill: {list} {other}");
        Ok(new)
    };
    for n in 0..12_u64 {
        // On a slow machine it would be given up as one that kills its runners.
        world.admin("update session.session_lease set attempts = 0").await?;
        let runner = world.runner_with(config.clone(), |app| app).await?;
        tokio::time::sleep(Duration::from_millis(20 + 35 * n)).await;
        runner.kill();
        // A commit that was sent may take effect between two of the reads.
        world.until("the skill is whole", async || whole().await.is_ok()).await?;
    }
    let again = "update session.session_lease set attempts = 0, ready_at = clock_timestamp()";
    world.admin(again).await?;
    let _runner = world.runner_with(config, |app| app).await?;
    let answer = world.answer(&sent).await?;

    assert!(whole().await?, "{answer:?}");
    // However often it was begun.
    let made = "select count(*) from workspace.skill_changes where action = 'install'";
    assert_eq!(world.number(made).await?, 2);
    Ok(())
}

#[tokio::test]
async fn what_was_used_shows_in_what_is_recommended_where_the_owner_wants_that()
-> anyhow::Result<()> {
    let world = started().await?;
    give_tenant(&world, "water-plants", "Water the plants on the balcony.").await?;
    world
        .change_agent(|agent| {
            agent.settings.context.recommend_skills = Some(RecommendSkills::default());
        })
        .await?;
    let _runner = world.runner().await?;

    owner(&world, "hello").await?;
    assert!(!told(&world)?.contains("Skills for This Message"));
    owner(&world, "who shall water the plants on the balcony?").await?;
    let fits = "## Skills for This Message\\nOf the available skills, these seem to fit best: \
                water-plants.";
    assert!(told(&world)?.contains(fits), "{}", told(&world)?);

    owner(&world, &read("skills/water-plants/SKILL.md")).await?;
    owner(&world, "hello").await?;
    assert!(told(&world)?.contains(fits), "it was used a moment ago: {}", told(&world)?);
    Ok(())
}

#[tokio::test]
async fn a_model_chooses_where_several_could_fit_and_if_it_does_not_all_are_told()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.answer(|asked| {
        let chooses = asked.messages()[0].to_string().contains("You choose skills");
        match (chooses, asked.messages().iter().any(|m| m.to_string().contains("the roses"))) {
            (true, true) => Reply::text(
                r#"{"recommendations":[{"skill_name":"water-roses","confidence":1.0,"reason":"x"}]}"#,
            ),
            (true, false) => Reply::text("I would rather not"),
            (false, _) => Reply::text("hello"),
        }
    });
    for name in ["water-plants", "water-roses"] {
        give_tenant(&world, name, "Water the plants.").await?;
    }
    let card = ModelCard { temperature: true, ..ModelCard::default() };
    let models = world.directory.models();
    models.put(world.tenant, Actor::Operator, &"fake:small".parse()?, &card).await?;
    let model = Some("fake:small".to_owned());
    let recommend = RecommendSkills { model, ..RecommendSkills::default() };
    world.change_agent(|agent| agent.settings.context.recommend_skills = Some(recommend)).await?;
    let _runner = world.runner().await?;

    owner(&world, "water the plants, the roses").await?;
    assert!(told(&world)?.contains("seem to fit best: water-roses."), "{}", told(&world)?);
    let choice = world.model.requests()[0].body.clone();
    assert_eq!((&choice["model"], &choice["temperature"]), (&json!("small"), &json!(0.3)));

    // The model has already chosen for this message.
    let asked = world.model.count();
    owner(&world, "/new").await?;
    owner(&world, "water the plants, the roses").await?;
    assert!(told(&world)?.contains("seem to fit best: water-roses."), "{}", told(&world)?);
    assert_eq!(world.model.count(), asked + 1);

    owner(&world, "/new").await?;
    owner(&world, "water the plants").await?;
    let both = "seem to fit best: water-plants, water-roses.";
    assert!(told(&world)?.contains(both), "{}", told(&world)?);
    Ok(())
}

#[tokio::test]
async fn an_agents_list_of_skills_narrows_what_its_prompt_names_at_once() -> anyhow::Result<()> {
    let world = started().await?;
    give_tenant(&world, "water-plants", "Water the plants.").await?;
    give_tenant(&world, "bake-bread", "Bake bread.").await?;
    let _runner = world.runner().await?;
    let named = async |list: Option<&[&str]>| {
        let list = list.map(|names| names.iter().map(|&name| name.to_owned()).collect());
        world.change_agent(|agent| agent.settings.context.include_skills = list).await?;
        // A runner sees a change within a second.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        owner(&world, "hello").await?;
        let prompt = told(&world)?;
        let all = ["water-plants", "bake-bread", "plan-a-trip"];
        anyhow::Ok(all.map(|name| prompt.contains(name)))
    };

    assert_eq!(named(None).await?, [true, true, true]);
    assert_eq!(named(Some(&["bake-bread"])).await?, [false, true, false]);
    assert_eq!(named(Some(&[])).await?, [false, false, false]);
    assert_eq!(named(None).await?, [true, true, true]);
    Ok(())
}

#[tokio::test]
async fn words_of_a_channel_relate_skills_to_it() -> anyhow::Result<()> {
    let world = started().await?;
    give_tenant(&world, "water-plants", "Water the plants.").await?;
    world
        .change_agent(|agent| {
            agent.settings.context.recommend_skills = Some(RecommendSkills::default());
        })
        .await?;
    let mut config = world.config();
    config.runner.prompt.channel_words.insert("telegram".to_owned(), vec!["Plants".to_owned()]);
    let _runner = world.runner_with(config, |app| app).await?;
    let on_telegram = NewMessage { target: Some(place("7")), ..world.owners("hello") };

    world.text(&world.send(on_telegram).await?).await?;

    assert!(told(&world)?.contains("seem to fit best: water-plants."), "{}", told(&world)?);
    Ok(())
}
