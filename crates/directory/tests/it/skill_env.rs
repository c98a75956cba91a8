//! Variables of skills can be set and not read, and belong to one tenant.

use holdfast_directory::Error;
use holdfast_types::TenantId;
use secrecy::ExposeSecret as _;

use crate::world::{BY, World};

/// Returns the variables that the tenant's commands would get.
async fn given(world: &World, tenant: TenantId) -> Vec<String> {
    let open = world.again().skill_env().open(tenant).await.unwrap();
    let line = |it: &holdfast_directory::SkillVariableValue| {
        format!("{}/{}={}", it.skill, it.name, it.value.expose_secret())
    };
    open.iter().map(line).collect()
}

#[tokio::test]
async fn what_is_set_is_for_one_skill_of_one_tenant_and_is_nowhere_in_the_table() {
    let world = World::new().await;
    let (ours, _) = world.tenant("acme").await;
    let (theirs, _) = world.tenant("other").await;
    let put = async |which, value: &str| {
        world.directory.skill_env().put(ours.id, BY, which, &value.into()).await
    };

    put(("Water-Plants", "KEY"), "s3cret-old").await.unwrap();
    put(("water-plants", "KEY"), "s3cret-new").await.unwrap();
    put(("another", "KEY"), "s3cret-other").await.unwrap();
    let rows: String =
        sqlx::query_scalar("select jsonb_agg(to_jsonb(e))::text from control.skill_env e")
            .fetch_one(&mut world.admin().await)
            .await
            .unwrap();

    let expected = ["another/KEY=s3cret-other", "water-plants/KEY=s3cret-new"];
    assert_eq!(given(&world, ours.id).await, expected);
    assert_eq!(given(&world, theirs.id).await, Vec::<String>::new());
    assert_eq!(world.directory.skill_env().list(theirs.id).await.unwrap(), []);
    let listed = world.directory.skill_env().list(ours.id).await.unwrap();
    let listed: Vec<(&str, &str)> =
        listed.iter().map(|it| (it.skill.as_str(), it.name.as_str())).collect();
    assert_eq!(listed, [("another", "KEY"), ("water-plants", "KEY")]);
    assert!(rows.contains("water-plants") && !rows.contains("s3cret"), "{rows}");
    let other = world.with_another_kek().skill_env().open(ours.id).await;
    assert!(matches!(other, Err(Error::Unsealable(_))), "{other:?}");
    assert_eq!(world.audit(ours.id).await.last().unwrap().1, "skill_env.put");
}

#[tokio::test]
async fn what_is_forgotten_is_given_to_nobody_and_what_is_not_there_cannot_be() {
    let world = World::new().await;
    let (ours, _) = world.tenant("acme").await;
    let (theirs, _) = world.tenant("other").await;
    let which = ("water-plants", "KEY");
    world.directory.skill_env().put(ours.id, BY, which, &"s3cret".into()).await.unwrap();

    let foreign = world.directory.skill_env().delete(theirs.id, BY, which).await;
    assert!(matches!(foreign, Err(Error::NotFound { .. })), "{foreign:?}");
    world.directory.skill_env().delete(ours.id, BY, which).await.unwrap();
    let again = world.directory.skill_env().delete(ours.id, BY, which).await;

    assert!(matches!(again, Err(Error::NotFound { .. })), "{again:?}");
    assert_eq!(given(&world, ours.id).await, Vec::<String>::new());
}
