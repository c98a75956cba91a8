//! Behaviours: layers, versions, isolation of tenants.

use holdfast_directory::{BehaviorLayer, Error};

use crate::world::{BY, World, agent};

#[tokio::test]
async fn every_change_is_a_version_and_a_change_of_an_older_one_is_refused() {
    let world = World::new().await;
    let directory = &world.directory;
    let (tenant, _) = world.tenant("acme").await;
    let put = async |based_on, source: &str| {
        directory.behaviors().put(tenant.id, BY, (None, "look"), based_on, source).await
    };

    let first = put(Some(0), "process_rule: a").await.unwrap();
    let second = put(Some(1), "process_rule: b").await.unwrap();
    let stale = put(Some(1), "process_rule: c").await.unwrap_err();
    directory.behaviors().delete(tenant.id, BY, (None, "look")).await.unwrap();
    let again = directory.behaviors().delete(tenant.id, BY, (None, "look")).await.unwrap_err();
    let third = put(Some(0), "process_rule: d").await.unwrap();

    assert_eq!((first.version, second.version, third.version), (1, 2, 3));
    assert!(matches!(&stale, Error::Conflict(why) if why.contains("version 2")), "{stale}");
    assert!(matches!(again, Error::NotFound { .. }), "{again}");
    let versions = directory.behaviors().versions(tenant.id, None, "look").await.unwrap();
    let shown: Vec<_> = versions.iter().map(|one| (one.version, one.is_current)).collect();
    assert_eq!(shown, [(3, true), (2, false), (1, false)]);
    let old = directory.behaviors().find(tenant.id, None, "look", Some(1)).await.unwrap();
    assert_eq!(old.unwrap().source, "process_rule: a");
    let current = directory.behaviors().find(tenant.id, None, "look", None).await.unwrap();
    assert_eq!(current.unwrap(), third);
    let log = world.audit(tenant.id).await;
    let actions: Vec<_> = log.iter().map(|(_, action, _)| action.as_str()).collect();
    let of_behaviors = actions.iter().filter(|action| action.starts_with("behavior."));
    assert_eq!(of_behaviors.count(), 4, "{actions:?}");
}

#[tokio::test]
async fn the_oldest_versions_make_room_for_new_ones() {
    let world = World::new().await;
    let directory = &world.directory;
    let (tenant, _) = world.tenant("acme").await;

    for n in 1..=53 {
        let source = format!("process_rule: {n}");
        directory.behaviors().put(tenant.id, BY, (None, "look"), None, &source).await.unwrap();
    }

    let versions = directory.behaviors().versions(tenant.id, None, "look").await.unwrap();
    assert_eq!((versions.len(), versions[0].version, versions[49].version), (50, 53, 4));
}

#[tokio::test]
async fn an_agent_s_behaviors_are_its_own_and_go_with_it() {
    let world = World::new().await;
    let directory = &world.directory;
    let (tenant, _) = world.tenant("acme").await;
    let (other, _) = world.tenant("other").await;
    let t = tenant.id;
    let coach = directory.agents().create(t, BY, agent("coach")).await.unwrap();
    let own = (Some(coach.id), "plan");
    let behaviors = directory.behaviors();
    behaviors.put(t, BY, (None, "plan"), None, "process_rule: ours").await.unwrap();
    behaviors.put(t, BY, own, None, "process_rule: mine").await.unwrap();

    let both = behaviors.list(t, Some(coach.id)).await.unwrap();
    let shown: Vec<_> = both.iter().map(|one| (one.layer, one.source.as_str())).collect();
    assert_eq!(
        shown,
        [
            (BehaviorLayer::Tenant, "process_rule: ours"),
            (BehaviorLayer::Agent, "process_rule: mine")
        ]
    );
    assert_eq!(behaviors.list(t, None).await.unwrap().len(), 1);
    // The other tenant sees none of them, and can change none.
    assert_eq!(behaviors.list(other.id, Some(coach.id)).await.unwrap(), []);
    assert_eq!(behaviors.versions(other.id, Some(coach.id), "plan").await.unwrap(), []);
    let foreign = behaviors.put(other.id, BY, own, None, "process_rule: x").await.unwrap_err();
    assert!(matches!(foreign, Error::NotFound { .. }), "{foreign}");
    let foreign = behaviors.delete(other.id, BY, own).await.unwrap_err();
    assert!(matches!(foreign, Error::NotFound { .. }), "{foreign}");
    directory.agents().delete(t, BY, "coach").await.unwrap();
    assert_eq!(behaviors.versions(t, Some(coach.id), "plan").await.unwrap(), []);
}
