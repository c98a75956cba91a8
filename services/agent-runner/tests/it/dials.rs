//! Directives: for a message, or for a conversation; who may; and what they show and let through.

use holdfast_directory::Actor;
use holdfast_llm::{ModelCard, ThinkingControl, ThinkingForm};
use holdfast_sandbox::BackendChoice;
use holdfast_session::{Acceptance, ApprovalFilter, NewMessage};
use holdfast_testkit::{Reply, model::Gate};
use holdfast_types::{ApprovalState, Author, Body, DmScope, Entry, SessionKey, Thinking};
use serde_json::json;

use crate::world::{World, place};

/// A direct message on a channel, of somebody with this role.
fn from(world: &World, role: &str, text: &str) -> NewMessage {
    let author = Author { id: "telegram:7".to_owned(), roles: vec![role.to_owned()] };
    let scope = DmScope::PerChannelPeer;
    NewMessage {
        key: SessionKey::direct(&world.agent.name, scope, "telegram", "default", "7").unwrap(),
        target: Some(place("7")),
        body: Body { author: Some(author), ..Body::text(text) },
        ..world.message("s", text)
    }
}

async fn ask(world: &World, role: &str, text: &str) -> anyhow::Result<(Acceptance, String)> {
    let sent = world.send(from(world, role, text)).await?;
    let answer = world.text(&sent).await?;
    Ok((sent, answer))
}

#[tokio::test]
async fn a_sender_who_is_not_verified_is_no_owner_and_links_no_account() -> anyhow::Result<()> {
    let world = World::start().await?;
    let owners = json!({ "owners": ["telegram:7"] });
    world.directory.policies().put(world.tenant, Actor::Operator, None, None, &owners).await?;
    let _runner = world.runner().await?;
    let ask_as = async |author: Author, text: &str| {
        let message = from(&world, "member", text);
        let body = Body { author: Some(author), ..message.body };
        let sent = world.send(NewMessage { body, ..message }).await?;
        world.text(&sent).await
    };
    let owner = || Author { id: "telegram:7".to_owned(), roles: Vec::new() };
    let claimed = || Author::unverified("telegram", "7");

    assert_eq!(ask_as(owner(), "/elevated full").await?, "Elevated: full");
    for (text, reply) in [
        ("/elevated full", "Only"),
        ("/link", "This channel cannot tell whether you are"),
        ("/link 123456", "This channel cannot tell whether you are"),
        ("/unlink", "This channel cannot tell whether you are"),
    ] {
        let answer = ask_as(claimed(), text).await?;
        assert!(answer.starts_with(reply), "{text}: {answer}");
    }
    Ok(())
}

/// Thinking level that the prompt mentions.
fn level(prompt: &str) -> String {
    let level = prompt.split("thinking=").nth(1).unwrap_or_default();
    level.chars().take_while(char::is_ascii_lowercase).collect()
}

/// Messages sent to the channel, in order.
async fn told(world: &World) -> anyhow::Result<Vec<String>> {
    world.texts("select body from session.deliveries order by out_seq, part").await
}

#[tokio::test]
async fn a_directive_holds_for_its_message_and_one_by_itself_for_the_conversation()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let thinking = ThinkingControl { by: ThinkingForm::Effort, ..ThinkingControl::default() };
    let card = ModelCard { context: 100_000, thinking, ..ModelCard::default() };
    let model = "fake:one".parse()?;
    world.directory.models().put(world.tenant, Actor::Operator, &model, &card).await?;
    let _runner = world.runner().await?;

    world.ask("s", "/think high what is 2+2?").await?;
    world.ask("s", "and 3+3?").await?;
    let set = world.ask("s", "/think low").await?;
    world.ask("s", "and 4+4?").await?;
    world.ask("s", "and 5+5? /think medium").await?;
    let shown = world.ask("s", "/think").await?;
    let status = world.ask("s", "/status").await?;

    let requests = world.model.requests();
    let levels: Vec<String> = requests.iter().map(|r| level(&r.body.to_string())).collect();
    assert_eq!(levels, ["high", "off", "low", "medium"]);
    let said: Vec<String> = requests.iter().map(|request| request.last_user_text()).collect();
    assert_eq!(said, ["what is 2+2?", "and 3+3?", "and 4+4?", "and 5+5?"]);
    assert!(!requests[3].body.to_string().contains("/think"), "{}", requests[3].body);
    assert_eq!((set.as_str(), shown.as_str()), ("Thinking: low", "Thinking: low"));
    assert!(status.contains("\nThinking: low\nVerbose: off\nReasoning: off\n"), "{status}");
    Ok(())
}

#[tokio::test]
async fn an_agents_thinking_level_holds_where_no_other_is_set_and_its_model_can_think()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let by_effort = ThinkingControl { by: ThinkingForm::Effort, ..ThinkingControl::default() };
    for (model, thinking) in [("fake:one", by_effort), ("fake:plain", ThinkingControl::default())] {
        let card = ModelCard { context: 100_000, thinking, ..ModelCard::default() };
        let model = model.parse()?;
        world.directory.models().put(world.tenant, Actor::Operator, &model, &card).await?;
    }
    world.change_agent(|agent| agent.settings.thinking = Thinking::Medium).await?;
    let _runner = world.runner().await?;

    world.ask("a", "hello").await?;
    let shown = world.ask("a", "/think").await?;
    let status = world.ask("a", "/status").await?;
    world.ask("a", "/think high what is 2+2?").await?;
    world.ask("a", "/think off").await?;
    world.ask("a", "hello again").await?;
    world.ask("b", "/model fake:plain").await?;
    let plain = world.ask("b", "/think").await?;
    world.ask("b", "hello").await?;

    let requests = world.model.requests();
    let levels: Vec<String> = requests.iter().map(|r| level(&r.body.to_string())).collect();
    assert_eq!(levels, ["medium", "high", "off", "off"]);
    assert_eq!(
        (shown.as_str(), plain.as_str()),
        ("Thinking: medium (the assistant's)", "Thinking: off")
    );
    assert!(status.contains("\nThinking: medium (the assistant's)\nVerbose: off\n"), "{status}");
    Ok(())
}

#[tokio::test]
async fn calls_are_told_on_the_channel_as_they_happen_and_their_results_in_full()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    let calls = || [Reply::call("a", "agents_list", "{}"), Reply::text("done")];

    world.model.queue(calls());
    ask(&world, "member", "/verbose full who is there?").await?;
    world.model.queue(calls());
    ask(&world, "member", "and now?").await?;
    ask(&world, "member", "/verbose on").await?;
    world.model.queue(calls());
    ask(&world, "member", "once more").await?;

    let told = told(&world).await?;
    assert_eq!(told[0], "Calling `agents_list`");
    assert!(told[1].starts_with("`agents_list` is done:\n```\n- main"), "{}", told[1]);
    assert_eq!(told[2..4], ["done", "done"]);
    assert_eq!(
        told[4..],
        ["Verbose: on", "Calling `agents_list`", "`agents_list` is done", "done"]
    );
    Ok(())
}

#[tokio::test]
async fn what_is_told_of_a_call_is_sent_before_the_call_is_over() -> anyhow::Result<()> {
    let world = World::start().await?;
    let looked = Gate::default();
    let _runner = world.runner().await?;
    world.model.queue([Reply::call("a", "agents_list", "{}"), Reply::text("done").behind(&looked)]);

    let sent = world.send(from(&world, "member", "/verbose on who is there?")).await?;
    world
        .until("it is told", async || told(&world).await.is_ok_and(|told| told.len() == 2))
        .await?;
    let open = world.sessions.views().answer(world.tenant, sent.message).await?;

    assert_eq!(open.outcome, None);
    looked.open();
    assert_eq!(world.text(&sent).await?, "done");
    Ok(())
}

#[tokio::test]
async fn thinking_is_shown_before_the_answer_to_those_who_asked_and_is_in_no_history()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    let thinking = || Reply::text("<think>\nsecretly\n</think>\n<final>Yes.</final>");

    world.model.queue([thinking()]);
    let (_, plain) = ask(&world, "member", "is it?").await?;
    ask(&world, "member", "/reasoning on").await?;
    world.model.queue([thinking()]);
    let (sent, shown) = ask(&world, "member", "is it?").await?;
    ask(&world, "member", "so").await?;

    assert_eq!((plain.as_str(), shown.as_str()), ("Yes.", "Yes."));
    let told = told(&world).await?;
    assert_eq!(told[..4], ["Yes.", "Reasoning: on", "Thinking:\n> secretly", "Yes."]);
    let journal = format!("{:?}", world.journal(sent.session).await?);
    assert!(!journal.contains("secretly"), "{journal}");
    let last = world.model.requests().pop().unwrap().body.to_string();
    assert!(!last.contains("secretly") && !last.contains("think>"), "{last}");
    Ok(())
}

#[tokio::test]
async fn a_model_that_thinks_in_its_text_is_told_how_to_mark_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    let thinking = ThinkingControl { by: ThinkingForm::Marks, ..ThinkingControl::default() };
    let card = ModelCard { context: 100_000, thinking, ..ModelCard::default() };
    let model = "fake:one".parse()?;
    world.directory.models().put(world.tenant, Actor::Operator, &model, &card).await?;
    let _runner = world.runner().await?;
    world.model.queue([Reply::text("plain"), Reply::text("So. <final>Yes.</final>")]);

    assert_eq!(world.ask("s", "is it?").await?, "plain");
    assert_eq!(world.ask("s", "/think low is it?").await?, "Yes.");

    let told: Vec<bool> = world
        .model
        .requests()
        .iter()
        .map(|request| request.body.to_string().contains("## Reasoning Format"))
        .collect();
    assert_eq!(told, [false, true]);
    Ok(())
}

#[tokio::test]
async fn a_guest_is_shown_nothing_that_the_agent_keeps_to_itself() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    world.model.queue([Reply::call("a", "agents_list", "{}"), Reply::text("<think>a</think>b")]);

    let (_, refused) = ask(&world, "guest", "/verbose on").await?;
    ask(&world, "guest", "/verbose full /reasoning on go").await?;
    let (_, elevated) = ask(&world, "member", "/elevated full").await?;

    assert!(refused.contains("not for guests"), "{refused}");
    assert!(elevated.contains("Only the owner"), "{elevated}");
    assert_eq!(told(&world).await?[1], "b");
    Ok(())
}

/// Runs a command for somebody, and says what the model was told of it; `None` if they are asked.
async fn run(world: &World, role: &str, text: &str) -> anyhow::Result<Option<String>> {
    let input = json!({ "command": "echo out" }).to_string();
    world.model.queue([Reply::call("a", "exec", input), Reply::text("done")]);
    let sent = world.send(from(world, role, text)).await?;
    let all = ApprovalFilter {
        state: Some(ApprovalState::Pending),
        session: None,
        person: None,
        limit: 5,
        after: None,
    };
    let pending = async || world.sessions.approvals().list(world.tenant, all).await;
    let is_settled = async || {
        let answer = world.sessions.views().answer(world.tenant, sent.message).await;
        pending().await.is_ok_and(|asked| !asked.is_empty())
            || answer.is_ok_and(|answer| answer.outcome.is_some())
    };
    world.until("it ran, or somebody is asked", is_settled).await?;
    if let Some(asked) = pending().await?.pop() {
        let deny = holdfast_types::ApprovalDecision::Deny;
        world
            .sessions
            .approvals()
            .resolve(world.tenant, asked.id, holdfast_session::NewDecision::new(deny, "key_test"))
            .await?;
        world.text(&sent).await?;
        return Ok(None);
    }
    let journal = world.journal(sent.session).await?;
    let mut outputs = journal.into_iter().filter_map(|entry| match entry {
        Entry::Returned { output, .. } => Some(output),
        _ => None,
    });
    Ok(outputs.next_back())
}

#[tokio::test]
async fn the_owner_gives_their_word_beforehand_for_their_own_turns_and_nobody_elses()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let policy = json!({ "exec": { "ask": "always" } });
    world.directory.policies().put(world.tenant, Actor::Operator, None, None, &policy).await?;
    let mut config = world.config();
    // The scripted model answers turns only.
    config.runner.summaries = 0;
    config.runner.sandbox.backend = BackendChoice::Bubblewrap;
    let _runner = world.runner_with(config, |app| app).await?;

    assert_eq!(run(&world, "owner", "go").await?, None);
    let once = run(&world, "owner", "/elevated full go").await?.unwrap_or_default();
    assert!(once.contains("\nout\n"), "{once}");
    assert_eq!(run(&world, "owner", "go").await?, None);
    assert_eq!(ask(&world, "owner", "/elevated full").await?.1, "Elevated: full");
    let always = run(&world, "owner", "go").await?.unwrap_or_default();
    assert!(always.contains("\nout\n"), "{always}");
    assert_eq!(run(&world, "member", "go").await?, None);
    assert_eq!(run(&world, "member", "/elevated full go").await?, None);
    assert_eq!(ask(&world, "owner", "/elevated off").await?.1, "Elevated: off");
    let refused = run(&world, "owner", "go").await?.unwrap_or_default();
    assert!(refused.contains("/elevated off"), "{refused}");
    ask(&world, "owner", "/new").await?;
    assert_eq!(ask(&world, "owner", "/elevated").await?.1, "Elevated: ask");
    Ok(())
}
