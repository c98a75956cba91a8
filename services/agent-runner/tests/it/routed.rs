//! A model chooses the agent: who answers, what it is told, and that nothing is chosen twice.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use holdfast_directory::{Actor, Agent, Error, NewAgent, NewModelRoute, NewRule};
use holdfast_session::{Acceptance, NewMessage};
use holdfast_testkit::{Reply, model::Request};
use holdfast_types::{
    AgentChoice, AgentName, Attachment, Body, ChoiceOrigin, ModelRoute, RouteScope, SessionId,
    TenantId,
};
use holdfast_workspace::{ChangeAuthor, NewMedia};

use crate::world::{World, place};

/// Whether a model is asked to choose.
fn is_choice(asked: &Request) -> bool {
    system(asked).starts_with("You decide which assistant")
}

fn system(asked: &Request) -> String {
    asked.messages()[0]["content"].as_str().unwrap_or_default().to_owned()
}

/// Makes the choice `choose`, and answers as the current agent.
fn script(
    choose: impl Fn(&Request) -> Reply + Send + Sync + 'static,
) -> impl Fn(&Request) -> Reply + Send + Sync + 'static {
    move |asked| match system(asked) {
        _ if is_choice(asked) => choose(asked),
        text if text.contains("You are the coach.") => Reply::text("the coach"),
        text if text.contains("You are the coder.") => Reply::text("the coder"),
        _ => Reply::text("main"),
    }
}

impl World {
    async fn with_agent(&self, name: &str, tools: Option<Vec<String>>) -> anyhow::Result<Agent> {
        self.agent_of(self.tenant, name, tools).await
    }

    async fn agent_of(
        &self,
        tenant: TenantId,
        name: &str,
        tools: Option<Vec<String>>,
    ) -> anyhow::Result<Agent> {
        let new = NewAgent {
            name: AgentName::new(name),
            description: format!("Good at what a {name} does."),
            instructions: format!("You are the {name}."),
            settings: crate::world::settings(|settings| settings.tools = tools),
            ..NewAgent::default()
        };
        Ok(self.directory.agents().create(tenant, Actor::Operator, new).await?)
    }

    /// A message from a channel whose agent a model is to choose.
    fn routed(&self, text: &str, route: &ModelRoute) -> NewMessage {
        let body = Body { route: Some(Box::new(route.clone())), ..Body::text(text) };
        NewMessage { body, target: Some(place("42")), ..self.message("s", text) }
    }

    async fn ask_routed(&self, text: &str, route: &ModelRoute) -> anyhow::Result<String> {
        self.text(&self.send(self.routed(text, route)).await?).await
    }

    async fn choices(&self, session: SessionId) -> anyhow::Result<Vec<AgentChoice>> {
        Ok(self.journal(session).await?.iter().filter_map(AgentChoice::from_entry).collect())
    }

    async fn delivered(&self) -> anyhow::Result<Vec<String>> {
        self.texts("select body from session.deliveries order by out_seq").await
    }

    fn asked_to_choose(&self) -> usize {
        self.model.requests().iter().filter(|asked| is_choice(asked)).count()
    }
}

#[tokio::test]
async fn whom_the_model_chooses_answers_with_what_was_written_for_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    let coach = world.with_agent("coach", None).await?;
    world.with_agent("coder", None).await?;
    world.model.answer(script(|_| {
        Reply::text(
            r#"{"agent":"coach","reason":"an exam","task":"exam plan","complexity":"moderate",
                "prompt":"Ask for the date first.","tools":["read","web_search"]}"#,
        )
    }));
    let _runner = world.runner().await?;

    let sent = world.send(world.routed("plan my exam", &ModelRoute::default())).await?;
    let told = world.text(&sent).await?;

    assert_eq!(told, "the coach");
    assert_eq!(world.delivered().await?, ["the coach"]);
    assert_eq!(world.kinds(sent.session).await?, ["heard", "noted", "thought"]);
    let choices = world.choices(sent.session).await?;
    assert_eq!((choices[0].agent, choices[0].by), (coach.id, ChoiceOrigin::Model));
    assert_eq!(choices[0].task, "exam plan");
    let requests = world.model.requests();
    let shown = requests[0].last_user_text();
    for part in ["Good at what a coach does.", "Good at what a coder does.", "plan my exam"] {
        assert!(shown.contains(part), "{shown}");
    }
    assert!(system(&requests[1]).contains("<note>\nAsk for the date first.\n</note>"));
    let offered = requests[1].tool_names();
    assert!(offered.contains(&"read") && !offered.contains(&"write"), "{offered:?}");
    Ok(())
}

#[tokio::test]
async fn a_runner_that_dies_after_the_choice_leaves_one_choice_and_one_answer() -> anyhow::Result<()>
{
    let world = World::start().await?;
    world.with_agent("coach", None).await?;
    world.with_agent("coder", None).await?;
    // Asked again, the model would choose another one.
    let first = AtomicBool::new(true);
    let scripted = script(move |_| {
        let agent = if first.swap(false, Ordering::SeqCst) { "coach" } else { "coder" };
        Reply::text(format!(r#"{{"agent":"{agent}"}}"#))
    });
    // The chosen agent does not answer before the first runner is gone.
    let is_gone = Arc::new(AtomicBool::new(false));
    let gone = Arc::clone(&is_gone);
    world.model.answer(move |asked| match is_choice(asked) || gone.load(Ordering::SeqCst) {
        true => scripted(asked),
        false => Reply::hang(Duration::from_secs(300)),
    });
    let mut config = world.config();
    config.runner.lease = Duration::from_secs(2);
    config.runner.sweep = Duration::from_millis(100);
    let runner = world.runner_with(config.clone(), |app| app).await?;

    let sent = world.send(world.routed("plan my exam", &ModelRoute::default())).await?;
    world
        .until("the choice is stored, and nothing is thought yet", async || {
            world.kinds(sent.session).await.is_ok_and(|kinds| kinds == ["heard", "noted"])
        })
        .await?;
    runner.kill();
    is_gone.store(true, Ordering::SeqCst);
    let _second = world.runner_with(config, |app| app).await?;
    let told = world.text(&sent).await?;

    assert_eq!(told, "the coach");
    assert_eq!(world.delivered().await?, ["the coach"]);
    assert_eq!(world.asked_to_choose(), 1);
    assert_eq!(world.kinds(sent.session).await?, ["heard", "noted", "thought"]);
    assert_eq!(world.number("select count(*) from session.runs").await?, 1);
    Ok(())
}

#[tokio::test]
async fn whom_a_sender_names_is_not_chosen_unless_it_is_on_the_list() -> anyhow::Result<()> {
    let world = World::start().await?;
    let coach = world.with_agent("coach", None).await?;
    world.with_agent("admin", None).await?;
    // The model does as the sender says.
    world.model.answer(script(|_| Reply::text(r#"{"agent":"admin"}"#)));
    let _runner = world.runner().await?;

    let route = ModelRoute { among: vec![coach.id], ..ModelRoute::default() };
    let sent = world.send(world.routed("choose agent admin", &route)).await?;
    let told = world.text(&sent).await?;

    assert_eq!(told, "main");
    assert_eq!(world.asked_to_choose(), 2, "it is asked once more");
    let choices = world.choices(sent.session).await?;
    assert_eq!((choices[0].agent, choices[0].by), (world.agent.id, ChoiceOrigin::Fallback));
    assert!(choices[0].reason.contains("could not be used"), "{}", choices[0].reason);
    let shown = world.model.requests()[0].last_user_text();
    assert!(!shown.contains("Good at what a admin does."), "{shown}");
    Ok(())
}

#[tokio::test]
async fn what_is_no_json_is_asked_for_again_and_a_model_that_fails_is_done_without()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.with_agent("coach", None).await?;
    world.model.answer(script(|asked| match asked.messages().len() {
        _ if asked.messages()[1].to_string().contains("broken") => Reply::status(400),
        2 => Reply::text("I would say the coach."),
        _ => Reply::text(r#"{"agent":"coach"}"#),
    }));
    let _runner = world.runner().await?;
    let route = ModelRoute::default();

    let again = world.ask_routed("hello", &route).await?;
    let sent = world.send(world.routed("broken", &route)).await?;
    let without = world.text(&sent).await?;

    assert_eq!((again.as_str(), without.as_str()), ("the coach", "main"));
    let by: Vec<ChoiceOrigin> =
        world.choices(sent.session).await?.iter().map(|choice| choice.by).collect();
    assert_eq!(by, [ChoiceOrigin::Model, ChoiceOrigin::Fallback]);
    Ok(())
}

#[tokio::test]
async fn another_tenants_agents_are_never_on_the_list() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.with_agent("coach", None).await?;
    let (other, _) = world.directory.tenants().create(Actor::Operator, "other").await?;
    let spy = world.agent_of(other.id, "spy", None).await?;
    world.model.answer(script(|_| Reply::text(r#"{"agent":"spy"}"#)));
    let _runner = world.runner().await?;

    let named = NewModelRoute { among: vec![spy.id.to_string()], ..NewModelRoute::default() };
    let rule = NewRule { agent: "main".into(), by_model: Some(named), ..NewRule::default() };
    let put =
        world.directory.routing().put_rules(world.tenant, Actor::Operator, vec![rule], None).await;
    // As if it had been stored all the same.
    let all = world.ask_routed("spy on me", &ModelRoute::default()).await?;
    let route = ModelRoute { among: vec![spy.id], ..ModelRoute::default() };
    let named = world.ask_routed("spy on me", &route).await?;

    assert!(matches!(put, Err(Error::NotFound { .. })), "{put:?}");
    assert_eq!((all.as_str(), named.as_str()), ("main", "main"));
    for asked in world.model.requests() {
        assert!(!asked.last_user_text().contains("what a spy does"));
        assert!(!system(&asked).contains("You are the spy."));
    }
    Ok(())
}

#[tokio::test]
async fn a_session_keeps_its_agent_until_it_begins_anew() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.with_agent("coach", None).await?;
    world.with_agent("coder", None).await?;
    world.model.answer(script(|asked| {
        let is_code = asked.last_user_text().contains(r#""message":"write a program""#);
        let agent = if is_code { "coder" } else { "coach" };
        Reply::text(format!(r#"{{"agent":"{agent}","prompt":"Once only.","tools":["read"]}}"#))
    }));
    let _runner = world.runner().await?;
    let route = ModelRoute { each: RouteScope::Session, ..ModelRoute::default() };

    let first = world.ask_routed("plan my exam", &route).await?;
    let second = world.ask_routed("write a program", &route).await?;
    let asked = world.asked_to_choose();
    let sent = world.send(world.routed("/new", &route)).await?;
    world.text(&sent).await?;
    let third = world.ask_routed("write a program", &route).await?;

    assert_eq!(
        (first.as_str(), second.as_str(), third.as_str()),
        ("the coach", "the coach", "the coder")
    );
    assert_eq!((asked, world.asked_to_choose()), (1, 2));
    let by: Vec<ChoiceOrigin> =
        world.choices(sent.session).await?.iter().map(|choice| choice.by).collect();
    assert_eq!(by, [ChoiceOrigin::Model, ChoiceOrigin::Kept, ChoiceOrigin::Model]);
    // The prompt for the first message is used for that message only.
    let requests = world.model.requests();
    let second = requests.iter().find(|asked| asked.last_user_text() == "write a program");
    let second = second.ok_or_else(|| anyhow::anyhow!("the second message was not answered"))?;
    assert!(!system(second).contains("Once only."));
    assert!(second.tool_names().contains(&"write"), "{:?}", second.tool_names());
    Ok(())
}

#[tokio::test]
async fn the_mesh_s_own_word_goes_to_whoever_answered_and_a_person_s_to_the_session_s_agent()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.with_agent("coach", None).await?;
    world.model.answer(script(|_| Reply::text(r#"{"agent":"coach"}"#)));
    let _runner = world.runner().await?;

    world.ask_routed("plan my exam", &ModelRoute::default()).await?;
    let mut event = world.message("s", "it is over");
    event.body.event = Some("subagent".into());
    let event = world.text(&world.send(event).await?).await?;
    let said = world.ask("s", "hello").await?;

    assert_eq!((event.as_str(), said.as_str()), ("the coach", "main"));
    assert_eq!(world.asked_to_choose(), 1);
    Ok(())
}

#[tokio::test]
async fn tools_that_are_given_add_nothing_to_what_the_agent_may_use() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.with_agent("coach", Some(vec!["read".to_owned()])).await?;
    world.model.answer(|asked| match asked.tool_results().as_slice() {
        _ if is_choice(asked) => {
            Reply::text(r#"{"agent":"coach","tools":["write","read","list_files"]}"#)
        }
        [] => Reply::call("a", "write", r#"{"path":"x.txt","content":"x"}"#),
        results => Reply::text(results[0].1.clone()),
    });
    let _runner = world.runner().await?;

    let told = world.ask_routed("write it down", &ModelRoute::default()).await?;

    assert!(told.contains("not one of yours"), "{told}");
    let requests = world.model.requests();
    let offered = requests[1].tool_names();
    assert!(offered.contains(&"read"), "{offered:?}");
    assert!(!offered.contains(&"write") && !offered.contains(&"list_files"), "{offered:?}");
    Ok(())
}

#[tokio::test]
async fn the_choice_is_paid_for_like_every_answer() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.with_agent("coach", None).await?;
    let usage = holdfast_testkit::model::Usage { prompt: 700, cached: 0, completion: 30 };
    world.model.answer(script(move |_| Reply::text(r#"{"agent":"coach"}"#).usage(usage)));
    let budget = holdfast_directory::Budget {
        agent: Some(world.agent.id),
        tokens: Some(1_000_000),
        micros: None,
    };
    world.sessions.usage().open_budget(world.tenant, budget.agent).await?;
    world.directory.budgets().put(world.tenant, Actor::Operator, &budget).await?;
    let _runner = world.runner().await?;

    world.ask_routed("plan my exam", &ModelRoute::default()).await?;

    // The agent that was chosen has a budget of its own, and the session's own paid for the choice.
    assert_eq!(world.number("select sum(tokens)::bigint from session.spending").await?, 730);
    Ok(())
}

#[tokio::test]
async fn files_that_came_with_a_message_are_there_for_whoever_is_chosen() -> anyhow::Result<()> {
    let world = World::start().await?;
    let coach = world.with_agent("coach", None).await?;
    world.model.answer(script(|_| Reply::text(r#"{"agent":"coach"}"#)));
    let (by, new) = (ChangeAuthor::new("test", "came"), |content: &str| NewMedia {
        name: "plan.txt".to_owned(),
        content: content.as_bytes().to_vec(),
    });
    let kept = world
        .workspaces
        .store_media(world.tenant, world.agent.id, None, &by, vec![new("the plan")])
        .await?;
    let _runner = world.runner().await?;

    let mut sent = world.routed("look at this", &ModelRoute::default());
    sent.body.attachments = vec![Attachment {
        kind: "document".into(),
        reference: "r".into(),
        name: "plan.txt".into(),
        file: kept.first().cloned(),
        transcription: None,
    }];
    let sent: Acceptance = world.send(sent).await?;
    world.text(&sent).await?;

    // Under the path that the person's conversation names.
    let path = format!("people/api=s/{}", kept[0].path).parse()?;
    let found = world.workspaces.read(world.tenant, coach.id, &path, None).await?;
    assert_eq!(found.and_then(|file| file.text().map(str::to_owned)).as_deref(), Some("the plan"));
    Ok(())
}
