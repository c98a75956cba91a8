//! Skills and packages over gRPC: share, find, install, remove, list changes; export and import
//! agents.

use holdfast_proto::gateway::v1::{
    self as pb, agents_client::AgentsClient, packages_client::PackagesClient,
    routing_client::RoutingClient, skills_client::SkillsClient,
};
use tonic::{Code, transport::Channel};

use crate::world::{Tenant, World};

async fn skills(world: &World) -> SkillsClient<Channel> {
    SkillsClient::new(world.channel().await.unwrap())
}

fn put(name: &str, body: &str) -> pb::PutSkillRequest {
    let content = format!("---\nname: {name}\ndescription: d\n---\n{body}").into_bytes();
    let files = vec![pb::SkillFile { path: "SKILL.md".into(), content }];
    pb::PutSkillRequest { files, ..Default::default() }
}

fn install(agent: &str, force: bool, request_id: &str) -> pb::InstallSkillRequest {
    pb::InstallSkillRequest {
        agent: agent.into(),
        slug: "water-plants".into(),
        registry: "shelf".into(),
        force,
        request_id: request_id.into(),
        ..Default::default()
    }
}

async fn listed(world: &World, of: &Tenant, agent: &str) -> Vec<(String, String)> {
    let request = of.request(pb::ListSkillsRequest { agent: agent.into() });
    let listed = skills(world).await.list_skills(request).await.unwrap().into_inner();
    listed.skills.into_iter().map(|skill| (skill.name, skill.scope)).collect()
}

#[tokio::test]
async fn what_a_tenant_shares_its_agents_have_until_it_is_removed() {
    let world = World::start().await.unwrap();
    let mut client = skills(&world).await;
    let shared = ("shared-one".to_owned(), "tenant".to_owned());

    client.put_skill(world.anna.request(put("shared-one", "x"))).await.unwrap();

    assert!(listed(&world, &world.anna, "main").await.contains(&shared));
    assert!(!listed(&world, &world.ben, "main").await.contains(&shared));
    let get = pb::GetSkillRequest { agent: "main".into(), name: "shared-one".into() };
    let found = client.get_skill(world.anna.request(get.clone())).await.unwrap().into_inner();
    assert!(found.text.ends_with("---\nx"), "{}", found.text);
    assert_eq!(found.files, ["skills/shared-one/SKILL.md"]);

    let remove = pb::RemoveSkillRequest { name: "shared-one".into(), ..Default::default() };
    client.remove_skill(world.anna.request(remove.clone())).await.unwrap();
    let gone = client.get_skill(world.anna.request(get)).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound);
    let again = client.remove_skill(world.anna.request(remove)).await.unwrap_err();
    assert_eq!(again.code(), Code::NotFound);

    let changes = client.list_skill_changes(world.anna.request(Default::default())).await.unwrap();
    let changes = changes.into_inner().changes;
    let actions: Vec<&str> = changes.iter().map(|change| change.action.as_str()).collect();
    assert_eq!(actions, ["remove", "put"]);
    assert!(changes.iter().all(|change| change.actor.starts_with("key_")), "{changes:?}");
}

#[tokio::test]
async fn who_may_only_look_or_talk_changes_no_skill() {
    let world = World::start().await.unwrap();
    let key = world.key(&world.anna, &["read", "chat"], None).await.unwrap();
    let reader = world.anna.by(&key);
    let mut client = skills(&world).await;

    let put = client.put_skill(reader.request(put("mine", "x"))).await.unwrap_err();
    let installed = client.install_skill(reader.request(install("main", false, ""))).await;
    let policy = pb::PutSkillPolicyRequest { policy: Some(pb::SkillPolicy::default()) };
    let policy = client.put_skill_policy(reader.request(policy)).await.unwrap_err();

    for refused in [put, installed.unwrap_err(), policy] {
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    }
    listed(&world, &reader, "main").await;
}

#[tokio::test]
async fn a_skill_is_found_and_installed_once_for_an_agent_or_for_all() {
    let world = World::start().await.unwrap();
    let mut client = skills(&world).await;
    let find = pb::FindSkillsRequest { query: "water".into(), limit: 0 };

    let found = client.find_skills(world.anna.request(find)).await.unwrap().into_inner();
    let first = client.install_skill(world.anna.request(install("main", false, "r1"))).await;
    let same = client.install_skill(world.anna.request(install("main", false, "r1"))).await;
    let other = client.install_skill(world.anna.request(install("main", false, "r2"))).await;
    let shared = client.install_skill(world.anna.request(install("", false, ""))).await;

    assert_eq!(
        (found.skills[0].slug.as_str(), found.skills[0].registry.as_str()),
        ("water-plants", "shelf")
    );
    let first = first.unwrap().into_inner();
    assert_eq!((first.version.as_str(), first.sha256.len()), ("1.0", 64));
    assert_eq!(same.unwrap().into_inner(), first);
    assert_eq!(other.unwrap_err().code(), Code::Aborted);
    shared.unwrap();
    let own = ("water-plants".to_owned(), "workspace".to_owned());
    assert!(listed(&world, &world.anna, "main").await.contains(&own));
    let tenants = ("water-plants".to_owned(), "tenant".to_owned());
    assert!(listed(&world, &world.anna, "").await.contains(&tenants));
}

#[tokio::test]
async fn an_administrator_says_whether_and_from_where_skills_come() {
    let world = World::start().await.unwrap();
    let mut client = skills(&world).await;

    for (policy, told) in [
        (pb::SkillPolicy { disabled: true, ..Default::default() }, "may not be installed here"),
        (
            pb::SkillPolicy { registries_given: true, ..Default::default() },
            "of the registry `shelf`",
        ),
    ] {
        let put = pb::PutSkillPolicyRequest { policy: Some(policy.clone()) };
        client.put_skill_policy(world.anna.request(put)).await.unwrap();
        let got = client.get_skill_policy(world.anna.request(pb::GetSkillPolicyRequest {})).await;
        assert_eq!(got.unwrap().into_inner().policy, Some(policy));

        let refused = client.install_skill(world.anna.request(install("main", false, ""))).await;

        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        assert!(refused.message().contains(told), "{refused}");
    }
    // Another tenant's policy is separate.
    client.install_skill(world.ben.request(install("main", false, ""))).await.unwrap();
}

async fn answers(world: &World, text: &str) -> String {
    // The gateway caches a tenant's routing for a second; another process changed it.
    let mut routing = RoutingClient::new(world.channel().await.unwrap());
    let request =
        pb::ExplainRequest { channel: "telegram".into(), text: text.into(), ..Default::default() };
    routing.explain(world.anna.request(request)).await.unwrap().into_inner().agent
}

#[tokio::test]
async fn an_agent_comes_as_a_file_leads_nowhere_until_it_is_approved_and_goes_as_the_same_file() {
    let world = World::start().await.unwrap();
    let mut client = PackagesClient::new(world.channel().await.unwrap());
    let text = "name: travel\nversion: '2.0'\nauthor: Ada\nagent:\n  id: travel\n  prompt: |-\n    \
                You plan journeys.\n    Ask for the budget.\ntools:\n- web_search\n\
                routing:\n  pattern: (?i)trip|journey\n\
                behaviors:\n  default: plan\n  max_steps: 9\n  documents:\n    plan: |\n      \
                process_rule: Plan a journey.\nhit_points:\n  max: 70\n  floor: 7\n";
    let import = pb::ImportAgentRequest { text: text.into() };

    let made = client.import_agent(world.anna.request(import.clone())).await.unwrap().into_inner();
    assert!(made.rule_waits);
    assert_eq!(answers(&world, "a trip to Rome").await, "main");
    let again = client.import_agent(world.anna.request(import.clone())).await.unwrap_err();
    assert_eq!(again.code(), Code::Aborted, "{again}");

    let approve = pb::ApproveAgentRequest { agent: "travel".into() };
    let on = client.approve_agent(world.anna.request(approve)).await.unwrap().into_inner();
    assert_eq!((on.rules, answers(&world, "a trip to Rome").await), (1, "travel".to_owned()));

    let export = pb::ExportAgentRequest {
        agent: "travel".into(),
        version: "2.0".into(),
        author: "Ada".into(),
    };
    let gone = client.export_agent(world.anna.request(export.clone())).await.unwrap().into_inner();
    assert_eq!(gone.file, "travel.skill.yaml");
    let there = pb::ImportAgentRequest { text: gone.text.clone() };
    client.import_agent(world.ben.request(there)).await.unwrap();
    let back = client.export_agent(world.ben.request(export)).await.unwrap().into_inner();
    assert_eq!(back.text, gone.text);
    for part in ["max_steps: 9\n", "process_rule: Plan a journey.\n", "floor: 7\n"] {
        assert!(gone.text.contains(part), "{part}: {}", gone.text);
    }
    let mut agents = AgentsClient::new(world.channel().await.unwrap());
    let get = pb::GetAgentRequest { agent: "travel".into() };
    let made = agents.get_agent(world.ben.request(get)).await.unwrap().into_inner().agent.unwrap();
    let settings = (made.behaviors.unwrap(), made.hit_points.unwrap().max);
    assert_eq!((settings.0.default.as_str(), settings.0.max_steps, settings.1), ("plan", 9, 70));

    let wrong = pb::ImportAgentRequest { text: text.replace("prompt:", "promt:") };
    let wrong = client.import_agent(world.anna.request(wrong)).await.unwrap_err();
    assert!(wrong.message().contains("`agent.promt` is no field"), "{wrong}");
}

#[tokio::test]
async fn an_administrator_sets_a_skills_secret_and_nobody_is_shown_it() {
    let world = World::start().await.unwrap();
    let mut client = skills(&world).await;
    let text = "---\nname: plants\ndescription: d\nmetadata: { openclaw: { requires: { env: \
                [GARDEN_KEY] } } }\n---\n";
    let files = vec![pb::SkillFile { path: "SKILL.md".into(), content: text.into() }];
    let put = pb::PutSkillRequest { files, ..Default::default() };
    client.put_skill(world.anna.request(put)).await.unwrap();
    let get = pb::GetSkillRequest { name: "plants".into(), ..Default::default() };
    let lacks = async || {
        let found = skills(&world).await.get_skill(world.anna.request(get.clone())).await;
        found.unwrap().into_inner().skill.unwrap().lacks
    };
    let set = |value: &str| pb::PutSkillEnvRequest {
        skill: "plants".into(),
        name: "GARDEN_KEY".into(),
        value: value.into(),
    };
    assert!(lacks().await[0].contains("holdfast skills env set plants GARDEN_KEY"));

    let key = world.key(&world.anna, &["read", "chat"], None).await.unwrap();
    let refused = client.put_skill_env(world.anna.by(&key).request(set("s3cret"))).await;
    assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    let short = client.put_skill_env(world.anna.request(set("s3c"))).await.unwrap_err();
    assert_eq!(short.code(), Code::InvalidArgument);
    client.put_skill_env(world.anna.request(set("s3cret-of-plants"))).await.unwrap();

    assert_eq!(lacks().await, Vec::<String>::new());
    let listed = client.list_skill_env(world.anna.request(Default::default())).await.unwrap();
    let shown = format!("{:?}", listed.into_inner());
    assert!(shown.contains("GARDEN_KEY") && !shown.contains("s3cret"), "{shown}");
    let theirs = client.list_skill_env(world.ben.request(Default::default())).await.unwrap();
    assert_eq!(theirs.into_inner().variables, []);
    let remove = pb::RemoveSkillEnvRequest { skill: "plants".into(), name: "GARDEN_KEY".into() };
    client.remove_skill_env(world.anna.request(remove.clone())).await.unwrap();
    let again = client.remove_skill_env(world.anna.request(remove)).await.unwrap_err();
    assert_eq!((again.code(), lacks().await.len()), (Code::NotFound, 1));
}
