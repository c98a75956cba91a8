//! States, DID and version of agents over gRPC.

use holdfast_proto::gateway::v1::{
    self as pb, agents_client::AgentsClient, behaviors_client::BehaviorsClient,
    files_client::FilesClient,
};
use tonic::{Code, Status, transport::Channel};

use crate::world::World;

async fn agents(world: &World) -> AgentsClient<Channel> {
    AgentsClient::new(world.channel().await.unwrap())
}

async fn get(world: &World, agent: &str) -> pb::Agent {
    let request = world.anna.request(pb::GetAgentRequest { agent: agent.into() });
    agents(world).await.get_agent(request).await.unwrap().into_inner().agent.unwrap()
}

async fn set(world: &World, agent: &str, state: &str) -> Result<String, Status> {
    let request = pb::SetAgentStateRequest { agent: agent.into(), state: state.into() };
    let changed = agents(world).await.set_agent_state(world.anna.request(request)).await?;
    Ok(changed.into_inner().agent.unwrap().state)
}

#[tokio::test]
async fn an_agent_is_disabled_enabled_and_archived_and_events_tell_of_it() {
    let world = World::start().await.unwrap();
    let coach = pb::Agent { name: "coach".into(), ..Default::default() };
    let create = world.anna.request(pb::CreateAgentRequest { agent: Some(coach) });
    let made = agents(&world).await.create_agent(create).await.unwrap().into_inner().agent.unwrap();
    assert_eq!(made.state, "sleeping");
    assert!(made.did.starts_with("urn:holdfast:agent:"), "{}", made.did);
    assert_ne!(made.did, get(&world, "main").await.did);

    for state in ["disabled", "disabled", "archived"] {
        assert_eq!(set(&world, "coach", state).await.unwrap(), state);
        assert_eq!(get(&world, "coach").await.state, state);
    }
    assert_eq!(set(&world, "coach", "enabled").await.unwrap(), "sleeping");
    assert_eq!(set(&world, "main", "disabled").await.unwrap(), "disabled");
    // A change of settings leaves the state as it is.
    let update =
        pb::UpdateAgentRequest { agent: Some(get(&world, "main").await), base_version: None };
    let changed = agents(&world).await.update_agent(world.anna.request(update)).await.unwrap();
    assert_eq!(changed.into_inner().agent.unwrap().state, "disabled");

    let refused = set(&world, "main", "archived").await.unwrap_err();
    assert!(refused.message().contains("is the default agent"), "{refused:?}");
    let wrong = set(&world, "main", "asleep").await.unwrap_err();
    assert_eq!(wrong.code(), Code::InvalidArgument);
    let events = format!(
        "select kind || ' ' || (detail->>'reason') from control.tenant_events
         where detail->>'agent' = '{}' and kind like 'agent.%abled' order by event_id",
        made.id
    );
    assert_eq!(
        world.texts(&events).await.unwrap(),
        ["agent.disabled person", "agent.disabled archived", "agent.enabled person"]
    );
}

#[tokio::test]
async fn an_agent_without_hit_points_is_shown_as_disabled_and_enabling_restores_them() {
    let world = World::start().await.unwrap();
    let hit_points = Some(pb::HitPointSettings::default());
    let update = pb::Agent { hit_points, ..get(&world, "main").await };
    let update =
        world.anna.request(pb::UpdateAgentRequest { agent: Some(update), base_version: None });
    agents(&world).await.update_agent(update).await.unwrap();
    let exhaust = "with new as (
             insert into work.hit_points (tenant_id, agent_id, level, at, disabled_at)
             select tenant_id, agent_id, 0, clock_timestamp(), clock_timestamp()
             from control.agents returning 1)
         select count(*) from new";
    world.number(exhaust).await.unwrap();

    assert_eq!(get(&world, "main").await.state, "disabled");
    assert_eq!(set(&world, "main", "enabled").await.unwrap(), "sleeping");
    assert_eq!(get(&world, "main").await.state, "sleeping");
}

#[tokio::test]
async fn the_version_of_an_agent_grows_with_settings_behaviours_and_its_defining_files() {
    let world = World::start().await.unwrap();
    let before = get(&world, "main").await;

    let update = pb::Agent { description: "helps".into(), ..before.clone() };
    let update =
        world.anna.request(pb::UpdateAgentRequest { agent: Some(update), base_version: None });
    let updated = agents(&world).await.update_agent(update).await.unwrap().into_inner();
    let updated = updated.agent.unwrap().version;
    assert!(updated > before.version);

    let source = "name: greet\nprocess_rule: Greet.\n".to_owned();
    let put = pb::PutBehaviorRequest { agent: "main".into(), source, ..Default::default() };
    let mut behaviors = BehaviorsClient::new(world.channel().await.unwrap());
    behaviors.put_behavior(world.anna.request(put)).await.unwrap();
    let with_behavior = get(&world, "main").await.version;
    assert!(with_behavior > updated);

    let mut files = FilesClient::new(world.channel().await.unwrap());
    let mut write = async |path: &str| {
        let request = pb::WriteFileRequest {
            agent: "main".into(),
            path: path.into(),
            content: b"You keep the garden.".to_vec(),
            ..Default::default()
        };
        files.write_file(world.anna.request(request)).await.unwrap();
        get(&world, "main").await.version
    };
    let with_role = write("role.md").await;
    assert!(with_role > with_behavior);
    assert_eq!(write("notes.txt").await, with_role);
}

#[tokio::test]
async fn a_change_that_is_based_on_an_older_version_of_an_agent_changes_nothing() {
    let world = World::start().await.unwrap();
    let before = get(&world, "main").await;
    let update = async |description: &str, base_version| {
        let agent = pb::Agent { description: description.to_owned(), ..before.clone() };
        let update = pb::UpdateAgentRequest { agent: Some(agent), base_version };
        agents(&world).await.update_agent(world.anna.request(update)).await
    };

    update("first", Some(before.version)).await.unwrap();
    let late = update("second", Some(before.version)).await.unwrap_err();

    assert_eq!(late.code(), Code::Aborted);
    assert!(late.message().contains("read it again"), "{late}");
    assert_eq!(get(&world, "main").await.description, "first");
    update("third", None).await.unwrap();
    assert_eq!(get(&world, "main").await.description, "third");
}
