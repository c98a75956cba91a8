//! Tool policies over gRPC: read, checked, replaced with a version check, and explained.

use std::time::Duration;

use holdfast_directory::KnownTool;
use holdfast_proto::gateway::v1::{
    self as pb, agents_client::AgentsClient, mcp_servers_client::McpServersClient,
    policies_client::PoliciesClient, routing_client::RoutingClient,
};
use holdfast_session::{Cleanup, NewSubagent, SubagentAccess};
use holdfast_types::SessionKey;
use tonic::{Code, Status, transport::Channel};

use crate::world::{Tenant, World, message};

async fn policies(world: &World) -> PoliciesClient<Channel> {
    PoliciesClient::new(world.channel().await.unwrap())
}

async fn put(
    world: &World,
    of: &Tenant,
    agent: &str,
    document: &str,
    base_version: Option<i64>,
) -> Result<pb::PutPolicyResponse, Status> {
    let (agent, document) = (agent.to_owned(), document.to_owned());
    let request = of.request(pb::PutPolicyRequest { agent, document, base_version });
    Ok(policies(world).await.put_policy(request).await?.into_inner())
}

async fn explain(
    world: &World,
    of: &Tenant,
    request: pb::ExplainToolsRequest,
) -> pb::ExplainToolsResponse {
    let request = of.request(request);
    policies(world).await.explain_tools(request).await.unwrap().into_inner()
}

fn line<'a>(explained: &'a pb::ExplainToolsResponse, tool: &str) -> &'a str {
    let found = explained.decisions.iter().find(|decision| decision.tool == tool);
    found.map_or("", |decision| &decision.line)
}

async fn announce(world: &World, names: &[&str]) {
    let tool = |name: &&str| KnownTool { name: (*name).to_owned(), summary: format!("{name}s") };
    let tools: Vec<KnownTool> = names.iter().map(tool).collect();
    world.directory.policies().announce_tools(&tools).await.unwrap();
}

#[tokio::test]
async fn a_policy_is_read_checked_and_replaced_only_on_what_was_read() {
    let world = World::start().await.unwrap();
    announce(&world, &["read", "exec"]).await;
    let get = pb::GetPolicyRequest { agent: String::new() };
    let mut client = policies(&world).await;

    let empty = client.get_policy(world.anna.request(get.clone())).await.unwrap().into_inner();
    let check = pb::CheckPolicyRequest {
        document: r#"{"deny":["nonsense"]}"#.into(),
        ..Default::default()
    };
    let checked = client.check_policy(world.anna.request(check)).await.unwrap().into_inner();
    let first =
        put(&world, &world.anna, "", r#"{"deny":["exec","nonsense"]}"#, Some(0)).await.unwrap();
    let stale = put(&world, &world.anna, "", "{}", Some(0)).await.unwrap_err();
    let unknown = put(&world, &world.anna, "", r#"{"denies":["exec"]}"#, None).await.unwrap_err();
    let wrong = put(&world, &world.anna, "", r#"{"owners":["7"]}"#, None).await.unwrap_err();
    let now = client.get_policy(world.anna.request(get.clone())).await.unwrap().into_inner();
    let bens = client.get_policy(world.ben.request(get)).await.unwrap().into_inner();

    let empty = empty.policy.unwrap();
    assert_eq!((empty.document.as_str(), empty.version), ("{}", 0));
    let warned = "`nonsense` in `tools.deny` covers no tool";
    assert_eq!(
        (checked.warnings.as_slice(), first.warnings.as_slice()),
        ([warned.to_owned()].as_slice(), [warned.to_owned()].as_slice())
    );
    assert!(matches!(stale.code(), Code::Aborted | Code::FailedPrecondition), "{stale:?}");
    assert!(stale.message().contains("read it again"), "{stale:?}");
    assert_eq!(unknown.code(), Code::InvalidArgument);
    assert!(unknown.message().contains("denies"), "{unknown:?}");
    assert!(wrong.message().contains("telegram:12345"), "{wrong:?}");
    let now = now.policy.unwrap();
    assert_eq!((now.document.as_str(), now.version), (r#"{"deny":["exec","nonsense"]}"#, 1));
    assert_eq!(bens.policy.unwrap().version, 0);
}

#[tokio::test]
async fn only_an_admin_writes_a_policy() {
    let world = World::start().await.unwrap();
    let key = world.key(&world.anna, &["chat", "read"], None).await.unwrap();
    let who = world.anna.by(&key);

    let refused = put(&world, &who, "", "{}", None).await.unwrap_err();

    assert_eq!(refused.code(), Code::PermissionDenied);
    let explained = explain(&world, &who, pb::ExplainToolsRequest::default()).await;
    assert_eq!(explained.agent, "main");
}

#[tokio::test]
async fn every_tool_is_explained_for_whoever_is_asked_about() {
    let world = World::start().await.unwrap();
    announce(&world, &["read", "exec", "cron", "agents_list", "image"]).await;
    let document = r#"{"deny":["group:automation"],"owners":["telegram:7"],
        "roles":{"vip":["telegram:8"]},
        "visibility":[{"tools":["agents_list"],"roles":["owner","vip"]}]}"#;
    put(&world, &world.anna, "", document, None).await.unwrap();
    put(&world, &world.anna, "main", r#"{"deny":["image"]}"#, None).await.unwrap();
    let ask = |user: &str, kind: &str| pb::ExplainToolsRequest {
        user: user.into(),
        kind: kind.into(),
        ..Default::default()
    };

    let main = explain(&world, &world.anna, ask("", "")).await;
    let group = explain(&world, &world.anna, ask("telegram:9", "group")).await;
    let vip = explain(&world, &world.anna, ask("telegram:8", "dm")).await;
    let bens = explain(&world, &world.ben, ask("", "")).await;

    assert_eq!(main.roles, ["owner"]);
    assert_eq!(line(&main, "agents_list"), "agents_list: allow: no layer removes it");
    assert_eq!(
        line(&main, "cron"),
        "cron: deny by layer 3 (global): denied by `group:automation` in tools.deny"
    );
    assert_eq!(
        line(&main, "image"),
        "image: deny by layer 5 (agent): denied by `image` in agent.tools.deny"
    );
    assert_eq!(group.roles, ["guest"]);
    assert!(line(&group, "exec").starts_with("exec: deny by layer 7 (chat)"), "{group:?}");
    assert!(
        line(&group, "agents_list").starts_with("agents_list: deny by visibility"),
        "{group:?}"
    );
    assert!(line(&vip, "agents_list").starts_with("agents_list: allow"), "{vip:?}");
    assert_eq!(main.decisions[0].summary, "agents_lists");
    // Another tenant's policy is neither shown nor changed.
    assert!(bens.decisions.iter().all(|decision| decision.decision != "deny"), "{bens:?}");
}

#[tokio::test]
async fn the_sandbox_mode_of_a_conversation_is_explained_with_what_it_removes() {
    let world = World::start().await.unwrap();
    announce(&world, &["read", "write", "exec"]).await;
    let document = r#"{"chats":[{"kind":"dm","sandbox_mode":"restricted"}],
        "sandbox":{"deny":["read"]}}"#;
    put(&world, &world.anna, "", document, None).await.unwrap();
    let of = |kind: &str| pb::ExplainToolsRequest { kind: kind.into(), ..Default::default() };

    let main = explain(&world, &world.anna, of("main")).await;
    let api = explain(&world, &world.anna, of("api")).await;
    let dm = explain(&world, &world.anna, of("dm")).await;

    let modes = [&main, &api, &dm].map(|explained| explained.sandbox_mode.as_str());
    assert_eq!(modes, ["off", "isolated", "restricted"]);
    assert_eq!(line(&main, "read"), "read: allow: no layer removes it");
    assert_eq!(
        line(&api, "read"),
        "read: deny by layer 8 (sandbox): denied by `read` in tools.sandbox.deny"
    );
    assert_eq!(line(&api, "exec"), "exec: allow: no layer removes it");
    for tool in ["exec", "write"] {
        let expected = format!(
            "{tool}: deny by layer 8 (sandbox): denied by `{tool}` in the default list for \
             restricted mode"
        );
        assert_eq!(line(&dm, tool), expected);
    }
}

#[tokio::test]
async fn profiles_and_the_default_lists_of_models_and_subagents_are_explained() {
    let world = World::start().await.unwrap();
    let tools = ["read", "exec", "image", "browser", "cron", "memory_search", "session_status"];
    announce(&world, &tools).await;
    let of = |kind: &str, model: &str| pb::ExplainToolsRequest {
        kind: kind.into(),
        model: model.into(),
        ..Default::default()
    };

    let ollama = explain(&world, &world.anna, of("main", "ollama:qwen3")).await;
    let older = explain(&world, &world.anna, of("main", "openai:gpt-3.5-turbo")).await;
    let subagent = explain(&world, &world.anna, of("subagent", "")).await;
    put(&world, &world.anna, "", r#"{"profile":"coding"}"#, None).await.unwrap();
    let coding = explain(&world, &world.anna, of("main", "")).await;

    for (explained, tool, expected) in [
        (&ollama, "image", "deny by layer 4 (global_provider)"),
        (&ollama, "browser", "allow"),
        (&older, "browser", "deny by layer 4 (global_provider)"),
        (&older, "image", "allow"),
        (&subagent, "cron", "deny by layer 9 (subagent)"),
        (&subagent, "memory_search", "deny by layer 9 (subagent)"),
        (&subagent, "session_status", "deny by layer 9 (subagent)"),
        (&subagent, "read", "allow"),
        (&coding, "exec", "allow"),
        (&coding, "memory_search", "allow"),
        (&coding, "cron", "deny by layer 1 (profile)"),
        (&coding, "browser", "deny by layer 1 (profile)"),
    ] {
        let told = line(explained, tool);
        assert!(told.starts_with(&format!("{tool}: {expected}: ")), "{told}");
    }
}

#[tokio::test]
async fn what_mcp_servers_bring_is_explained_for_an_admin_who_asks_for_it() {
    let world = World::start().await.unwrap();
    announce(&world, &["read"]).await;
    put(&world, &world.anna, "", r#"{"deny":["group:mcp:notes"]}"#, None).await.unwrap();
    let mut servers = McpServersClient::new(world.channel().await.unwrap());
    for name in ["notes", "maps"] {
        let server = pb::McpServer {
            name: name.into(),
            transport: "http".into(),
            url: "https://a.example/mcp".into(),
            enabled: true,
            ..Default::default()
        };
        let put = pb::PutMcpServerRequest { server: Some(server), ..Default::default() };
        servers.put_mcp_server(world.anna.request(put)).await.unwrap();
    }
    let ask = pb::ExplainToolsRequest { mcp: true, ..Default::default() };

    let plain = explain(&world, &world.anna, pb::ExplainToolsRequest::default()).await;
    let all = explain(&world, &world.anna, ask.clone()).await;
    let bens = explain(&world, &world.ben, ask.clone()).await;
    let reader = world.key(&world.anna, &["read"], None).await.unwrap();
    let refused = policies(&world).await.explain_tools(world.anna.by(&reader).request(ask)).await;

    assert_eq!(plain.decisions.len(), 1);
    // The test runner names a server's tool after the server.
    assert_eq!(line(&all, "maps"), "maps: allow: no layer removes it");
    assert!(line(&all, "notes").contains("denied by `group:mcp:notes` in tools.deny"), "{all:?}");
    assert_eq!((bens.decisions.len(), all.away.len()), (1, 0));
    assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test]
async fn a_subagents_session_is_explained_with_its_bundle() {
    let world = World::start().await.unwrap();
    announce(&world, &["read", "write", "exec"]).await;
    let sent = world.send(&world.anna, message("hi")).await.unwrap();
    let parent = sent.session_id.parse().unwrap();
    let given = SubagentAccess {
        bundle: "readers".into(),
        tools: Some(vec!["read".into(), "exec".into()]),
        fs_read: Some(vec!["notes".into()]),
        fs_write: None,
        branch: None,
        files_of: None,
    };
    let agent = world.directory.agents().default_agent(world.anna.id).await.unwrap();
    let new = NewSubagent {
        key: SessionKey::subagent(&agent.name, "reader").unwrap(),
        agent: agent.id,
        parent,
        label: "reader".into(),
        task: "read".into(),
        outside: false,
        cleanup: Cleanup::Keep,
        max_steps: None,
        max_tokens: None,
        max_duration: Duration::from_secs(60),
        most: 5,
        given,
        model: None,
        thinking: None,
        await_timeout: None,
        place: None,
        trace: None,
    };
    let (child, _) = world.sessions.subagents().spawn(world.anna.id, new).await.unwrap();

    let request = pb::ExplainToolsRequest { session: child.to_string(), ..Default::default() };
    let explained = explain(&world, &world.anna, request).await;

    assert_eq!(explained.kind, "subagent");
    assert_eq!(line(&explained, "read"), "read: allow: no layer removes it");
    assert!(line(&explained, "write").starts_with("write: deny by layer 9"), "{explained:?}");
    // Commands are left out because a command could read all files.
    assert!(line(&explained, "exec").starts_with("exec: deny"), "{explained:?}");
}

#[tokio::test]
async fn a_session_is_explained_for_the_people_of_its_last_turn() {
    let world = World::start().await.unwrap();
    announce(&world, &["read", "agents_list"]).await;
    let document = r#"{"visibility":[{"tools":["agents_list"],"roles":["admin"]}]}"#;
    put(&world, &world.anna, "", document, None).await.unwrap();
    let chat = world.key(&world.anna, &["chat"], None).await.unwrap();
    let mut explained = Vec::new();
    for (who, session) in [(&world.anna, "of-admin"), (&world.anna.by(&chat), "of-member")] {
        let sent = pb::SendRequest { session: session.into(), ..message("hi") };
        let sent = world.send(who, sent).await.unwrap();
        world.follow(who, &sent.message_id).await.unwrap();
        let request = pb::ExplainToolsRequest { session: sent.session_id, ..Default::default() };
        explained.push(explain(&world, &world.anna, request).await);
    }

    let [admin, member] = explained.as_slice() else { panic!("{explained:?}") };
    assert_eq!(
        (admin.kind.as_str(), admin.roles.join(" ").as_str()),
        ("api", "admin member owner")
    );
    assert!(line(admin, "agents_list").starts_with("agents_list: allow"), "{admin:?}");
    assert_eq!(member.roles, ["member"]);
    assert!(line(member, "agents_list").contains("visibility"), "{member:?}");
}

#[tokio::test]
async fn entries_of_agents_and_rules_that_name_no_tool_are_answered_as_warnings() {
    let world = World::start().await.unwrap();
    announce(&world, &["read", "exec", "web_fetch"]).await;
    let mut agents = AgentsClient::new(world.channel().await.unwrap());
    let mut routing = RoutingClient::new(world.channel().await.unwrap());
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let agent = pb::Agent {
        name: "helper".into(),
        tools: names(&["bash", "web", "nonsense", "mcp_github_issues", "group:mcp:notes"]),
        ..Default::default()
    };

    let create = pb::CreateAgentRequest { agent: Some(agent.clone()) };
    let made = agents.create_agent(world.anna.request(create)).await.unwrap().into_inner();
    let tools = names(&["read"]);
    let update = pb::UpdateAgentRequest {
        agent: Some(pb::Agent { tools, ..agent.clone() }),
        base_version: None,
    };
    let changed = agents.update_agent(world.anna.request(update)).await.unwrap().into_inner();
    let rule = pb::Rule {
        agent: "helper".into(),
        channel: "telegram".into(),
        tools: names(&["shell", "reed"]),
        ..Default::default()
    };
    let put = pb::PutRulesRequest { rules: vec![rule], ..Default::default() };
    let put = routing.put_rules(world.anna.request(put)).await.unwrap().into_inner();

    assert_eq!(made.warnings, ["`nonsense` in `tools` covers no tool"]);
    assert_eq!(changed.warnings, Vec::<String>::new());
    assert_eq!(put.warnings, ["`reed` in `rules[0].tools` covers no tool"]);
    // What is not known is stored all the same: its tool may come later.
    assert_eq!(made.agent.unwrap().tools, agent.tools);
}

#[tokio::test]
async fn an_agent_may_have_no_tools_or_all_and_says_which() {
    let world = World::start().await.unwrap();
    let mut agents = AgentsClient::new(world.channel().await.unwrap());
    let agent = |tools: &[&str], no_tools| pb::Agent {
        name: "main".into(),
        is_default: true,
        tools: tools.iter().map(|&tool| tool.to_owned()).collect(),
        no_tools,
        ..Default::default()
    };
    let mut update = async |agent: pb::Agent| {
        let update = pb::UpdateAgentRequest { agent: Some(agent), base_version: None };
        let updated = agents.update_agent(world.anna.request(update)).await?;
        Ok::<_, Status>(updated.into_inner().agent.unwrap())
    };

    let none = update(agent(&[], true)).await.unwrap();
    let stored = world.directory.agents().default_agent(world.anna.id).await.unwrap();
    let all = update(agent(&[], false)).await.unwrap();
    let both = update(agent(&["read"], true)).await.unwrap_err();

    assert!(none.no_tools && none.tools.is_empty(), "{none:?}");
    assert_eq!(stored.settings.tools, Some(Vec::new()));
    assert!(!all.no_tools && all.tools.is_empty(), "{all:?}");
    let unset = world.directory.agents().default_agent(world.anna.id).await.unwrap();
    assert_eq!(unset.settings.tools, None);
    assert_eq!(both.code(), Code::InvalidArgument, "{both}");
}
