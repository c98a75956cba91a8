//! The routing configuration is one snapshot, at most a second old.

use std::time::Duration;

use holdfast_directory::{Error, Identity, NewAgent, NewBinding, NewModelRoute, NewRule};
use holdfast_types::{ModelRoute, Peer, PeerKind, RouteScope};

use crate::world::{BY, World, agent};

fn binding(peer: &str, agent: &str) -> NewBinding {
    NewBinding {
        channel: "Telegram".into(),
        peer: Some(Peer { kind: PeerKind::Direct, id: peer.into() }),
        agent: agent.into(),
        ..NewBinding::default()
    }
}

fn rule(pattern: &str, agent: &str) -> NewRule {
    NewRule { pattern: Some(pattern.into()), agent: agent.into(), ..NewRule::default() }
}

#[tokio::test]
async fn a_snapshot_holds_all_of_it_and_is_renewed() {
    let world = World::new().await;
    let elsewhere = world.again();
    let (tenant, _) = world.tenant("acme").await;
    let coach = world.agent(tenant.id, "coach").await;
    assert_eq!(elsewhere.routing().get(tenant.id).await.unwrap().bindings(), []);

    let made = world
        .directory
        .routing()
        .create_binding(tenant.id, BY, binding("7", "coach"))
        .await
        .unwrap();
    let rules = vec![rule("exam", "coach"), rule("", "main")];
    world.directory.routing().put_rules(tenant.id, BY, rules, None).await.unwrap();
    let identity =
        Identity { channel: "Telegram".into(), peer: "7".into(), canonical: "ann".into() };
    world.directory.routing().put_identity(tenant.id, BY, identity).await.unwrap();

    let here = world.directory.routing().get(tenant.id).await.unwrap();
    assert_eq!(here.bindings(), std::slice::from_ref(&made));
    assert_eq!((made.channel.as_str(), made.agent), ("telegram", coach.id));
    let patterns: Vec<_> =
        here.rules().iter().map(|rule| rule.pattern.as_ref().map(|p| p.as_str())).collect();
    assert_eq!(patterns, [Some("exam"), None]);
    assert_eq!(here.canonical("telegram", "default", "7"), Some("ann"));
    assert_eq!(here.agent("coach").unwrap().id, coach.id);
    assert_eq!(here.default_agent().name.as_str(), "main");
    tokio::time::sleep(Duration::from_millis(1_050)).await;
    assert_eq!(elsewhere.routing().get(tenant.id).await.unwrap().bindings(), [made]);
}

#[tokio::test]
async fn rules_that_are_refused_leave_the_old_ones() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let put = async |rules| world.directory.routing().put_rules(tenant.id, BY, rules, None).await;
    put(vec![rule("exam", "main")]).await.unwrap();

    for wrong in [rule("(", "main"), rule("x", "nobody")] {
        assert!(put(vec![rule("y", "main"), wrong]).await.is_err());
    }
    assert!(matches!(put(vec![rule("x", "main"); 201]).await, Err(Error::TooMany { .. })));

    let rules = world.directory.routing().rules(tenant.id).await.unwrap();
    assert_eq!(rules.len(), 1);
    assert_eq!(rules[0].pattern.as_ref().unwrap().as_str(), "exam");
}

#[tokio::test]
async fn tools_of_a_rule_are_its_own_none_or_those_of_the_agent() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let given = [None, Some(Vec::new()), Some(vec!["web_search".to_owned()])];
    let rules = given.clone().map(|tools| NewRule { tools, ..rule("x", "main") });

    world.directory.routing().put_rules(tenant.id, BY, rules.into(), None).await.unwrap();

    let kept: Vec<_> = world
        .directory
        .routing()
        .rules(tenant.id)
        .await
        .unwrap()
        .into_iter()
        .map(|rule| rule.tools)
        .collect();
    assert_eq!(kept, given);
}

#[tokio::test]
async fn two_bindings_for_the_same_messages_are_refused() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let create = async |new| world.directory.routing().create_binding(tenant.id, BY, new).await;
    let first = create(binding("7", "main")).await.unwrap();

    let again = create(binding("7", "main")).await;

    assert!(matches!(again, Err(Error::Conflict(_))), "{again:?}");
    assert!(create(binding("8", "main")).await.is_ok());
    assert!(matches!(create(binding("9", "nobody")).await, Err(Error::NotFound { .. })));
    world.directory.routing().delete_binding(tenant.id, BY, first.id).await.unwrap();
    assert!(create(binding("7", "main")).await.is_ok());
}

#[tokio::test]
async fn there_is_always_one_default_agent() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let default =
        async || world.directory.agents().default_agent(tenant.id).await.unwrap().name.to_string();
    let flagged = || NewAgent { is_default: true, ..agent("boss") };

    assert!(matches!(
        world.directory.agents().delete(tenant.id, BY, "main").await,
        Err(Error::Conflict(_))
    ));
    world.directory.agents().create(tenant.id, BY, flagged()).await.unwrap();
    assert_eq!(default().await, "boss");
    world.directory.routing().create_binding(tenant.id, BY, binding("7", "main")).await.unwrap();
    world.directory.agents().delete(tenant.id, BY, "main").await.unwrap();

    let routing = world.directory.routing().get(tenant.id).await.unwrap();
    let bound = routing.bindings()[0].agent;
    assert_eq!(routing.agent_or_default(bound).name.as_str(), "boss");
    // Without a flagged agent, the first one is the default.
    world.directory.agents().update(tenant.id, BY, "boss", agent("boss")).await.unwrap();
    assert_eq!(default().await, "boss");
    assert!(world.directory.agents().delete(tenant.id, BY, "boss").await.is_err());
}

#[tokio::test]
async fn an_agent_that_changes_gets_a_new_version_and_keeps_its_id() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let old = world.agent(tenant.id, "coach").await;
    world.agent(tenant.id, "taken").await;
    let new = NewAgent { instructions: "Be strict.".into(), ..agent("trainer") };

    let update = async |new| world.directory.agents().update(tenant.id, BY, "coach", new).await;
    let taken = update(agent("taken")).await;
    let changed = update(new).await.unwrap();

    assert!(matches!(taken, Err(Error::Taken { .. })), "{taken:?}");
    assert_eq!((changed.id, changed.version), (old.id, old.version + 1));
    assert_eq!(world.directory.agents().get(tenant.id, "trainer").await.unwrap(), changed);
    assert_eq!(world.directory.agents().by_id(tenant.id, old.id).await.unwrap(), changed);
    assert!(world.directory.agents().get(tenant.id, "coach").await.is_err());
}

#[tokio::test]
async fn a_model_chooses_among_agents_of_the_tenant_only() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let (other, _) = world.tenant("other").await;
    let coach = world.agent(tenant.id, "coach").await;
    let theirs = world.agent(other.id, "spy").await;
    let among = |names: &[&str]| NewModelRoute {
        among: names.iter().map(|&name| name.to_owned()).collect(),
        each: RouteScope::Session,
        model: Some("fake:small".into()),
    };
    let id = coach.id.to_string();
    let bound = NewBinding { by_model: Some(among(&["coach", &id])), ..binding("7", "main") };
    let ruled = NewRule { by_model: Some(NewModelRoute::default()), ..rule("x", "main") };

    let made = world.directory.routing().create_binding(tenant.id, BY, bound).await.unwrap();
    world
        .directory
        .routing()
        .put_rules(tenant.id, BY, vec![ruled, rule("y", "main")], None)
        .await
        .unwrap();

    let expected = ModelRoute {
        among: vec![coach.id],
        each: RouteScope::Session,
        model: Some("fake:small".into()),
    };
    assert_eq!(made.by_model, Some(expected));
    let routing = world.directory.routing().get(tenant.id).await.unwrap();
    assert_eq!(routing.bindings(), [made]);
    let stored: Vec<_> = routing.rules().iter().map(|rule| rule.by_model.clone()).collect();
    assert_eq!(stored, [Some(ModelRoute::default()), None]);
    for name in ["spy", &theirs.id.to_string()] {
        let bound = NewBinding { by_model: Some(among(&[name])), ..binding("8", "main") };
        let ruled = NewRule { by_model: Some(among(&[name])), ..rule("x", "main") };
        let refused = world.directory.routing().create_binding(tenant.id, BY, bound).await;
        assert!(matches!(refused, Err(Error::NotFound { .. })), "{refused:?}");
        let refused = world.directory.routing().put_rules(tenant.id, BY, vec![ruled], None).await;
        assert!(matches!(refused, Err(Error::NotFound { .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn a_tenant_at_the_limit_of_identities_replaces_one_and_adds_none() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    sqlx::query(
        "insert into control.identities (tenant_id, channel, peer, canonical) \
         select $1, 'telegram', n::text, 'ann' from generate_series(1, 5000) n",
    )
    .bind(tenant.id.as_uuid())
    .execute(&mut world.admin().await)
    .await
    .unwrap();
    let identity = |peer: &str| Identity {
        channel: "telegram".into(),
        peer: peer.into(),
        canonical: "bob".into(),
    };

    world.directory.routing().put_identity(tenant.id, BY, identity("7")).await.unwrap();
    let refused = world.directory.routing().put_identity(tenant.id, BY, identity("new")).await;

    assert!(matches!(refused, Err(Error::TooMany { limit: 5_000, .. })), "{refused:?}");
    let routing = world.again().routing().get(tenant.id).await.unwrap();
    assert_eq!(routing.canonical("telegram", "default", "7"), Some("bob"));
}
