//! Nodes connect with their tokens, and with nothing else.

use holdfast_proto::gateway::v1::{
    self as pb, AttachRequest, AttachResponse, agents_client::AgentsClient, attach_request::Said,
    attach_response::Asked, nodes_client::NodesClient,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming, transport::Channel};

use crate::world::{Tenant, World};

async fn client(world: &World) -> anyhow::Result<NodesClient<Channel>> {
    Ok(NodesClient::new(world.channel().await?))
}

/// Creates a node of Anna's and returns its token.
async fn laptop(world: &World) -> anyhow::Result<Tenant> {
    let create = pb::CreateNodeRequest { name: "laptop".into(), used_by: String::new() };
    let made = client(world).await?.create_node(world.anna.request(create)).await?.into_inner();
    Ok(world.anna.by(&made.token))
}

type Attached = (mpsc::Sender<AttachRequest>, Streaming<AttachResponse>);

async fn attach(world: &World, who: &Tenant, protocol: u32) -> Result<Attached, Status> {
    let (says, said) = mpsc::channel(8);
    let hello = pb::NodeHello {
        protocol,
        platform: "linux".into(),
        version: "1".into(),
        commands: vec!["git *".into()],
    };
    says.send(AttachRequest { said: Some(Said::Hello(hello)) }).await.unwrap();
    let mut client = client(world).await.unwrap();
    let asked = client.attach(who.request(ReceiverStream::new(said))).await?;
    Ok((says, asked.into_inner()))
}

async fn shown(world: &World) -> anyhow::Result<pb::Node> {
    let get = pb::GetNodeRequest { node: "laptop".into() };
    let got = client(world).await?.get_node(world.anna.request(get)).await?;
    Ok(got.into_inner().node.unwrap_or_default())
}

#[tokio::test]
async fn a_node_is_welcomed_shown_and_ended_when_its_token_is_revoked() {
    let world = World::start().await.unwrap();
    let laptop = laptop(&world).await.unwrap();
    assert!(!shown(&world).await.unwrap().connected);

    let (_says, mut asked) = attach(&world, &laptop, 1).await.unwrap();
    let welcome = asked.message().await.unwrap().unwrap();

    assert!(matches!(welcome.asked, Some(Asked::Welcome(told)) if told.name == "laptop"));
    let node = shown(&world).await.unwrap();
    assert!(node.connected && node.last_seen_at.is_some());
    assert_eq!((node.platform.as_str(), node.commands), ("linux", vec!["git *".to_owned()]));

    let revoke = pb::RevokeNodeRequest { node: "laptop".into() };
    let mut nodes = client(&world).await.unwrap();
    nodes.revoke_node(world.anna.request(revoke)).await.unwrap();
    let ended = asked.message().await.unwrap_err();
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended}");
    let again = attach(&world, &laptop, 1).await.unwrap_err();
    assert_eq!(again.code(), Code::Unauthenticated, "{again}");
}

#[tokio::test]
async fn a_node_s_token_opens_nothing_but_its_own_connection() {
    let world = World::start().await.unwrap();
    let laptop = laptop(&world).await.unwrap();

    let mut nodes = client(&world).await.unwrap();
    let listed = nodes.list_nodes(laptop.request(pb::ListNodesRequest {})).await;
    assert_eq!(listed.unwrap_err().code(), Code::PermissionDenied);
    let mut agents = AgentsClient::new(world.channel().await.unwrap());
    let listed = agents.list_agents(laptop.request(pb::ListAgentsRequest {})).await;
    assert_eq!(listed.unwrap_err().code(), Code::PermissionDenied);
    let said = pb::SendRequest { text: "hi".into(), ..Default::default() };
    assert_eq!(world.send(&laptop, said).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(world.get(&laptop, "/v1/models").send().await.unwrap().status(), 401);
}

#[tokio::test]
async fn who_speaks_another_version_or_has_an_api_key_is_told() {
    let world = World::start().await.unwrap();
    let laptop = laptop(&world).await.unwrap();

    let (_says, mut asked) = attach(&world, &laptop, 2).await.unwrap();
    let told = asked.message().await.unwrap_err();
    assert_eq!(told.code(), Code::InvalidArgument);
    assert!(told.message().contains("speaks version 2"), "{told}");

    let told = attach(&world, &world.anna, 1).await.unwrap_err();
    assert_eq!(told.code(), Code::PermissionDenied);
    assert!(told.message().contains("not an API key"), "{told}");
    let stranger = world.anna.by(&format!("{}x", &laptop.key[..laptop.key.len() - 1]));
    let told = attach(&world, &stranger, 1).await.unwrap_err();
    assert_eq!(told.code(), Code::Unauthenticated, "{told}");
}

#[tokio::test]
async fn setting_a_node_up_needs_the_scope_admin_and_a_name_of_its_own() {
    let world = World::start().await.unwrap();
    laptop(&world).await.unwrap();
    let reader = world.anna.by(&world.key(&world.anna, &["read"], None).await.unwrap());
    let mut nodes = client(&world).await.unwrap();
    let create = |name: &str| pb::CreateNodeRequest { name: name.into(), used_by: String::new() };

    let refused = nodes.create_node(reader.request(create("desk"))).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let revoke = pb::RevokeNodeRequest { node: "laptop".into() };
    let refused = nodes.revoke_node(reader.request(revoke)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(nodes.list_nodes(reader.request(pb::ListNodesRequest {})).await.is_ok());
    let taken = nodes.create_node(world.anna.request(create("laptop"))).await.unwrap_err();
    assert!(taken.message().contains("there is a node `laptop` already"), "{taken}");
    for name in ["", "A b", "../x"] {
        let refused = nodes.create_node(world.anna.request(create(name))).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{name}");
    }
    let somebody = pb::CreateNodeRequest { name: "desk".into(), used_by: "anna".into() };
    let refused = nodes.create_node(world.anna.request(somebody)).await.unwrap_err();
    assert!(refused.message().contains("`anna` is nobody"), "{refused}");
}

#[tokio::test]
async fn a_gateway_that_stops_lets_its_nodes_go_to_another() {
    let mut world = World::start().await.unwrap();
    let laptop = laptop(&world).await.unwrap();
    let (_says, mut asked) = attach(&world, &laptop, 1).await.unwrap();
    asked.message().await.unwrap().unwrap();

    world.stop.cancel();

    assert_eq!(asked.message().await.unwrap_err().code(), Code::Unavailable);
    let served = world.served.take().unwrap();
    tokio::time::timeout(crate::world::PATIENCE, served).await.unwrap().unwrap().unwrap();
}
