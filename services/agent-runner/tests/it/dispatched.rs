//! Skills whose command goes to a tool as it was typed: without a model, and around no policy.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use holdfast_directory::Actor;
use holdfast_session::ApprovalFilter;
use holdfast_skills::{Download, Finder, SkillLibrary};
use holdfast_testkit::Reply;
use holdfast_tools::{Approval, Call, Tool, ToolError};
use holdfast_types::{
    ApprovalDecision, Body, Effect, Entry, ModelRoute, Note, QueueMode, RouteScope, ToolCall,
};
use holdfast_workspace::ChangeAuthor;
use serde_json::json;

use crate::world::{Running, World, place};

/// Rings a bell; loud ones need an approval. Records all rings.
#[derive(Clone, Default)]
struct Ring {
    rung: Arc<Mutex<Vec<String>>>,
    /// As long as it is locked, nothing rings.
    held: Arc<tokio::sync::Mutex<()>>,
}

/// Ring a bell.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct RingInput {
    /// Which.
    command: String,
    #[serde(default, rename = "commandName")]
    command_name: String,
    #[serde(default, rename = "skillName")]
    skill_name: String,
}

impl Ring {
    fn rung(&self) -> Vec<String> {
        self.rung.lock().unwrap().clone()
    }
}

impl Tool for Ring {
    const NAME: &'static str = "ring";
    const EFFECT: Effect = Effect::Acts;
    type Input = RingInput;

    async fn approval(&self, _: &Call, input: &RingInput) -> Result<Approval, ToolError> {
        let which = &input.command;
        Ok(match which.contains("loud") {
            true => Approval::Ask {
                subject: format!("ring {which}"),
                summary: format!("ring {which}"),
                pattern: None,
            },
            false => Approval::Never,
        })
    }

    async fn call(&self, _: Call, input: RingInput) -> Result<String, ToolError> {
        let RingInput { command, command_name, skill_name } = input;
        self.rung.lock().unwrap().push(command.clone());
        let _held = self.held.lock().await;
        match command.as_str() {
            "broken" => Err(ToolError::Tell("it has a crack".to_owned())),
            _ => Ok(format!("{command_name}/{skill_name} rang {command:?}")),
        }
    }
}

fn library(world: &World) -> SkillLibrary {
    SkillLibrary::new(world.workspaces.clone(), Arc::new(Finder::default()))
}

/// Gives the agent a skill whose command goes to this tool.
async fn give(world: &World, name: &str, tool: &str) -> anyhow::Result<()> {
    let text = format!(
        "---\nname: {name}\ndescription: Rings.\ncommand-dispatch: tool\ncommand-tool: {tool}\n\
         command-arg-mode: raw\n---\n\nRing it.\n"
    );
    let given = Download::Files(vec![("SKILL.md".to_owned(), text.into_bytes())]);
    let by = ChangeAuthor::new("ada", "test").with_key(name);
    library(world).put_skill(world.tenant, world.agent.id, &by, given).await?;
    Ok(())
}

async fn runner(world: &World, ring: &Ring) -> anyhow::Result<Running> {
    let (config, ring) = (world.config(), ring.clone());
    world.runner_with(config, |app| app.with_tool(ring)).await
}

/// A world with the skill `bell`, which goes to the tool `ring`.
async fn with_bell() -> anyhow::Result<(World, Ring, Running)> {
    let (world, ring) = (World::start().await?, Ring::default());
    give(&world, "bell", "ring").await?;
    let runner = runner(&world, &ring).await?;
    Ok((world, ring, runner))
}

#[tokio::test]
async fn a_command_goes_to_its_tool_as_it_was_typed_and_what_came_of_it_is_the_answer()
-> anyhow::Result<()> {
    let (world, ring, _runner) = with_bell().await?;

    let sent = world.say("s", "/bell  the \"big\" one,\n  twice ").await?;
    let text = world.text(&sent).await?;

    assert_eq!(text, r#"bell/bell rang "the \"big\" one,\n  twice""#);
    assert_eq!(ring.rung(), ["the \"big\" one,\n  twice"]);
    assert_eq!(world.model.count(), 0, "no model was asked");
    assert_eq!(
        world.kinds(sent.session).await?,
        ["heard", "noted", "thought", "called", "returned", "thought"]
    );
    let journal = world.journal(sent.session).await?;
    assert!(
        matches!(&journal[1], Entry::Noted { note: Note::Dispatched, text, .. } if text == "bell")
    );
    let uses = world.workspaces.skill_uses(world.tenant, world.agent.id).await?;
    let uses: Vec<(&str, i64)> = uses.iter().map(|used| (used.skill.as_str(), used.uses)).collect();
    assert_eq!(uses, [("bell", 1)]);

    // The conversation goes on from there, and a model reads what was.
    world.model.queue([Reply::text("you are welcome")]);
    assert_eq!(world.ask("s", "thanks").await?, "you are welcome");
    let asked = world.model.requests().remove(0);
    let said: Vec<&str> = asked.messages().iter().filter_map(|m| m["role"].as_str()).collect();
    assert_eq!(said[1..], ["user", "assistant", "tool", "assistant", "user"]);
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    // By the longer form too.
    assert!(world.ask("s", "/skill bell small").await?.ends_with(r#"rang "small""#));
    Ok(())
}

#[tokio::test]
async fn a_tool_that_takes_its_own_fields_alone_is_given_those() -> anyhow::Result<()> {
    let world = World::start().await?;
    give(&world, "who", "agents_list").await?;
    let _runner = world.runner().await?;

    let listed = world.ask("s", "/who").await?;
    let refused = world.ask("s", "/who else").await?;

    assert!(listed.contains("main"), "{listed}");
    assert!(
        refused.starts_with("/who goes to the tool `agents_list`, which takes no"),
        "{refused}"
    );
    assert_eq!(world.model.count(), 0);
    Ok(())
}

#[tokio::test]
async fn a_tool_that_is_not_there_fails_or_is_denied_is_told_of_clearly() -> anyhow::Result<()> {
    let (world, ring, _runner) = with_bell().await?;
    give(&world, "lost", "no_such_tool").await?;

    let unknown = world.ask("s", "/lost x").await?;
    assert!(unknown.contains("`no_such_tool`, and there is none of that name here"), "{unknown}");
    assert_eq!(world.ask("s", "/bell broken").await?, "Not done: `ring`: it has a crack");
    let denied = json!({ "profile": "full", "deny": ["ring"] });
    world.directory.policies().put(world.tenant, Actor::Operator, None, None, &denied).await?;
    let is_denied = async || {
        // Long conversations are summarised, by a model.
        let session = uuid::Uuid::now_v7().to_string();
        let told = world.ask(&session, "/bell small").await.unwrap_or_default();
        told == "Not done: the tool `ring` may not be used in this conversation."
    };
    // The old policy is cached for at most a second.
    world.until("the policy holds", is_denied).await?;
    let rung = ring.rung().len();
    assert!(is_denied().await);

    assert_eq!(ring.rung().len(), rung);
    assert_eq!(world.model.count(), 0);
    let audited = "select count(*) from control.audit where action = 'tool.refuse'";
    assert!(world.number(audited).await? >= 2);
    Ok(())
}

#[tokio::test]
async fn a_command_that_needs_a_persons_word_waits_for_it_and_is_made_once() -> anyhow::Result<()> {
    let (world, ring, first) = with_bell().await?;
    let mut asked = Vec::new();
    for (session, which) in [("a", "loud one"), ("b", "loud two")] {
        asked.push(world.say(session, &format!("/bell {which}")).await?);
    }
    let all = ApprovalFilter { state: None, session: None, person: None, limit: 50, after: None };
    let approvals = async || world.sessions.approvals().list(world.tenant, all).await;
    world
        .until("both are asked", async || approvals().await.is_ok_and(|all| all.len() == 2))
        .await?;
    assert_eq!(ring.rung(), Vec::<String>::new());
    first.kill();

    let _second = runner(&world, &ring).await?;
    for record in approvals().await? {
        let verdict = if record.summary == "ring loud one" {
            ApprovalDecision::Once
        } else {
            ApprovalDecision::Deny
        };
        let resolved = world
            .sessions
            .approvals()
            .resolve(
                world.tenant,
                record.id,
                holdfast_session::NewDecision::new(verdict, "key_test"),
            )
            .await?;
        if resolved.wake {
            world.bus.wake_run(0);
        }
    }

    assert_eq!(world.text(&asked[0]).await?, r#"bell/bell rang "loud one""#);
    let denied = world.text(&asked[1]).await?;
    assert!(denied.starts_with("Not done: `ring`: "), "{denied}");
    assert_eq!(ring.rung(), ["loud one"]);
    assert_eq!(world.model.count(), 0);
    Ok(())
}

#[tokio::test]
async fn a_call_that_a_crash_hid_is_not_made_again_and_is_told_as_unknown() -> anyhow::Result<()> {
    let (world, ring) = (World::start().await?, Ring::default());
    give(&world, "bell", "ring").await?;
    let mut short = world.config();
    short.runner.lease = Duration::from_secs(2);
    let ringing = ring.clone();
    let first = world.runner_with(short, |app| app.with_tool(ringing)).await?;
    let held = Arc::clone(&ring.held).lock_owned().await;
    let sent = world.say("s", "/bell small").await?;
    world.until("it rings", async || ring.rung().len() == 1).await?;
    first.kill();
    let _second = runner(&world, &ring).await?;

    let text = world.text(&sent).await?;
    // Not before: what was killed may still be on its way out.
    drop(held);

    assert!(text.contains("Not done: `ring`: the outcome of this call is unknown"), "{text}");
    assert_eq!(ring.rung(), ["small"]);
    assert_eq!(world.model.count(), 0);
    Ok(())
}

#[tokio::test]
async fn what_is_said_meanwhile_is_for_a_model_that_sees_what_came_of_it() -> anyhow::Result<()> {
    let (world, ring, _runner) = with_bell().await?;
    world.model.answer(|asked| {
        let rang = asked.messages().iter().any(|m| m.to_string().contains("bell/bell rang"));
        Reply::text(if rang { "it rang, and five" } else { "?" })
    });
    let held = Arc::clone(&ring.held).lock_owned().await;
    let command = world.say("s", "/bell small").await?;
    world.until("it rings", async || ring.rung().len() == 1).await?;
    let question = world.say_as(QueueMode::Steer, "s", "how late is it?").await?;
    drop(held);

    // As it came in time or not: one answer for both, or one for each.
    let (first, second) = (world.text(&command).await?, world.text(&question).await?);

    assert_eq!(second, "it rang, and five");
    assert!(first == second || first == r#"bell/bell rang "small""#, "{first}");
    assert_eq!(ring.rung(), ["small"]);
    Ok(())
}

#[tokio::test]
async fn nobody_is_chosen_for_a_command_and_what_the_mesh_says_is_none() -> anyhow::Result<()> {
    let (world, ring, _runner) = with_bell().await?;
    let route = ModelRoute { each: RouteScope::Message, ..ModelRoute::default() };
    let routed = |text: &str| Body { route: Some(Box::new(route.clone())), ..Body::text(text) };
    let message = world.message("s", "");
    let message = holdfast_session::NewMessage {
        body: routed("/bell small"),
        target: Some(place("42")),
        ..message
    };

    let text = world.text(&world.send(message).await?).await?;

    assert!(text.ends_with(r#"rang "small""#), "{text}");
    assert_eq!(world.model.count(), 0, "no model chose");
    let sent = world.texts("select body from session.deliveries order by out_seq").await?;
    assert_eq!(sent, [text]);

    world.model.queue([Reply::text("a model's")]);
    let event = Body { event: Some("cron".to_owned()), ..Body::text("/bell by itself") };
    let event = holdfast_session::NewMessage { body: event, ..world.message("e", "") };
    assert_eq!(world.text(&world.send(event).await?).await?, "a model's");
    assert_eq!(ring.rung(), ["small"]);
    Ok(())
}

#[tokio::test]
async fn what_no_model_asked_for_is_told_apart_in_the_journal() -> anyhow::Result<()> {
    let (world, _ring, _runner) = with_bell().await?;

    let sent = world.say("s", "/bell small").await?;
    world.text(&sent).await?;

    let journal = world.journal(sent.session).await?;
    let Entry::Thought { calls, model, usage, .. } = &journal[2] else {
        anyhow::bail!("{journal:?}")
    };
    let input = json!({ "command": "small", "commandName": "bell", "skillName": "bell" });
    let call = ToolCall { id: "command".into(), tool: "ring".into(), input: input.to_string() };
    assert_eq!((calls.as_slice(), model.as_str()), ([call].as_slice(), ""));
    assert_eq!((usage.input, usage.output), (0, 0));
    Ok(())
}
