//! Each weakness of a tenant is found, and gone once it is mended.

use std::{collections::BTreeMap, time::Duration};

use holdfast_directory::{
    Actor, AgentSettings, Approver, DeviceProfile, DeviceUser, KnownTool, McpTransport, NewAccount,
    NewAgent, NewEventWebhook, NewKey, NewMcpServer, NewProvider, PersonChanges, ProviderKind,
    SignIn,
};
use holdfast_proto::gateway::v1::{
    CheckInstallationRequest, CheckSecurityRequest, SecurityFinding,
    security_client::SecurityClient,
};
use holdfast_types::{DmScope, PersonId, TenantRole};
use serde_json::{Value, json};
use tonic::{Code, transport::Channel};

use crate::world::{Tenant, World};

const BY: Actor = Actor::Operator;

/// Findings of a tenant by their checks.
async fn findings(
    client: &mut SecurityClient<Channel>,
    who: &Tenant,
) -> BTreeMap<String, SecurityFinding> {
    let checked = client.check_security(who.request(CheckSecurityRequest {})).await.unwrap();
    let findings = checked.into_inner().findings;
    findings.into_iter().map(|finding| (finding.id.clone(), finding)).collect()
}

/// Asserts that there are findings of these checks and no others.
async fn assert_found(client: &mut SecurityClient<Channel>, who: &Tenant, expected: &[&str]) {
    let found = findings(client, who).await;
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), expected, "{found:#?}");
    for finding in found.values() {
        assert!(!finding.about.is_empty() && !finding.why.is_empty(), "{finding:?}");
        assert!(!finding.command.is_empty(), "{finding:?}");
    }
}

/// A world in whose first tenant nothing is weak, with a key of an owner.
async fn safe_world() -> (World, Tenant, SecurityClient<Channel>) {
    let world = World::start().await.unwrap();
    let client = SecurityClient::new(world.channel().await.unwrap());
    let day = Duration::from_secs(24 * 3600);
    let owner = world.anna.by(&world.key(&world.anna, &["owner"], Some(day)).await.unwrap());
    (world, owner, client)
}

async fn revoke_first_key(world: &World) {
    let keys = world.directory.keys();
    let all = keys.list(world.anna.id).await.unwrap();
    keys.revoke(world.anna.id, BY, all[0].id).await.unwrap();
}

async fn sign_in(world: &World, name: &str, role: TenantRole) -> PersonId {
    let said = SignIn {
        tenant: world.anna.id.to_string(),
        issuer: "invitation".to_owned(),
        subject: name.to_owned(),
        name: name.to_owned(),
        role,
    };
    world.directory.people().sign_in(&said).await.unwrap().person
}

fn new_key(scope: &str, person: Option<PersonId>) -> NewKey {
    NewKey {
        name: "the page's".to_owned(),
        scopes: vec![scope.to_owned()],
        lifetime: None,
        person,
        agent: None,
        origins: Vec::new(),
    }
}

#[tokio::test]
async fn weak_keys_and_people_are_found_until_they_are_mended() {
    let (world, owner, mut client) = Box::pin(safe_world()).await;
    let (tenant, keys) = (world.anna.id, world.directory.keys());
    let (people, devices) = (world.directory.people(), world.directory.devices());

    assert_found(&mut client, &owner, &["key-never-expires"]).await;
    revoke_first_key(&world).await;
    assert_found(&mut client, &owner, &[]).await;

    let (page, _) = keys.create(tenant, BY, new_key("guest", None)).await.unwrap();
    assert_found(&mut client, &owner, &["key-published-without-origins"]).await;
    let command = &findings(&mut client, &owner).await["key-published-without-origins"].command;
    assert!(
        command.starts_with(r"holdfast keys create 'the page'\''s' --scope guest"),
        "{command}"
    );
    keys.revoke(tenant, BY, page.id).await.unwrap();
    assert_found(&mut client, &owner, &[]).await;

    let mut last = None;
    for name in ["ada", "ben", "cem"] {
        last = Some(sign_in(&world, name, TenantRole::Owner).await);
    }
    assert_found(&mut client, &owner, &["owners-many"]).await;
    let cem = last.unwrap();
    let role = PersonChanges { role: Some(TenantRole::Member), ..PersonChanges::default() };
    people.update(tenant, BY, cem, &role).await.unwrap();
    assert_found(&mut client, &owner, &[]).await;

    let (key, _) = keys.create(tenant, BY, new_key("chat", Some(cem))).await.unwrap();
    let profile = DeviceProfile {
        id: "a1".repeat(32),
        public_key: [0xa1; 32],
        name: "phone".into(),
        platform: "linux".into(),
        family: String::new(),
        client_id: "cli".into(),
        client_mode: "cli".into(),
    };
    let user = DeviceUser { id: cem.to_string(), person: Some(cem) };
    let scopes = ["operator.read".to_owned()];
    let by = Approver::Person(cem);
    let device = devices.pair(tenant, (by, &user), profile, &scopes).await.unwrap();
    assert_found(&mut client, &owner, &[]).await;
    people.set_disabled(tenant, BY, cem, true).await.unwrap();
    assert_found(&mut client, &owner, &["access-of-disabled-person"]).await;
    keys.revoke(tenant, BY, key.id).await.unwrap();
    let left = &findings(&mut client, &owner).await["access-of-disabled-person"];
    assert!(left.about.starts_with("device phone"), "{left:?}");
    devices.remove(tenant, BY, &device.profile.id).await.unwrap();
    assert_found(&mut client, &owner, &[]).await;
}

fn account(channel: &str, settings: Value, secrets: Value) -> NewAccount {
    NewAccount {
        channel: channel.to_owned(),
        name: "default".to_owned(),
        enabled: true,
        settings,
        secrets: Some(secrets),
    }
}

#[tokio::test]
async fn open_channels_and_weak_policies_are_found_until_they_are_mended() {
    let (world, owner, mut client) = Box::pin(safe_world()).await;
    revoke_first_key(&world).await;
    let (tenant, accounts) = (world.anna.id, world.directory.accounts());
    let (agents, policies) = (world.directory.agents(), world.directory.policies());
    let main = agents.default_agent(tenant).await.unwrap();
    let new_main = |dm_scope| NewAgent {
        name: main.name.clone(),
        is_default: true,
        settings: AgentSettings { dm_scope, ..main.settings.clone() },
        ..NewAgent::default()
    };

    // One person who writes shares a conversation with nobody.
    let telegram = |groups: Value| {
        let settings = json!({"allow": ["7"], "groups": {"allow": groups}});
        account("telegram", settings, json!({"token": "42:TEST-token"}))
    };
    let bot = accounts.create(tenant, BY, telegram(json!(["*"]))).await.unwrap();
    agents.update(tenant, BY, "main", new_main(DmScope::Main)).await.unwrap();
    assert_found(&mut client, &owner, &["channel-open-groups"]).await;
    accounts.update(tenant, BY, bot.id, telegram(json!([]))).await.unwrap();
    assert_found(&mut client, &owner, &[]).await;

    let email = |authentication: &str| {
        let host = |name: &str| json!({"host": name});
        let settings = json!({"address": "agent@example.com", "imap": host("i.example.com"),
            "smtp": host("s.example.com"), "authentication": authentication});
        account("email", settings, json!({"password": "p"}))
    };
    let mail = accounts.create(tenant, BY, email("off")).await.unwrap();
    assert_found(&mut client, &owner, &["mail-unauthenticated"]).await;
    accounts.update(tenant, BY, mail.id, email("required")).await.unwrap();
    assert_found(&mut client, &owner, &[]).await;

    let policy = json!({"sandbox_mode": "off", "approvals": {"tools": {"email": "never"}}});
    policies.put(tenant, BY, None, None, &policy).await.unwrap();
    assert_found(&mut client, &owner, &["approvals-never", "sandbox-off"]).await;
    assert_eq!(findings(&mut client, &owner).await["sandbox-off"].severity, "warning");

    let open = |allow: &str| {
        let settings = json!({"allow": [allow], "url": "https://example.com/replies"});
        let secret = json!({"secret": "a secret of the webhook that is long enough"});
        account("webhook", settings, secret)
    };
    let hook = accounts.create(tenant, BY, open("*")).await.unwrap();
    let expected = ["approvals-never", "channel-open", "direct-messages-shared", "sandbox-off"];
    assert_found(&mut client, &owner, &expected).await;
    let checked = client.check_security(owner.request(CheckSecurityRequest {})).await.unwrap();
    let first = &checked.into_inner().findings[0];
    assert_eq!((&*first.id, &*first.severity), ("sandbox-off", "critical"));
    agents.update(tenant, BY, "main", new_main(DmScope::PerChannelPeer)).await.unwrap();
    accounts.update(tenant, BY, hook.id, open("anna")).await.unwrap();
    policies.put(tenant, BY, None, None, &json!({})).await.unwrap();
    assert_found(&mut client, &owner, &[]).await;

    let insert = format!(
        "insert into session.approval_rules
             (tenant_id, rule_id, agent_id, tool, subject_hash, pattern, summary)
         select '{}', gen_random_uuid(), '{}', 'exec', decode(repeat('ab', 32), 'hex'), pattern, ''
         from unnest(array['make *', 'git log -p']) pattern
         returning rule_id::text",
        tenant.as_uuid(),
        main.id.as_uuid()
    );
    let rules = world.texts(&insert).await.unwrap();
    assert_found(&mut client, &owner, &["approval-rule-broad"]).await;
    let rule = findings(&mut client, &owner).await["approval-rule-broad"].clone();
    assert!(rule.command.ends_with(&rules[0]), "{rule:?} {rules:?}");
    let rules_of = world.sessions.approvals();
    rules_of.delete_rule(tenant, rules[0].parse().unwrap()).await.unwrap();
    assert_found(&mut client, &owner, &[]).await;
}

#[tokio::test]
async fn weak_models_servers_and_webhooks_are_found_until_they_are_mended() {
    let (world, owner, mut client) = Box::pin(safe_world()).await;
    revoke_first_key(&world).await;
    let (tenant, directory) = (world.anna.id, &world.directory);
    let tool = KnownTool { name: "web_fetch".to_owned(), summary: "Fetch a page.".to_owned() };
    directory.policies().announce_tools(&[tool]).await.unwrap();

    let provider = |model: &str| NewProvider {
        name: "mine".to_owned(),
        kind: ProviderKind::OpenAi,
        base_url: "https://models.example.com/v1".to_owned(),
        api_key: Some("sk-anna".into()),
        default_model: Some(model.to_owned()),
        ..NewProvider::default()
    };
    directory.providers().put(tenant, BY, provider("tiny-3b")).await.unwrap();
    assert_found(&mut client, &owner, &["agent-small-model-reads-web"]).await;
    directory.providers().put(tenant, BY, provider("large-405b")).await.unwrap();
    assert_found(&mut client, &owner, &[]).await;

    let server = |url: &str, harmless| NewMcpServer {
        name: "search".to_owned(),
        transport: McpTransport::Http { url: url.to_owned() },
        secrets: None,
        agents: Vec::new(),
        enabled: true,
        harmless,
    };
    let servers = directory.mcp_servers();
    servers.put(tenant, BY, server("http://mcp.example.com/mcp", true)).await.unwrap();
    assert_found(&mut client, &owner, &["mcp-server-harmless", "mcp-server-over-http"]).await;
    let found = findings(&mut client, &owner).await;
    assert_eq!(
        found["mcp-server-harmless"].command,
        "holdfast mcp add search --replace --keep-secrets --url http://mcp.example.com/mcp"
    );
    servers.put(tenant, BY, server("https://mcp.example.com/mcp", false)).await.unwrap();
    assert_found(&mut client, &owner, &[]).await;

    let webhook = |url: &str| NewEventWebhook {
        name: "crm".to_owned(),
        url: url.to_owned(),
        ..NewEventWebhook::default()
    };
    let webhooks = directory.event_webhooks();
    webhooks.create(tenant, BY, webhook("http://crm.example.com/events")).await.unwrap();
    assert_found(&mut client, &owner, &["webhook-over-http"]).await;
    let mended = (webhook("https://crm.example.com/events"), true);
    webhooks.update(tenant, BY, "crm", mended).await.unwrap();
    assert_found(&mut client, &owner, &[]).await;
    // Nothing of it is of another tenant.
    assert_found(&mut client, &world.ben, &["key-never-expires"]).await;
}

#[tokio::test]
async fn only_operators_check_the_installation_and_only_owners_a_tenant() {
    let world = World::start_with(|config| config.mesh.accept_version_1 = true).await.unwrap();
    let mut client = SecurityClient::new(world.channel().await.unwrap());
    let operator = world.anna.by(&world.key(&world.anna, &["platform"], None).await.unwrap());
    let admin = world.anna.by(&world.key(&world.anna, &["admin", "read"], None).await.unwrap());

    let checked = client.check_installation(operator.request(CheckInstallationRequest {})).await;
    let by_owner = client.check_installation(world.anna.request(CheckInstallationRequest {})).await;
    let by_operator = client.check_security(operator.request(CheckSecurityRequest {})).await;
    let by_admin = client.check_security(admin.request(CheckSecurityRequest {})).await;

    // The login of tests to NATS and Redis has all rights, which is another finding.
    let findings = checked.unwrap().into_inner().findings;
    assert!(findings.iter().any(|one| one.id == "mesh-version-1"), "{findings:?}");
    assert_eq!(by_owner.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(by_operator.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(by_admin.unwrap_err().code(), Code::PermissionDenied);
}
