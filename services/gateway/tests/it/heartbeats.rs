//! Settings and status of an agent's heartbeat. Its firings are tested with a scheduler and a
//! runner.

use holdfast_proto::gateway::v1::{
    self as pb, agents_client::AgentsClient, files_client::FilesClient,
    heartbeats_client::HeartbeatsClient,
};
use tonic::{Code, transport::Channel};

use crate::world::World;

async fn hearts(world: &World) -> HeartbeatsClient<Channel> {
    HeartbeatsClient::new(world.channel().await.unwrap())
}

async fn status(world: &World) -> pb::GetHeartbeatResponse {
    let request = world.anna.request(pb::GetHeartbeatRequest::default());
    hearts(world).await.get_heartbeat(request).await.unwrap().into_inner()
}

async fn write(world: &World, text: &str) {
    let request = pb::WriteFileRequest {
        path: "HEARTBEAT.md".into(),
        content: text.into(),
        ..Default::default()
    };
    let mut files = FilesClient::new(world.channel().await.unwrap());
    files.write_file(world.anna.request(request)).await.unwrap();
}

#[tokio::test]
async fn it_is_said_why_nothing_would_be_asked_now() {
    let world = World::start().await.unwrap();
    let mut hearts = hearts(&world).await;

    let first = status(&world).await;
    write(&world, "# Tasks\n").await;
    let empty = status(&world).await;
    write(&world, "- Is the oven on?\n").await;
    let full = status(&world).await;
    let off = pb::SetHeartbeatRequest { agent: "main".into(), enabled: false };
    hearts.set_heartbeat(world.anna.request(off)).await.unwrap();
    let off = status(&world).await;

    assert!(first.enabled && !first.beats && first.last.is_none());
    assert_eq!((first.agent.as_str(), first.every.as_str()), ("main", "5m"));
    assert_eq!((first.channel.as_str(), first.next.len()), ("session", 0));
    assert_eq!(empty.quiet, "empty-heartbeat-file");
    assert_eq!(full.quiet, "");
    assert_eq!((off.enabled, off.quiet.as_str()), (false, "disabled"));
}

#[tokio::test]
async fn it_can_be_asked_for_once_whether_or_not_it_ever_beat() {
    let world = World::start().await.unwrap();
    let mut hearts = hearts(&world).await;
    let request_id = uuid::Uuid::now_v7().to_string();
    let run = pb::RunHeartbeatRequest { agent: String::new(), request_id };

    let first = hearts.run_heartbeat(world.anna.request(run.clone())).await.unwrap().into_inner();
    let again = hearts.run_heartbeat(world.anna.request(run.clone())).await.unwrap().into_inner();
    let wrong = pb::RunHeartbeatRequest { request_id: "soon".into(), ..run };
    let wrong = hearts.run_heartbeat(world.anna.request(wrong)).await.unwrap_err();
    let events = world.anna.request(pb::ListHeartbeatEventsRequest::default());
    let events = hearts.list_heartbeat_events(events).await.unwrap().into_inner().events;

    assert!(first.ran && again.ran);
    assert_eq!(wrong.code(), Code::InvalidArgument);
    assert!(wrong.message().contains("no UUID"), "{}", wrong.message());
    assert_eq!(events, []);
}

#[tokio::test]
async fn what_an_agents_heartbeat_is_set_to_comes_back_or_is_refused_with_what_to_write() {
    let world = World::start().await.unwrap();
    let mut agents = AgentsClient::new(world.channel().await.unwrap());
    let get = pb::GetAgentRequest { agent: "main".into() };
    let agent = agents.get_agent(world.anna.request(get)).await.unwrap().into_inner().agent;
    let agent = agent.unwrap();
    let with = |change: fn(&mut pb::HeartbeatSettings)| {
        let mut heartbeat = agent.heartbeat.clone().unwrap_or_default();
        change(&mut heartbeat);
        let agent = Some(pb::Agent { heartbeat: Some(heartbeat), ..agent.clone() });
        world.anna.request(pb::UpdateAgentRequest { agent, base_version: None })
    };

    let set = with(|heart| heart.every = "1h".into());
    let set = agents.update_agent(set).await.unwrap().into_inner().agent.unwrap();

    assert_eq!(set.heartbeat.unwrap().every, "1h");
    assert_eq!(status(&world).await.every, "1h");
    for (change, told) in [
        ((|heart| heart.every = "often".into()) as fn(&mut pb::HeartbeatSettings), "often"),
        (|heart| heart.session = "elsewhere".into(), "write `main`"),
        (|heart| heart.model = "best".into(), "best"),
        (|heart| heart.target = "all".into(), "write main or last"),
        (
            |heart| {
                let (start, end) = ("8".into(), "22:00".into());
                heart.active_hours = Some(pb::ActiveHours { start, end, time_zone: "".into() });
            },
            "`8`",
        ),
    ] {
        let refused = agents.update_agent(with(change)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(told), "{}", refused.message());
    }
}
