//! MCP servers: access by agents, and protection of their secrets.

use std::collections::BTreeMap;

use holdfast_directory::{Error, McpTransport, NewMcpServer};
use holdfast_types::TenantId;
use secrecy::ExposeSecret as _;

use crate::world::{BY, World};

pub fn server(name: &str, url: &str, secret: Option<&str>) -> NewMcpServer {
    let secrets = secret.map(|secret| BTreeMap::from([("X-Key".to_owned(), secret.into())]));
    NewMcpServer {
        name: name.to_owned(),
        transport: McpTransport::Http { url: url.to_owned() },
        secrets,
        agents: Vec::new(),
        enabled: true,
        harmless: false,
    }
}

pub const HERE: &str = "https://here.example/mcp";

/// Returns the secrets of the tenant's servers, by name.
async fn presented(world: &World, tenant: TenantId) -> Vec<(String, Vec<String>)> {
    let open = world.again().mcp_servers().open(tenant).await.unwrap();
    let secrets = |secrets: Vec<(String, secrecy::SecretString)>| {
        secrets.into_iter().map(|(name, value)| format!("{name}={}", value.expose_secret()))
    };
    open.into_iter().map(|it| (it.server.name, secrets(it.secrets).collect())).collect()
}

#[tokio::test]
async fn what_is_presented_to_a_server_comes_back_and_is_nowhere_in_the_table() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let put = async |new| world.directory.mcp_servers().put(tenant.id, BY, new).await;

    put(server("x", HERE, Some("s3cret"))).await.unwrap();
    put(server("y", HERE, None)).await.unwrap();
    let kept = put(server("x", HERE, None)).await.unwrap();
    let row: String =
        sqlx::query_scalar("select jsonb_agg(to_jsonb(s))::text from control.mcp_servers s")
            .fetch_one(&mut world.admin().await)
            .await
            .unwrap();

    assert_eq!(kept.secret_names, ["X-Key"]);
    let expected = [("x".to_owned(), vec!["X-Key=s3cret".to_owned()]), ("y".to_owned(), vec![])];
    assert_eq!(presented(&world, tenant.id).await, expected);
    assert!(row.contains("X-Key") && !row.contains("s3cret"), "{row}");
    let other = world.with_another_kek().mcp_servers().open(tenant.id).await;
    assert!(matches!(other, Err(Error::Unsealable(_))), "{other:?}");
    assert_eq!(world.audit(tenant.id).await.last().unwrap().1, "mcp_server.put");
}

#[tokio::test]
async fn what_was_given_for_one_server_is_not_sent_to_another() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let put = async |new| world.directory.mcp_servers().put(tenant.id, BY, new).await;
    let command = |args: &[&str]| McpTransport::Stdio {
        command: "server".to_owned(),
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        network: false,
        keep: true,
    };
    put(server("x", HERE, Some("s3cret"))).await.unwrap();

    let elsewhere = put(server("x", "https://evil.example/", None)).await;
    let process = put(NewMcpServer { transport: command(&[]), ..server("x", "", None) }).await;
    let cleared = NewMcpServer { secrets: Some(BTreeMap::new()), ..server("x", HERE, None) };
    put(cleared).await.unwrap();
    let after = put(server("x", "https://evil.example/", None)).await;

    assert!(matches!(elsewhere, Err(Error::Invalid(_))), "{elsewhere:?}");
    assert!(matches!(process, Err(Error::Invalid(_))), "{process:?}");
    assert_eq!(after.unwrap().secret_names, Vec::<String>::new());
    assert_eq!(presented(&world, tenant.id).await, [("x".to_owned(), vec![])]);
    let new = NewMcpServer { transport: command(&["a b"]), ..server("p", "", None) };
    assert_eq!(put(new).await.unwrap().transport, command(&["a b"]));
}

#[tokio::test]
async fn a_server_is_for_the_agents_it_names_and_each_change_is_another_version() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let (one, two) = (world.agent(tenant.id, "one").await, world.agent(tenant.id, "two").await);
    let put = async |agents: &[&str]| {
        let agents = agents.iter().map(|&agent| agent.to_owned()).collect();
        let new = NewMcpServer { agents, ..server("x", HERE, None) };
        world.directory.mcp_servers().put(tenant.id, BY, new).await
    };

    let all = put(&[]).await.unwrap();
    let some = put(&["one", &one.id.to_string()]).await.unwrap();
    let missing = put(&["three"]).await;
    let (foreigner, _) = world.tenant("other").await;
    let foreign = world.agent(foreigner.id, "foreign").await;
    let foreign = put(&[&foreign.id.to_string()]).await;

    assert!(all.is_for(one.id) && all.is_for(two.id));
    assert!(some.is_for(one.id) && !some.is_for(two.id));
    assert_ne!(all.version, some.version);
    assert!(matches!(missing, Err(Error::NotFound { .. })), "{missing:?}");
    assert!(matches!(foreign, Err(Error::NotFound { .. })), "{foreign:?}");
}

#[tokio::test]
async fn another_tenant_s_server_is_not_there_and_one_that_is_off_is_not_opened() {
    let world = World::new().await;
    let ((ours, _), (theirs, _)) = (world.tenant("ours").await, world.tenant("theirs").await);
    let directory = &world.directory;
    directory.mcp_servers().put(theirs.id, BY, server("x", HERE, Some("theirs"))).await.unwrap();
    let off = NewMcpServer { enabled: false, ..server("off", HERE, None) };
    directory.mcp_servers().put(theirs.id, BY, off).await.unwrap();

    let missing = directory.mcp_servers().get(ours.id, "x").await.map(drop);
    let deleted = directory.mcp_servers().delete(ours.id, BY, "x").await;
    directory.mcp_servers().put(ours.id, BY, server("x", HERE, Some("ours"))).await.unwrap();

    for outcome in [missing, deleted] {
        assert!(matches!(outcome, Err(Error::NotFound { .. })), "{outcome:?}");
    }
    assert_eq!(presented(&world, ours.id).await, [("x".to_owned(), vec!["X-Key=ours".to_owned()])]);
    let expected = [("x".to_owned(), vec!["X-Key=theirs".to_owned()])];
    assert_eq!(presented(&world, theirs.id).await, expected);
    assert_eq!(directory.mcp_servers().list(theirs.id).await.unwrap().len(), 2);
    directory.mcp_servers().delete(ours.id, BY, "x").await.unwrap();
    assert_eq!(presented(&world, ours.id).await, []);
    assert_eq!(presented(&world, theirs.id).await, expected);
}
