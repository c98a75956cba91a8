//! Deleting an agent schedules the erasure of its memories.

use crate::world::{BY, World};

#[tokio::test]
async fn a_deleted_agent_leaves_word_that_it_is_to_be_forgotten() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("ada").await;
    let coach = world.agent(tenant.id, "coach").await;
    world.agent(tenant.id, "trainer").await;

    world.directory.agents().delete(tenant.id, BY, "coach").await.unwrap();

    let forgotten: Vec<(String, String)> =
        sqlx::query_as("select what, subject from memory.erasures where tenant_id = $1")
            .bind(tenant.id.as_uuid())
            .fetch_all(&mut world.admin().await)
            .await
            .unwrap();
    assert_eq!(forgotten, [("agent".to_owned(), coach.id.to_string())]);
}
