//! What sign-ins store.

use holdfast_directory::SignIn;
use holdfast_types::TenantRole;

use crate::world::World;

#[tokio::test]
async fn a_sign_in_is_stored_again_only_if_something_has_changed() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let said = SignIn {
        tenant: "acme".to_owned(),
        issuer: "https://id.example".to_owned(),
        subject: "7".to_owned(),
        name: "Anna".to_owned(),
        role: TenantRole::Viewer,
    };
    let person = world.directory.people().sign_in(&said).await.unwrap().person;
    let seen_at = async || world.again().people().get(tenant.id, person).await.unwrap().seen_at;
    let first = seen_at().await;

    for _ in 0..3 {
        // Another gateway, which has nothing in its cache.
        world.again().people().sign_in(&said).await.unwrap();
    }
    assert_eq!(seen_at().await, first);

    let promoted = SignIn { role: TenantRole::Operator, ..said };
    world.again().people().sign_in(&promoted).await.unwrap();
    assert!(seen_at().await > first);
}
