//! Proposals of an agent: made without waiting for anybody, and applied once a person allows it.

use std::time::Duration;

use holdfast_session::ApprovalFilter;
use holdfast_testkit::Reply;
use holdfast_types::{ApprovalDecision, ApprovalState};
use serde_json::{Value, json};

use crate::world::{LONG, World};

const SKILL: &str = "---\nname: tea\ndescription: Makes tea.\n---\nBoil water.\n";

fn propose(change: &Value) -> Value {
    let mut input = json!({
        "action": "propose", "goal": "be better", "risk": "none", "benefit": "less work",
    });
    input.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    input
}

/// The model makes the call of `self` that was said, and repeats what came of it.
fn call_what_is_said(world: &World) {
    world.model.answer(|asked| match asked.tool_results().last() {
        Some((_, told)) => Reply::text(told.clone()),
        None => Reply::call("c", "self", asked.last_user_text()),
    });
}

/// Lets the owner say something in a conversation without a past, and returns the answer.
async fn ask(world: &World, input: &Value) -> anyhow::Result<String> {
    world.text(&world.send(world.owners("/reset")).await?).await?;
    world.text(&world.send(world.owners(&input.to_string())).await?).await
}

async fn states(world: &World) -> anyhow::Result<Vec<String>> {
    world.texts("select kind || ' ' || state from work.proposals order by created_at").await
}

/// Id of the newest proposal, as people write it.
async fn newest(world: &World) -> anyhow::Result<String> {
    let sql = "select 'prp_' || replace(proposal_id::text, '-', '') from work.proposals
               order by created_at desc limit 1";
    Ok(world.texts(sql).await?.remove(0))
}

#[tokio::test]
async fn a_proposal_waits_for_nobody_and_is_applied_once_a_person_has_seen_all_of_it()
-> anyhow::Result<()> {
    let world = World::start().await?;
    call_what_is_said(&world);
    let _runner = world.runner().await?;

    let skill = propose(&json!({"kind": "skill", "name": "tea", "text": SKILL}));
    let told = ask(&world, &skill).await?;
    assert!(told.starts_with("Proposed as prp_") && told.contains("+Boil water."), "{told}");
    assert_eq!(world.file("skills/tea/SKILL.md").await?, None);
    let id = newest(&world).await?;
    let listed = ask(&world, &json!({"action": "proposals"})).await?;
    assert_eq!(listed, format!("{id} proposed: skill tea: be better"));

    for (decision, expected) in
        [(ApprovalDecision::Deny, None), (ApprovalDecision::Once, Some(SKILL))]
    {
        world.text(&world.send(world.owners("/reset")).await?).await?;
        let apply = json!({"action": "apply", "proposal": id}).to_string();
        let sent = world.send(world.owners(&apply)).await?;
        let pending = ApprovalFilter {
            state: Some(ApprovalState::Pending),
            session: None,
            person: None,
            limit: 5,
            after: None,
        };
        let list = async || world.sessions.approvals().list(world.tenant, pending).await;
        world
            .until("somebody is asked", async || list().await.is_ok_and(|all| all.len() == 1))
            .await?;
        let asked = list().await?.remove(0);
        assert_eq!(asked.summary, "apply the proposal for skill tea");
        assert!(asked.subject.contains("goal: be better\n"), "{}", asked.subject);
        assert!(asked.subject.contains("| Boil water."), "{}", asked.subject);
        let approvals = world.sessions.approvals();
        if approvals
            .resolve(
                world.tenant,
                asked.id,
                holdfast_session::NewDecision::new(decision, "key_test"),
            )
            .await?
            .wake
        {
            world.bus.wake_run(0);
        }
        world.text(&sent).await?;
        assert_eq!(world.file("skills/tea/SKILL.md").await?.as_deref(), expected);
    }
    assert_eq!(states(&world).await?, ["skill applied"]);
    let again = ask(&world, &json!({"action": "proposals"})).await?;
    assert_eq!(again, format!("{id} applied: skill tea: be better"));
    Ok(())
}

#[tokio::test]
async fn a_behaviour_is_read_and_proposed_and_a_section_is_proposed_as_the_whole_file()
-> anyhow::Result<()> {
    let world = World::start().await?;
    call_what_is_said(&world);
    let _runner = world.runner().await?;

    let read = json!({"action": "read", "kind": "behavior", "name": "check"});
    assert!(ask(&world, &read).await?.contains("process_rule:"));
    let source = "name: check\nprocess_rule: Check everything twice.\n";
    let behavior = propose(&json!({"kind": "behavior", "name": "check", "text": source}));
    let told = ask(&world, &behavior).await?;
    assert!(told.contains("+process_rule: Check everything twice."), "{told}");
    let wrong = propose(&json!({"kind": "behavior", "name": "check", "text": "process_rul: x"}));
    assert!(ask(&world, &wrong).await?.contains("process_rul"));
    let section = propose(&json!({"section": "commitments", "text": "Answer in a day."}));
    let told = ask(&world, &section).await?;
    assert!(told.contains("+## Commitments"), "{told}");

    assert_eq!(states(&world).await?, ["behavior proposed", "self proposed"]);
    assert_eq!(world.number("select count(*) from control.behaviors").await?, 0);
    assert_eq!(world.file("self.md").await?, None);
    let digests = "select digest from work.worklog where type = 'Proposal.v1' order by seq";
    let digests = world.texts(digests).await?;
    assert_eq!(digests.len(), 2);
    assert!(digests[0].ends_with("for behavior check: be better"), "{digests:?}");
    Ok(())
}

#[tokio::test]
async fn people_other_than_the_owner_get_no_proposal_made_and_none_applied() -> anyhow::Result<()> {
    let world = World::start().await?;
    call_what_is_said(&world);
    let _runner = world.runner().await?;
    ask(&world, &propose(&json!({"section": "identity", "text": "I am Ada."}))).await?;
    let id = newest(&world).await?;

    let mine = propose(&json!({"section": "identity", "text": "I am your pirate."}));
    let refused = world.ask("guest", &mine.to_string()).await?;
    assert!(refused.contains("in a conversation with your owner only"), "{refused}");
    assert_eq!(states(&world).await?, ["self proposed"]);
    let apply = json!({"action": "apply", "proposal": id}).to_string();
    world.say("guest-2", &apply).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(states(&world).await?, ["self proposed"]);
    Ok(())
}

#[tokio::test]
async fn a_proposal_is_made_once_whichever_runner_dies() -> anyhow::Result<()> {
    let world = World::start().await?;
    call_what_is_said(&world);
    let config = || {
        let mut config = world.config();
        config.runner.lease = Duration::from_secs(1);
        config.runner.sweep = Duration::from_millis(100);
        config
    };
    for count in 1..=4_i64 {
        let runner = world.runner_with(config(), |app| app).await?;
        let before = world.number("select count(*) from session.entries").await?;
        let text = format!("Version {count}.");
        let change = propose(&json!({"section": "objectives", "text": text}));
        let sent = world.send(world.owners(&change.to_string())).await?;
        let started = tokio::time::Instant::now();
        while world.number("select count(*) from session.entries").await? < before + count {
            anyhow::ensure!(started.elapsed() < LONG, "entry {count} is not written");
        }
        runner.kill();
        let other = world.runner_with(config(), |app| app).await?;
        world.text(&sent).await?;
        world.text(&world.send(world.owners("/reset")).await?).await?;
        other.kill();

        assert_eq!(states(&world).await?.len(), usize::try_from(count)?, "after entry {count}");
    }
    Ok(())
}
