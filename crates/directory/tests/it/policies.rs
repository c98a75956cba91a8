//! Tool policies: versions, isolation of tenants, and the tools that runners announce.

use holdfast_directory::{Actor, Error, KnownTool, StoredPolicy};
use holdfast_types::{AgentId, RunId};
use serde_json::json;

use crate::world::{BY, World, agent};

#[tokio::test]
async fn a_policy_has_a_version_and_a_change_of_an_older_one_is_refused() {
    let world = World::new().await;
    let directory = &world.directory;
    let (tenant, _) = world.tenant("acme").await;
    let put = async |based_on, document| {
        directory.policies().put(tenant.id, BY, None, based_on, &document).await
    };

    assert_eq!(directory.policies().get(tenant.id, None).await.unwrap(), StoredPolicy::default());
    let first = put(Some(0), json!({"deny": ["exec"]})).await.unwrap();
    let second = put(Some(1), json!({"deny": ["cron"]})).await.unwrap();
    let stale = put(Some(1), json!({})).await.unwrap_err();
    let unasked = put(None, json!({"deny": ["web_*"]})).await.unwrap();
    let long = put(None, json!({"deny": ["x".repeat(70_000)]})).await.unwrap_err();

    assert_eq!((first.version, second.version, unasked.version), (1, 2, 3));
    assert!(matches!(&stale, Error::Conflict(why) if why.contains("version 2")), "{stale}");
    assert!(matches!(long, Error::Invalid(_)), "{long}");
    assert_eq!(directory.policies().get(tenant.id, None).await.unwrap(), unasked);
}

#[tokio::test]
async fn an_agent_s_policy_is_its_own_and_goes_with_it() {
    let world = World::new().await;
    let directory = &world.directory;
    let (tenant, _) = world.tenant("acme").await;
    let (other, _) = world.tenant("other").await;
    let t = tenant.id;
    let coach = directory.agents().create(t, BY, agent("coach")).await.unwrap();
    let (of_tenant, of_agent) = (json!({"deny": ["exec"]}), json!({"profile": "coding"}));

    directory.policies().put(t, BY, None, None, &of_tenant).await.unwrap();
    directory.policies().put(t, BY, Some(coach.id), None, &of_agent).await.unwrap();

    let both = directory.policies().for_agent(t, coach.id).await.unwrap();
    assert_eq!((both.tenant.document, both.agent.document), (of_tenant.clone(), of_agent));
    let alone = directory.policies().for_agent(t, AgentId::generate()).await.unwrap();
    assert_eq!((alone.tenant.document, alone.agent.version), (of_tenant, 0));
    // The other tenant has no policy, and cannot set one for this tenant's agent.
    assert_eq!(
        directory.policies().for_agent(other.id, coach.id).await.unwrap(),
        Default::default()
    );
    let foreign = directory.policies().put(other.id, BY, Some(coach.id), None, &json!({})).await;
    assert!(matches!(foreign.unwrap_err(), Error::NotFound { .. }));
    directory.agents().delete(t, BY, "coach").await.unwrap();
    assert_eq!(directory.policies().for_agent(t, coach.id).await.unwrap().agent.version, 0);
}

#[tokio::test]
async fn a_refusal_is_in_the_audit_log_and_announced_tools_are_known() {
    let world = World::new().await;
    let directory = &world.directory;
    let (tenant, _) = world.tenant("acme").await;
    let (agent, run) = (AgentId::generate(), RunId::generate());
    let tool = |name: &str, summary: &str| KnownTool { name: name.into(), summary: summary.into() };

    directory.policies().record_refusal(tenant.id, agent, run, "exec: denied").await.unwrap();
    directory
        .policies()
        .announce_tools(&[tool("write", "Writes."), tool("read", "Reads.")])
        .await
        .unwrap();
    directory.policies().announce_tools(&[tool("read", "Reads a file.")]).await.unwrap();

    let known = directory.policies().known_tools().await.unwrap();
    assert_eq!(known, [tool("read", "Reads a file."), tool("write", "Writes.")]);
    let log = world.audit(tenant.id).await;
    let (actor, action, subject) = log.last().unwrap();
    assert_eq!(
        (actor.as_str(), action.as_str()),
        (Actor::Agent(agent).to_string().as_str(), "tool.refuse")
    );
    assert_eq!(*subject, format!("{run} exec: denied"));
}
