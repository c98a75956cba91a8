//! Two tenants with the same names never meet.

use holdfast_session::{DeliveryFilter, Error, RunFilter, SessionFilter};
use holdfast_types::{AgentName, SessionKey};

use crate::world::World;

fn is_not_found<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::NotFound { .. }))
}

#[tokio::test]
async fn the_same_keys_and_names_are_different_things() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, eve) = (world.tenant(), world.tenant());

    let hers = ada.say("s", "k1", "hello").await?;
    let other = eve.say("s", "k1", "good bye").await?;

    assert!(!other.duplicate);
    assert_ne!(hers.session, other.session);
    Ok(())
}

#[tokio::test]
async fn every_verb_says_not_found_to_another_tenant() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, eve) = (world.tenant(), world.tenant());
    let hers = ada.say("s", "k1", "hello").await?;
    let mut stolen = world.claim_one().await?;
    let sessions = &world.sessions;

    assert!(is_not_found(sessions.views().session(eve.id, hers.session).await));
    assert!(is_not_found(sessions.views().history(eve.id, hers.session, 10, None).await));
    assert!(is_not_found(
        sessions
            .views()
            .runs(
                eve.id,
                RunFilter { session: Some(hers.session), limit: 10, ..RunFilter::default() }
            )
            .await
    ));
    assert!(is_not_found(sessions.views().run(eve.id, hers.message.into()).await));
    assert!(is_not_found(sessions.views().answer(eve.id, hers.message).await));
    assert!(is_not_found(sessions.end_overdue(eve.id, hers.session, 1).await));
    assert!(is_not_found(sessions.cancel(eve.id, hers.session).await));
    assert!(is_not_found(sessions.pause(eve.id, hers.session).await));
    assert!(is_not_found(sessions.resume(eve.id, hers.session).await));
    assert!(is_not_found(sessions.delete(eve.id, hers.session).await));
    assert!(is_not_found(sessions.dead_letters().get(eve.id, hers.message).await));
    assert!(is_not_found(sessions.dead_letters().requeue(eve.id, hers.message).await));
    let delivery = holdfast_types::DeliveryId::from(hers.message.as_uuid());
    assert!(is_not_found(sessions.deliveries().resend(eve.id, delivery).await));

    let key = SessionKey::main(&AgentName::new("s"));
    assert_eq!(sessions.views().find(eve.id, &key).await?, None);
    let filter = SessionFilter { limit: 10, ..SessionFilter::default() };
    assert!(sessions.views().sessions(eve.id, filter).await?.is_empty());
    assert!(
        sessions
            .views()
            .runs(eve.id, RunFilter { limit: 10, ..RunFilter::default() })
            .await?
            .is_empty()
    );
    assert!(
        sessions
            .deliveries()
            .list(eve.id, DeliveryFilter { limit: 10, ..DeliveryFilter::default() })
            .await?
            .is_empty()
    );
    assert_eq!(sessions.queues().counts(eve.id).await?.waiting, 0);

    stolen.tenant = eve.id;
    assert!(sessions.load(&stolen, 10).await.unwrap_err().is_fenced());
    assert!(sessions.release(&stolen).await.unwrap_err().is_fenced());
    Ok(())
}

#[tokio::test]
async fn row_level_security_holds_where_a_query_forgets_the_tenant() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, eve) = (world.tenant(), world.tenant());
    ada.say("s", "k1", "hello").await?;

    let pools = world.pools()?;
    let mut tx = pools.tenant(eve.id).await?;
    let rows: i64 = holdfast_pg::query_scalar("select count(*) from session.inbox")
        .fetch_one(tx.conn())
        .await?;
    assert_eq!(rows, 0);
    drop(tx);
    let mut tx = pools.tenant(ada.id).await?;
    let rows: i64 = holdfast_pg::query_scalar("select count(*) from session.inbox")
        .fetch_one(tx.conn())
        .await?;
    assert_eq!(rows, 1);
    Ok(())
}

#[tokio::test]
async fn the_system_role_reads_no_message() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.tenant().say("s", "k1", "hello").await?;
    let pools = world.pools()?;

    let mut tx = pools.system().await?;
    let body = holdfast_pg::query("select body from session.inbox").execute(tx.conn()).await;
    drop(tx);
    let mut tx = pools.system().await?;
    let entries = holdfast_pg::query("select body from session.entries").execute(tx.conn()).await;

    assert!(body.unwrap_err().to_string().contains("permission denied"));
    assert!(entries.unwrap_err().to_string().contains("permission denied"));
    Ok(())
}
