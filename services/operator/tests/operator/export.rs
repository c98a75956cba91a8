//! A tenant as resources, and the same tenant from them.

use std::time::Duration;

use holdfast_proto::gateway::v1::{
    self as pb, GetTenantRequest, ListAccountsRequest, ListAgentsRequest, ListBehaviorsRequest,
    ListProvidersRequest, agents_client::AgentsClient, behaviors_client::BehaviorsClient,
    channels_client::ChannelsClient, providers_client::ProvidersClient,
    tenants_client::TenantsClient,
};
use operator::{AgentState, TenantState};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tonic::{Request, transport::Channel};

use crate::world::{PATIENCE, World};

fn request<T>(key: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    request
}

/// State of a tenant, as `holdfast export` reads it.
async fn state(world: &World, tenant: &str) -> TenantState {
    let channel =
        Channel::from_shared(world.gateway_url().to_owned()).unwrap().connect().await.unwrap();
    let platform = world.platform_key().expose_secret();
    let get = request(platform, GetTenantRequest { tenant: tenant.to_owned() });
    let settings = TenantsClient::new(channel.clone()).get_tenant(get).await.unwrap();
    let make = pb::CreateTenantKeyRequest { tenant: tenant.to_owned(), name: "export".to_owned() };
    let made = TenantsClient::new(channel.clone()).create_tenant_key(request(platform, make)).await;
    let key = made.unwrap().into_inner().secret;
    let listed = AgentsClient::new(channel.clone())
        .list_agents(request(&key, ListAgentsRequest {}))
        .await
        .unwrap();
    let providers = ProvidersClient::new(channel.clone())
        .list_providers(request(&key, ListProvidersRequest {}))
        .await
        .unwrap();
    let mut agents = Vec::new();
    for agent in listed.into_inner().agents {
        let list = request(&key, ListBehaviorsRequest { agent: agent.id.clone() });
        let listed = BehaviorsClient::new(channel.clone()).list_behaviors(list).await.unwrap();
        agents.push(AgentState { agent, behaviors: listed.into_inner().behaviors });
    }
    let accounts = ChannelsClient::new(channel)
        .list_accounts(request(&key, ListAccountsRequest { channel: String::new() }))
        .await
        .unwrap();
    TenantState {
        name: tenant.to_owned(),
        settings: settings.into_inner().tenant,
        providers: providers.into_inner().providers,
        agents,
        accounts: accounts.into_inner().accounts,
    }
}

fn documents(manifests: &str) -> Vec<Value> {
    let documents = manifests.split("---\n").skip(1);
    documents.map(|text| serde_saphyr::from_str(text).unwrap()).collect()
}

#[tokio::test]
async fn an_exported_tenant_applied_elsewhere_is_the_same() {
    let first = World::start().await;
    let operator = first.operator().await;
    first.secret("bot", "token", "1:aaa");
    first.secret("mine", "api-key", "sk-1");
    first.apply(
        "Tenant",
        "acme",
        &json!({"name": "acme_1", "rate": 7000, "weight": 3, "retention": {"runs": 9},
        "product": {"name": "Acme", "commands": [{"command": "acme", "description": "talk"}]}}),
    );
    first.apply(
        "ModelProvider",
        "mine",
        &json!({"tenant": "acme", "kind": "openai",
        "defaultModel": "mine:a", "apiKey": {"name": "mine", "key": "api-key"}}),
    );
    first.apply("Agent", "coach", &json!({"tenant": "acme", "default": true, "model": "mine:b",
        "instructions": "Be kind.\n\n  - \"quoted\": yes\n# no comment\n", "noTools": true, "spawns": ["*"],
        "behaviors": {"default": "plan", "maxHops": 5}, "hitPoints": {"max": 500, "perToolMilli": 0},
        "behaviorDocuments": {"do": "process_rule: |\n  # Work.\n\n  {{cwd/to_agent.md}}\n", "look": "name: look\nprocess_rule: Look.\nfiles: read_only\n"},
        "bundles": {"look": ["read"]}, "context": {"strategy": "lite"}, "timeZone": "Europe/Berlin", "thinking": "low",
        "heartbeat": {"every": "10m", "activeHours": {"start": "08:00", "end": "20:00"}}}));
    first.apply(
        "Channel",
        "bot",
        &json!({"tenant": "acme", "type": "telegram",
        "settings": {"allow": ["1", "@anna"]}, "secret": {"name": "bot", "key": "token"}}),
    );
    for (kind, name) in
        [("Tenant", "acme"), ("ModelProvider", "mine"), ("Agent", "coach"), ("Channel", "bot")]
    {
        first.until_ready(kind, name).await;
    }
    let exported = state(&first, "acme_1").await.to_manifests().unwrap();
    operator.stop().await;
    assert!(!exported.contains("sk-1") && !exported.contains("1:aaa"), "{exported}");
    for field in [
        "maxHops: 5",
        "maxSteps: 64",
        "perToolMilli: 0",
        "max: 500",
        "thinking: low",
        "{{cwd/to_agent.md}}",
    ] {
        assert!(exported.contains(field), "{field}: {exported}");
    }

    let second = World::start().await;
    let _operator = second.operator().await;
    for line in exported
        .lines()
        .filter_map(|line| line.strip_prefix("# Needs: kubectl create secret generic "))
    {
        let (name, rest) = line.split_once(" --from-literal=").unwrap();
        let key = rest.split('=').next().unwrap();
        second.secret(name, key, if key == "token" { "1:aaa" } else { "sk-1" });
    }
    let documents = documents(&exported);
    // The tenant, its provider, `main` and `coach`, and the account.
    assert_eq!(documents.len(), 5, "{exported}");
    for document in &documents {
        second.kube.apply(document, "anna").unwrap();
    }
    for document in &documents {
        let name = document["metadata"]["name"].as_str().unwrap();
        second.until_ready(document["kind"].as_str().unwrap(), name).await;
    }

    // An agent that was being written when another became the default one is corrected afterwards.
    let end = Instant::now() + PATIENCE;
    while state(&second, "acme_1").await.to_manifests().unwrap() != exported && Instant::now() < end
    {
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(state(&second, "acme_1").await.to_manifests().unwrap(), exported);
    first.check();
    second.check();
}
