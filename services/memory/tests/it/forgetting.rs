//! Erasure on request: erased data is gone, and the response proves it.

use std::time::Duration;

use holdfast_pg::TenantTx;
use holdfast_proto::memory::v1::{self as pb, forget_request::What};
use holdfast_types::Kind;
use tokio::time::{Instant, sleep};

use crate::world::{Person, World, fact};

async fn forget(
    person: &Person,
    what: What,
) -> Result<pb::ForgetResponse, holdfast_grpc::MemoryCallError> {
    let request = pb::ForgetRequest { who: person.me(), what: Some(what) };
    person.memory.forget(person.tenant, request).await
}

fn rows(counts: &[pb::Count], what: &str) -> u64 {
    counts.iter().filter(|count| count.what == what).map(|count| count.rows).sum()
}

#[tokio::test]
async fn one_thing_goes_with_its_vector() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let id = ann.tell("my pin is in the drawer").await?;
    ann.tell("my keys are in the hall").await?;
    ann.embedded().await?;

    let proof = forget(&ann, What::Item(id.clone())).await?;

    for table in ["items", "units", "vectors"] {
        assert_eq!((rows(&proof.erased, table), rows(&proof.left, table)), (1, 0), "{table}");
    }
    assert_eq!(ann.found("pin in the drawer").await?, ["my keys are in the hall"]);
    assert_eq!(forget(&ann, What::Item(id)).await.unwrap_err().kind, Kind::NotFound);
    Ok(())
}

/// Waits until another transaction waits for a lock of this one.
pub async fn somebody_waits(world: &World, holder: &mut TenantTx) -> anyhow::Result<()> {
    const SQL: &str =
        "select count(*) from pg_locks where not granted and transactionid::text = $1";
    // However long the machine stalls, it keeps its locks.
    holdfast_pg::query("set local idle_in_transaction_session_timeout = 0")
        .execute(holder.conn())
        .await?;
    let holder: String = holdfast_pg::query_scalar("select pg_current_xact_id()::xid::text")
        .fetch_one(holder.conn())
        .await?;
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let mut tx = world.pools()?.system().await?;
        let waiting: i64 =
            holdfast_pg::query_scalar(SQL).bind(&holder).fetch_one(tx.conn()).await?;
        tx.finish_reading();
        if waiting > 0 {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < until, "nobody waits for a lock");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn what_is_put_back_while_it_is_erased_is_not_found_again() -> anyhow::Result<()> {
    let (world, served) = World::start().await?;
    let ann = served.somebody();
    let id = ann.tell("my pin is in the drawer").await?;
    ann.embedded().await?;

    // Another replica is erasing the item.
    let mut eraser = world.pools()?.tenant(ann.tenant).await?;
    for sql in ["delete from memory.units", "delete from memory.items"] {
        holdfast_pg::query(sql).execute(eraser.conn()).await?;
    }
    let request = pb::SetItemActiveRequest { who: ann.me(), id, active: true };
    let (memory, tenant) = (ann.memory.clone(), ann.tenant);
    let put_back = tokio::spawn(async move { memory.set_item_active(tenant, request).await });
    somebody_waits(&world, &mut eraser).await?;
    eraser.commit().await?;

    assert_eq!(put_back.await?.unwrap_err().kind, Kind::NotFound);
    assert!(ann.found("pin in the drawer").await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn what_is_erased_while_it_is_put_back_is_gone_whole() -> anyhow::Result<()> {
    const AGAIN: &str = "
        insert into memory.units
        select (jsonb_populate_record(u, jsonb_build_object('unit_id', gen_random_uuid()))).*
        from memory.units u";
    let (world, served) = World::start().await?;
    let ann = served.somebody();
    let id = ann.tell("my pin is in the drawer").await?;
    ann.embedded().await?;

    // Another replica is making the item active again.
    let mut other = world.pools()?.tenant(ann.tenant).await?;
    for sql in ["update memory.items set active = true", AGAIN] {
        holdfast_pg::query(sql).execute(other.conn()).await?;
    }
    let asked = ann.clone();
    let erasing = tokio::spawn(async move { forget(&asked, What::Item(id)).await });
    somebody_waits(&world, &mut other).await?;
    other.commit().await?;
    let proof = erasing.await??;

    assert_eq!((rows(&proof.erased, "units"), rows(&proof.left, "units")), (2, 0));
    assert!(ann.found("pin in the drawer").await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_session_goes_with_everything_that_came_from_it() -> anyhow::Result<()> {
    let (world, served) = World::start().await?;
    let ann = served.somebody();
    ann.say("s1", &[("Ann", "I was in Rome"), ("Bo", "lovely")]).await?;
    ann.say("s2", &[("Ann", "I was in Oslo")]).await?;
    ann.put(vec![pb::NewItem { session: "s1".into(), ..fact("Ann was in Rome") }]).await?;
    ann.as_user("cy").say("s1", &[("Cy", "I was in Rome too")]).await?;
    ann.embedded().await?;

    let proof = forget(&ann, What::Session("s1".into())).await?;

    assert_eq!((rows(&proof.erased, "units"), rows(&proof.erased, "items")), (3, 1));
    assert!(proof.left.iter().all(|count| count.rows == 0), "{:?}", proof.left);
    assert_eq!(ann.found("Rome").await?, ["I was in Oslo"]);
    assert_eq!(ann.as_user("cy").found("Rome").await?[0], "I was in Rome too");
    let mut tx = world.pools()?.tenant(ann.tenant).await?;
    let names: Vec<String> =
        holdfast_pg::query_scalar("select name from memory.authors order by 1")
            .fetch_all(tx.conn())
            .await?;
    assert_eq!(names, ["Ann", "Cy"], "Bo said nothing else");
    Ok(())
}

#[tokio::test]
async fn a_user_goes_from_every_table_and_others_stay() -> anyhow::Result<()> {
    let (world, served) = World::start().await?;
    let ann = served.somebody();
    let bo = ann.as_user("bo");
    for person in [&ann, &bo] {
        person.tell("I like tea").await?;
        person.say("s1", &[(person.who.user.as_str(), "hello there")]).await?;
        person.index("memory/MEMORY.md", "# Me\n\nI like tea.").await?;
    }
    // Queued units are erased too.
    ann.embedded().await?;
    bo.tell("and coffee").await?;

    let theirs = forget(&ann, What::User("bo".into())).await.unwrap_err();
    let proof = forget(&bo, What::User("bo".into())).await?;

    assert_eq!(theirs.kind, Kind::NotFound);
    assert!(proof.left.iter().all(|count| count.rows == 0), "{:?}", proof.left);
    assert_eq!((rows(&proof.erased, "items"), rows(&proof.erased, "documents")), (2, 1));
    let mut tx = world.pools()?.tenant(ann.tenant).await?;
    for table in ["items", "units", "vectors", "documents", "authors"] {
        let sql = format!("select count(*) from memory.{table} where user_id = $1");
        for (user, expected) in [("bo", false), ("ann", true)] {
            let rows: i64 = holdfast_pg::query_scalar(sqlx::AssertSqlSafe(sql.clone()))
                .bind(user)
                .fetch_one(tx.conn())
                .await?;
            assert_eq!(rows > 0, expected, "{table} of {user}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_administrator_may_erase_any_user_of_the_tenant() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    ann.as_user("bo").tell("I like tea").await?;

    let proof = forget(&ann.as_admin(), What::User("bo".into())).await?;

    assert_eq!(rows(&proof.erased, "items"), 1);
    assert!(ann.as_user("bo").found("tea").await?.is_empty());
    Ok(())
}
