//! The status says why messages wait, and what the reason is about.

use holdfast_proto::gateway::v1::{
    self as pb, BindWorkspaceRequest, CreateWorkspaceRequest, GetStatusRequest, SendRequest,
    WaitReason, agents_client::AgentsClient, operations_client::OperationsClient,
    workspaces_client::WorkspacesClient,
};
use holdfast_session::ShareChanges;

use crate::world::{World, message, until};

async fn reasons(world: &World) -> Vec<WaitReason> {
    let mut operations = OperationsClient::new(world.channel().await.unwrap());
    let status = operations.get_status(world.anna.request(GetStatusRequest {})).await.unwrap();
    status.into_inner().wait_reasons
}

/// Waits for a reason, and returns its group.
async fn reason(world: &World, reason: &str) -> WaitReason {
    until(async || reasons(world).await.into_iter().find(|group| group.reason == reason)).await
}

/// Sends a message to the session of this user; returns the session's id and key.
async fn send(world: &World, user: &str, text: &str) -> (String, String) {
    let sent = SendRequest { session: format!("agent:main:api:{user}"), ..message(text) };
    let accepted = world.send(&world.anna, sent).await.unwrap();
    let session = accepted.session_id.parse().unwrap();
    let view = world.sessions.views().session(world.anna.id, session).await.unwrap();
    (accepted.session_id, view.key)
}

/// Changes the lease of a session as a runner would that is not in this test.
async fn set_lease(world: &World, session: &str, values: &str) {
    let id = session.trim_start_matches("ses_");
    let sql = format!(
        "with new as (update session.session_lease set {values}
                      where session_id = '{id}' returning 1) select count(*) from new"
    );
    assert_eq!(world.number(&sql).await.unwrap(), 1);
}

#[tokio::test]
async fn a_paused_session_a_question_and_a_turn_that_runs_are_named() {
    let world = World::start().await.unwrap();
    assert_eq!(reasons(&world).await, []);

    let (asking, asking_key) = send(&world, "asking", "ask").await;
    let question = reason(&world, "approval").await;
    assert_eq!((question.object, question.messages), (asking_key, 1));
    assert!(!asking.is_empty());

    let (running, _) = send(&world, "running", "hold").await;
    world.until_runs(&world.anna, &running).await.unwrap();
    assert_eq!(reason(&world, "running").await.sessions, 1);

    let (paused, _) = send(&world, "paused", "hi").await;
    world.sessions.pause(world.anna.id, paused.parse().unwrap()).await.unwrap();
    let (_, paused_key) = send(&world, "paused", "are you there?").await;
    let found = reason(&world, "paused").await;
    assert_eq!(found.object, paused_key);
    assert!(found.messages >= 1 && found.sessions == 1, "{found:?}");
    assert!(reasons(&world).await.iter().all(|group| group.reason != "runner"));
}

#[tokio::test]
async fn a_workspace_that_another_session_holds_is_named_with_that_session() {
    let world = World::start().await.unwrap();
    let mut workspaces = WorkspacesClient::new(world.channel().await.unwrap());
    let garden = CreateWorkspaceRequest { name: "garden".into(), ..Default::default() };
    workspaces.create_workspace(world.anna.request(garden)).await.unwrap();
    let mut sessions = Vec::new();
    for user in ["first", "second"] {
        let (session, key) = send(&world, user, "hi").await;
        until(async || reasons(&world).await.is_empty().then_some(())).await;
        let bind = BindWorkspaceRequest { session: session.clone(), workspace: "garden".into() };
        workspaces.bind_workspace(world.anna.request(bind)).await.unwrap();
        sessions.push((session, key));
    }
    send(&world, "first", "hold").await;
    world.until_runs(&world.anna, &sessions[0].0).await.unwrap();

    send(&world, "second", "hi").await;

    let held = reason(&world, "workspace_held").await;
    assert_eq!((held.object.as_str(), held.holder), ("garden", sessions[0].1.clone()));
}

#[tokio::test]
async fn a_full_tenant_a_disabled_agent_and_a_suspended_tenant_are_named() {
    let world = World::start().await.unwrap();
    let share = ShareChanges { cap: Some(1), ..ShareChanges::default() };
    world.sessions.queues().set_share(world.anna.id, share).await.unwrap();
    let (running, _) = send(&world, "running", "hold").await;
    world.until_runs(&world.anna, &running).await.unwrap();

    send(&world, "next", "hi").await;
    send(&world, "after", "hi").await;
    let full = reason(&world, "tenant_cap").await;
    assert_eq!((full.object.as_str(), full.sessions, full.messages), ("1", 2, 2));

    let disable = pb::SetAgentStateRequest { agent: "main".into(), state: "disabled".into() };
    let mut agents = AgentsClient::new(world.channel().await.unwrap());
    agents.set_agent_state(world.anna.request(disable)).await.unwrap();
    let disabled = reason(&world, "agent_disabled").await;
    assert_eq!((disabled.object.as_str(), disabled.sessions), ("main", 2));

    world
        .number(
            "with new as (update session.tenant_queue set suspended = true returning 1)
                  select count(*) from new",
        )
        .await
        .unwrap();
    let groups = world.sessions.queues().wait_groups(world.anna.id).await.unwrap();
    assert!(groups.iter().any(|group| group.reason == "tenant_suspended"), "{groups:?}");
    assert_eq!(world.sessions.queues().wait_groups(world.ben.id).await.unwrap(), []);
}

#[tokio::test]
async fn another_attempt_a_rest_and_a_missing_runner_are_told_apart() {
    let world = World::start().await.unwrap();
    let (session, key) = send(&world, "late", "hold").await;
    world.until_runs(&world.anna, &session).await.unwrap();
    let ready = "state = 'READY', owner = null, lease_until = null, epoch = epoch + 1, \
                 fair_key = coalesce(fair_key, 0)";

    let later = "ready_at = clock_timestamp() + interval '1 hour'";
    set_lease(&world, &session, &format!("{ready}, {later}, retries = 2")).await;
    assert_eq!(reason(&world, "retry").await.object, key);

    set_lease(&world, &session, "retries = 0, attempts = 0").await;
    assert_eq!(reason(&world, "agent_rests").await.object, "main");

    // Held for a runner that is not here: nobody claims it.
    let other = "ready_at = clock_timestamp(), priority = 7";
    set_lease(&world, &session, other).await;
    assert_eq!(reason(&world, "runner").await.sessions, 1);
}
