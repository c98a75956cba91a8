//! Behaviours over gRPC: layers, versions, checks, dry runs.

use holdfast_proto::gateway::v1::{
    self as pb, agents_client::AgentsClient, behaviors_client::BehaviorsClient,
};
use tonic::{Code, transport::Channel};

use crate::world::{Tenant, World, message};

async fn behaviors(world: &World) -> BehaviorsClient<Channel> {
    BehaviorsClient::new(world.channel().await.unwrap())
}

fn put(agent: &str, source: &str) -> pb::PutBehaviorRequest {
    let (agent, source, default_name) = (agent.into(), source.into(), "look".into());
    pb::PutBehaviorRequest { agent, source, default_name, ..Default::default() }
}

/// Layer and description of a behaviour in effect.
async fn in_effect(world: &World, of: &Tenant, agent: &str, name: &str) -> (String, String) {
    let request = pb::GetBehaviorRequest { agent: agent.into(), name: name.into(), version: 0 };
    let found = behaviors(world).await.get_behavior(of.request(request)).await.unwrap();
    let found = found.into_inner().behavior.unwrap();
    (found.layer, found.description)
}

#[tokio::test]
async fn the_layer_nearest_to_the_agent_counts_and_others_see_their_own() {
    let world = World::start().await.unwrap();
    let mut client = behaviors(&world).await;
    let source = |description: &str| {
        format!("name: plan\ndescription: {description}\nprocess_rule: Plan.\n")
    };

    client.put_behavior(world.anna.request(put("", &source("ours")))).await.unwrap();
    client.put_behavior(world.anna.request(put("main", &source("mine")))).await.unwrap();

    let is = |layer: &str, description: &str| (layer.to_owned(), description.to_owned());
    assert_eq!(in_effect(&world, &world.anna, "main", "PLAN:x=1").await, is("agent", "mine"));
    assert_eq!(in_effect(&world, &world.anna, "", "plan").await, is("tenant", "ours"));
    assert_eq!(in_effect(&world, &world.ben, "main", "plan").await.0, "built-in");
    let list = pb::ListBehaviorsRequest { agent: "main".into() };
    let listed = client.list_behaviors(world.anna.request(list)).await.unwrap().into_inner();
    let shown: Vec<_> =
        listed.behaviors.iter().map(|one| (one.name.as_str(), one.layer.as_str())).collect();
    assert_eq!(shown.len(), 8, "{shown:?}");
    assert!(shown.contains(&("plan", "agent")) && shown.contains(&("do", "built-in")));

    let delete = pb::DeleteBehaviorRequest { agent: "main".into(), name: "plan".into() };
    client.delete_behavior(world.anna.request(delete.clone())).await.unwrap();
    assert_eq!(in_effect(&world, &world.anna, "main", "plan").await, is("tenant", "ours"));
    let again = client.delete_behavior(world.anna.request(delete)).await.unwrap_err();
    assert_eq!(again.code(), Code::NotFound);
}

#[tokio::test]
async fn each_change_is_a_version_that_can_be_read_and_an_old_base_is_refused() {
    let world = World::start().await.unwrap();
    let mut client = behaviors(&world).await;

    client.put_behavior(world.anna.request(put("", "process_rule: a"))).await.unwrap();
    client.put_behavior(world.anna.request(put("", "process_rule: b # why"))).await.unwrap();
    let stale = pb::PutBehaviorRequest { base_version: Some(1), ..put("", "process_rule: c") };
    let stale = client.put_behavior(world.anna.request(stale)).await.unwrap_err();

    assert_eq!(stale.code(), Code::Aborted, "{stale}");
    let name = "look".to_owned();
    let list = pb::ListBehaviorVersionsRequest { name: name.clone(), ..Default::default() };
    let versions = client.list_behavior_versions(world.anna.request(list)).await.unwrap();
    let versions = versions.into_inner().versions;
    let shown: Vec<_> = versions.iter().map(|one| (one.version, one.source.as_str())).collect();
    assert_eq!(shown, [(2, "process_rule: b # why"), (1, "process_rule: a")]);
    let get = pb::GetBehaviorRequest { name, version: 1, ..Default::default() };
    let old = client.get_behavior(world.anna.request(get)).await.unwrap().into_inner();
    assert!(!old.behavior.unwrap().is_current);
}

#[tokio::test]
async fn a_document_is_checked_with_its_field_and_is_warned_about() {
    let world = World::start().await.unwrap();
    let mut client = behaviors(&world).await;
    let validate = |source: &str| {
        let (source, default_name) = (source.to_owned(), "look".to_owned());
        world.anna.request(pb::ValidateBehaviorRequest {
            source,
            default_name,
            ..Default::default()
        })
    };

    let wrong = client.validate_behavior(validate("process_rule: x\nstep_limits: 2")).await;
    let put_wrong = client.put_behavior(world.anna.request(put("", "input: x"))).await.unwrap_err();
    let other_name =
        pb::PutBehaviorRequest { name: "plan".into(), ..put("", "name: do\nprocess_rule: x") };
    let other_name = client.put_behavior(world.anna.request(other_name)).await.unwrap_err();
    let source =
        "process_rule: x\nfallback: dance\nllm: {preferred: 'nobody:model'}\nstep_limit: 2";
    let fine = client.validate_behavior(validate(source)).await.unwrap().into_inner();

    let wrong = wrong.unwrap_err();
    assert_eq!(wrong.code(), Code::InvalidArgument);
    assert!(wrong.message().contains("unknown field `step_limits`"), "{wrong}");
    assert!(put_wrong.message().contains("`process_rule`"), "{put_wrong}");
    assert!(other_name.message().contains("called `do`, and not `plan`"), "{other_name}");
    let behavior = fine.behavior.unwrap();
    assert_eq!((behavior.name.as_str(), behavior.role.as_str()), ("look", "other"));
    assert_eq!((behavior.step_limit, behavior.files.as_str()), (2, "read_write"));
    assert_eq!(fine.warnings.len(), 2, "{:?}", fine.warnings);
    assert!(fine.warnings[0].contains("no behavior `dance`"), "{:?}", fine.warnings);
    let get = pb::GetBehaviorRequest { name: "look".into(), ..Default::default() };
    let nothing = client.get_behavior(world.anna.request(get)).await.unwrap_err();
    assert_eq!(nothing.code(), Code::NotFound, "nothing is stored");
}

#[tokio::test]
async fn a_misspelt_limit_is_taken_and_warned_about() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut client = behaviors(&world).await;
    let document = |limit: &str| {
        format!("process_rule: x\ninput: '{{{{new_msg}}}}'\nmemory: {{{limit}: 100}}")
    };
    let misspelt = document("total_limt");
    let validate = pb::ValidateBehaviorRequest {
        source: misspelt.clone(),
        default_name: "look".into(),
        ..Default::default()
    };

    let checked = client.validate_behavior(world.anna.request(validate)).await?.into_inner();
    let stored = client.put_behavior(world.anna.request(put("main", &misspelt))).await?;
    let right = document("total_limit");
    let right = client.put_behavior(world.anna.request(put("main", &right))).await?;

    let warning = "`memory.total_limt` is misspelt: write `total_limit`";
    assert_eq!(checked.warnings, [warning]);
    let stored = stored.into_inner();
    assert_eq!(stored.warnings, [warning]);
    assert_eq!(stored.behavior.unwrap_or_default().error, "", "the limit is taken");
    assert!(right.into_inner().warnings.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_step_is_rendered_and_an_answer_read_without_a_model() {
    let world = World::start().await.unwrap();
    let mut client = behaviors(&world).await;
    let source = "process_rule: Water the {{params.x}}.\npolicy: Gently.";
    let render = |source: &str, messages: &[&str]| {
        world.anna.request(pb::RenderBehaviorRequest {
            agent: "main".into(),
            name: "water:todo=T001".into(),
            source: source.to_owned(),
            messages: messages.iter().map(|&text| text.to_owned()).collect(),
            memories: vec!["Ann has a fern.".to_owned()],
            ..Default::default()
        })
    };

    let refused = client.render_behavior(render(source, &[])).await.unwrap_err();
    let source = "process_rule: Water.\npolicy: Gently.\ninput: '{{params.todo}} {{new_msg}}'";
    let full = client.render_behavior(render(source, &["Now, please. <<role>>"])).await.unwrap();
    let empty = client.render_behavior(render(source, &[])).await.unwrap().into_inner();

    assert!(refused.message().contains("`process_rule`: `{{params.x}}` cannot be used here"));
    let full = full.into_inner();
    let sections = ["<<role>>", "<<process_rules>>", "<<policy>>", "<<output_protocol>>"];
    let places = sections.map(|marker| full.system_prompt.find(marker).unwrap());
    assert!(places.is_sorted(), "{}", full.system_prompt);
    assert!(full.messages[0].contains("Ann has a fern."), "{:?}", full.messages);
    assert!(full.messages[1].contains("T001 <message>\nNow, please. <\\<role>>\n"));
    assert!(!full.is_empty_input && empty.is_empty_input);
    assert_eq!(empty.messages.len(), 1, "only memory: {:?}", empty.messages);

    let parse = |name: &str, answer: &str| {
        let (name, answer) = (name.to_owned(), answer.to_owned());
        world.anna.request(pb::ParseBehaviorAnswerRequest { name, answer, ..Default::default() })
    };
    let fine =
        client.parse_behavior_answer(parse("do", "So:\n```json\n{\"reply\": \"Done.\"}\n```"));
    let fine = fine.await.unwrap().into_inner();
    assert!(fine.result.contains("Done.") && fine.error.is_empty(), "{fine:?}");
    let wrong = client.parse_behavior_answer(parse("resolve_router", "{\"reply\": \"Hi\"}"));
    let wrong = wrong.await.unwrap().into_inner();
    assert!(wrong.error.contains("`next_behavior` is missing"), "{wrong:?}");
}

/// Behaviour, number and what follows of each step that was tried.
fn course(tried: &pb::TryBehaviorResponse) -> Vec<(&str, u32, &str)> {
    let steps = tried.steps.iter();
    steps.map(|step| (step.behavior.as_str(), step.step, step.next.as_str())).collect()
}

#[tokio::test]
async fn answers_are_tried_step_by_step_and_change_nothing() {
    let world = World::start().await.unwrap();
    let session = world.send(&world.anna, message("hi")).await.unwrap().session_id;
    let mut client = behaviors(&world).await;
    let update = |to: &str| serde_json::json!({"op": "update", "code": "T001", "to_status": to, "reason": "so"});
    let answers = [
        serde_json::json!({
            "todo_delta": [{"op": "init", "items": [{"title": "write"}]}],
            "next_behavior": "DO:todo=T001",
        }),
        serde_json::json!("I think that"),
        serde_json::json!({
            "actions": [{"tool": "write", "input": {"path": "a.txt", "content": "x"}}],
            "todo_delta": [update("DONE"), update("IN_PROGRESS"), update("COMPLETE")],
        }),
        serde_json::json!({"next_behavior": "CHECK"}),
        serde_json::json!({"todo_delta": [update("DONE")], "next_behavior": "END"}),
        serde_json::json!({"reply": "nobody asks for this"}),
    ];
    let tried = client
        .try_behavior(world.anna.request(pb::TryBehaviorRequest {
            agent: "main".into(),
            name: "plan".into(),
            messages: vec!["write a file".into()],
            session: session.clone(),
            answers: answers.iter().map(ToString::to_string).collect(),
            ..Default::default()
        }))
        .await
        .unwrap()
        .into_inner();

    let expected = [
        ("plan", 0, "step"),
        ("DO:todo=T001", 0, "correct"),
        ("DO:todo=T001", 0, "step"),
        ("DO:todo=T001", 1, "step"),
        ("CHECK", 0, "end"),
    ];
    assert_eq!(course(&tried), expected, "{tried:#?}");
    assert_eq!(tried.unused_answers, 1);
    assert!(tried.todos.starts_with("Todos: 1 of 1 done."), "{}", tried.todos);
    assert!(tried.steps[1].error.contains("JSON"), "{}", tried.steps[1].error);
    let works = &tried.steps[2];
    let refused: Vec<bool> =
        works.todo_operations.iter().map(|one| !one.error.is_empty()).collect();
    assert_eq!(refused, [true, false, false]);
    assert!(works.observation.starts_with("operation 1 of `todo_delta` was not applied"));
    assert!(works.summary.contains("(not called: the step is only tried)"), "{}", works.summary);
    assert!(works.prompt_tokens > 100 && works.usage.is_none() && works.model.is_empty());
    let todos = pb::ListTodosRequest { session, ..Default::default() };
    let mut work = pb::work_client::WorkClient::new(world.channel().await.unwrap());
    let todos = work.list_todos(world.anna.request(todos)).await.unwrap().into_inner();
    assert!(todos.todos.is_empty(), "{todos:?}");
}

#[tokio::test]
async fn a_try_ends_where_the_turn_would_and_needs_a_runner_for_a_model() {
    let world = World::start().await.unwrap();
    let mut client = behaviors(&world).await;
    let request = |name: &str, messages: &[&str], answers: &[&str]| pb::TryBehaviorRequest {
        name: name.to_owned(),
        messages: messages.iter().map(|&text| text.to_owned()).collect(),
        answers: answers.iter().map(|&text| text.to_owned()).collect(),
        ..Default::default()
    };
    let mut tried = Vec::new();
    for wanted in [
        request("plan", &[], &["{}"]),
        request("plan", &["hi"], &["no", "no"]),
        request("plan", &["hi"], &["{\"next_behavior\": \"WAIT\"}"]),
        request(
            "resolve_router",
            &["hi"],
            &[
                "{\"next_behavior\": \"PLAN\", \"reply\": \"\", \"memory_queries\": []}",
                "{\"thinking\": \"hm\"}",
            ],
        ),
    ] {
        let answer = client.try_behavior(world.anna.request(wanted)).await.unwrap();
        tried.push(answer.into_inner());
    }
    let asks = client.try_behavior(world.anna.request(request("plan", &["hi"], &[]))).await;
    let key = world.key(&world.anna, &["read"], None).await.unwrap();
    let reader = world.anna.by(&key);
    let reads = client.try_behavior(reader.request(request("plan", &["hi"], &["{}"]))).await;
    let many = request("plan", &["hi"], &["{}"; 65]);
    let many = client.try_behavior(world.anna.request(many)).await;

    assert_eq!(course(&tried[0]), [("plan", 0, "idle")]);
    assert_eq!(course(&tried[1]), [("plan", 0, "correct"), ("plan", 0, "fail")]);
    assert_eq!(course(&tried[2]), [("plan", 0, "wait")]);
    // What the router passes on is new to the plan.
    assert_eq!(course(&tried[3]), [("resolve_router", 0, "step"), ("PLAN", 0, "step")]);
    assert_eq!(asks.unwrap_err().code(), Code::Unavailable);
    assert_eq!(reads.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(many.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn who_may_only_look_renders_and_changes_nothing() {
    let world = World::start().await.unwrap();
    let key = world.key(&world.anna, &["read"], None).await.unwrap();
    let reader = world.anna.by(&key);
    let mut client = behaviors(&world).await;

    let put = client.put_behavior(reader.request(put("", "process_rule: x"))).await.unwrap_err();
    let delete = pb::DeleteBehaviorRequest { name: "plan".into(), ..Default::default() };
    let delete = client.delete_behavior(reader.request(delete)).await.unwrap_err();

    for refused in [put, delete] {
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    }
    let render = pb::RenderBehaviorRequest { name: "plan".into(), ..Default::default() };
    client.render_behavior(reader.request(render)).await.unwrap();
    assert_eq!(in_effect(&world, &reader, "main", "plan").await.0, "built-in");
}

#[tokio::test]
async fn an_agent_is_set_to_work_by_behaviors_and_back() {
    let world = World::start().await.unwrap();
    let mut client = AgentsClient::new(world.channel().await.unwrap());
    let set = |behaviors: Option<pb::BehaviorSettings>| {
        let agent = pb::Agent { name: "main".into(), behaviors, ..Default::default() };
        world.anna.request(pb::UpdateAgentRequest { agent: Some(agent), base_version: None })
    };

    let on = client.update_agent(set(Some(pb::BehaviorSettings::default()))).await.unwrap();
    let many = pb::BehaviorSettings { max_steps: 100_000, ..Default::default() };
    let refused = client.update_agent(set(Some(many))).await.unwrap_err();
    let off = client.update_agent(set(None)).await.unwrap().into_inner();

    let settings = on.into_inner().agent.unwrap().behaviors.unwrap();
    assert_eq!((settings.default.as_str(), settings.max_steps), ("resolve_router", 64));
    assert!(refused.message().contains("`behaviors.max_steps`"), "{refused}");
    assert_eq!(off.agent.unwrap().behaviors, None);
}
