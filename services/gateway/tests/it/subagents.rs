//! Messages to subagents: no API accepts one in a subagent's session (spec SUB-021). The owner uses
//! `Subagents` while the subagent runs.

use std::time::Duration;

use holdfast_proto::gateway::v1::{
    GetSessionRequest, PauseSessionRequest, ResumeSessionRequest, SendRequest,
    sessions_client::SessionsClient,
};
use holdfast_session::{Cleanup, NewSubagent, SubagentAccess};
use holdfast_types::{AgentName, SessionId, SessionKey};
use serde_json::json;
use tonic::Code;

use crate::world::{World, message};

/// Creates a subagent of a session of the tenant's default agent.
async fn spawn(world: &World, parent: SessionId, id: &str) -> (SessionId, SessionKey) {
    let agent = world.directory.agents().default_agent(world.anna.id).await.unwrap();
    let key = SessionKey::subagent(&AgentName::new("main"), id).unwrap();
    let new = NewSubagent {
        parent,
        key: key.clone(),
        agent: agent.id,
        label: "dig".into(),
        task: "dig".into(),
        outside: false,
        model: None,
        thinking: None,
        cleanup: Cleanup::Keep,
        max_duration: Duration::from_secs(600),
        max_steps: None,
        max_tokens: None,
        most: 8,
        given: SubagentAccess::default(),
        await_timeout: None,
        place: None,
        trace: None,
    };
    let (session, _) = world.sessions.subagents().spawn(world.anna.id, new).await.unwrap();
    (session, key)
}

#[tokio::test]
async fn no_door_takes_a_message_for_a_subagent() {
    let world = World::start().await.unwrap();
    let parent = world.stream(&world.anna, message("hi")).await.unwrap();
    let (session, key) = spawn(&world, parent[0].session_id.parse().unwrap(), "digger").await;
    let made_up = "agent:main:subagent:nobody";

    for named in [session.to_string(), key.to_string(), made_up.to_owned()] {
        let request = SendRequest { session: named.clone(), ..message("obey me") };
        let refused = world.send(&world.anna, request).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{named}");
        assert!(refused.message().contains("Subagents.SendToSubagent"), "{}", refused.message());
        // This API never treats a user's name as a key.
        let body = json!({
            "model": "holdfast", "user": named,
            "messages": [{"role": "user", "content": "obey me"}],
        });
        world.post(&world.anna, "/v1/chat/completions").json(&body).send().await.unwrap();
    }

    let view = world.sessions.views().session(world.anna.id, session).await.unwrap();
    let entries = world.sessions.views().history(world.anna.id, session, 100, None).await.unwrap();
    assert!(!format!("{entries:?}").contains("obey me"));
    assert!(view.waiting <= 1, "{}", view.waiting);
    let made = world.sessions.views().find(world.anna.id, &made_up.parse().unwrap()).await.unwrap();
    assert_eq!(made, None);
}

#[tokio::test]
async fn pausing_a_parent_pauses_its_subagents_and_resuming_it_only_those_it_paused() {
    let world = World::start().await.unwrap();
    let parent = world.stream(&world.anna, message("hi")).await.unwrap()[0].session_id.clone();
    let (with_parent, _) = spawn(&world, parent.parse().unwrap(), "one").await;
    let (by_hand, _) = spawn(&world, parent.parse().unwrap(), "two").await;
    let mut client = SessionsClient::new(world.channel().await.unwrap());
    let states = async || {
        let mut states = Vec::new();
        for session in [parent.clone(), with_parent.to_string(), by_hand.to_string()] {
            let mut client = SessionsClient::new(world.channel().await.unwrap());
            let get = world.anna.request(GetSessionRequest { session });
            let found = client.get_session(get).await.unwrap().into_inner().session.unwrap();
            states.push(found.state == "PAUSE");
        }
        states
    };

    let pause = |session| world.anna.request(PauseSessionRequest { session });
    client.pause_session(pause(by_hand.to_string())).await.unwrap();
    let paused = client.pause_session(pause(parent.clone())).await.unwrap().into_inner().paused;
    assert_eq!((paused, states().await), (2, vec![true, true, true]));
    let resume = world.anna.request(ResumeSessionRequest { session: parent.clone() });
    let resumed = client.resume_session(resume).await.unwrap().into_inner().resumed;

    assert_eq!((resumed, states().await), (2, vec![false, false, true]));
}
