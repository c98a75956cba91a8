//! Embedding: crashes lose nothing, models change without a gap, and large tenants get an index.

use std::time::Duration;

use anyhow::Context as _;
use holdfast_proto::memory::v1 as pb;
use holdfast_testkit::Process;
use memory::{Embedding, Engine};
use tokio::{
    net::TcpListener,
    sync::watch,
    time::{Instant, sleep},
};

use crate::world::{Person, World, fact, from};

/// A vocabulary in which texts overlap and differ.
fn text(n: u32) -> String {
    let word =
        |at: u32| format!("word{}", n.wrapping_mul(2_654_435_761).wrapping_add(at * 7919) % 499);
    (0..12).map(word).collect::<Vec<_>>().join(" ")
}

async fn add(person: &Person, session: &str, count: u32) -> anyhow::Result<()> {
    let turns: Vec<pb::Turn> = (0..count)
        .map(|n| pb::Turn { r#ref: n.to_string(), text: text(n), ..pb::Turn::default() })
        .collect();
    for part in turns.chunks(512) {
        let request = pb::AddTurnsRequest {
            who: person.me(),
            session: session.to_owned(),
            turns: part.to_vec(),
            group_safe: false,
            provenance: from(),
        };
        person.memory.add_turns(person.tenant, request).await?;
    }
    Ok(())
}

/// Share of the ten best hits of an exact search that another memory service finds too.
async fn recall(person: &Person, exact: &Person) -> anyhow::Result<f64> {
    let (mut same, mut all) = (0, 0);
    for n in 0..40 {
        let question = format!("{} and more", text(n * 31 + 5));
        let found = person.search(&question).await?;
        let wanted = exact.search(&question).await?;
        assert_eq!((found.how.as_str(), wanted.how.as_str()), ("index", "exact"));
        all += wanted.hits.len();
        let is_found = |hit: &&pb::Hit| found.hits.iter().any(|found| found.id == hit.id);
        same += wanted.hits.iter().filter(is_found).count();
    }
    Ok(f64::from(u32::try_from(same)?) / f64::from(u32::try_from(all)?))
}

#[tokio::test]
async fn a_question_that_has_little_time_is_answered_by_words_while_the_embedder_is_slow()
-> anyhow::Result<()> {
    let (world, served) = World::start().await?;
    let ann = served.somebody();
    ann.tell("my keys are in the hall").await?;
    ann.embedded().await?;
    served.stop().await?;
    // The server accepts connections and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let mut config = world.config.clone();
    config.memory.embedding = Embedding {
        engine: Engine::OpenAi,
        base_url: format!("http://{}/v1", silent.local_addr()?),
        model: "slow".to_owned(),
        dimension: 8,
        ..Embedding::default()
    };
    let served = world.serve_with(config).await?;

    // Less than the wait of a caller without a deadline. The machine may be slow, but not always.
    let limit = Duration::from_millis(2_900);
    let mut answer = None;
    for _ in 0..20 {
        let request = pb::SearchRequest {
            who: ann.me(),
            query: "where are my keys?".to_owned(),
            ..pb::SearchRequest::default()
        };
        answer = served.memory.search_within(ann.tenant, request, limit).await.ok();
        if answer.is_some() {
            break;
        }
    }

    let answer = answer.context("it was late each time")?;
    assert_eq!((answer.hits.len(), answer.how.as_str()), (1, ""), "{answer:?}");
    Ok(())
}

#[tokio::test]
async fn a_large_tenant_is_searched_by_its_index_and_a_small_one_beside_it_exactly()
-> anyhow::Result<()> {
    let world = World::new().await?;
    let mut config = world.config.clone();
    config.memory.index_above = 500;
    let served = world.serve_with(config.clone()).await?;
    let (large, small) = (served.somebody(), served.somebody());
    add(&large, "s1", 900).await?;
    add(&small, "s1", 50).await?;
    let status = large.embedded().await?;
    small.embedded().await?;

    assert_eq!(status.search, "index");
    config.memory.index_above = 100_000;
    let exact = world.serve_with(config).await?;
    let same = Person { memory: exact.memory.clone(), ..large.clone() };
    assert!(recall(&large, &same).await? >= 0.99);
    assert_eq!(small.search(&text(3)).await?.how, "exact");
    // The tenant has little of another agent: that is scanned exactly.
    let beside = served.of(large.tenant, "ann");
    beside.tell("a needle in the haystack").await?;
    beside.embedded().await?;
    let found = beside.search("needle").await?;
    assert_eq!((found.how.as_str(), found.hits.len()), ("exact", 1));
    Ok(())
}

/// Ids of the best hits, and the search method.
async fn best(person: &Person, filter: &pb::Filter) -> anyhow::Result<(Vec<String>, String)> {
    let found = person.search_in(&text(7), filter.clone()).await?;
    Ok((found.hits.into_iter().map(|hit| hit.id).collect(), found.how))
}

#[tokio::test]
async fn what_filters_leave_of_much_is_found_as_if_all_were_looked_at() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut config = world.config.clone();
    config.memory.index_above = 400;
    let served = world.serve_with(config.clone()).await?;
    let ann = served.somebody();
    add(&ann, "s1", 600).await?;
    add(&ann, "s2", 40).await?;
    let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    let items = (0..30).map(|n| pb::NewItem {
        at: at(1_500_000_000 + i64::from(n)),
        tags: vec!["old".to_owned()],
        r#type: if n < 20 { "fact" } else { "preference" }.to_owned(),
        ..fact(&format!("{} {n}", text(1_000 + n)))
    });
    ann.put(items.collect()).await?;
    ann.index("memory/notes.md", &text(7)).await?;
    ann.embedded().await?;
    config.memory.index_above = 100_000;
    let exact = world.serve_with(config).await?;
    let same = Person { memory: exact.memory.clone(), ..ann.clone() };
    let memories = pb::Filter { kinds: vec![pb::Kind::Memory.into()], ..pb::Filter::default() };
    let types = vec!["preference".to_owned()];

    for (filter, hits, how) in [
        (pb::Filter::default(), 10, "index"),
        (pb::Filter { not_sessions: vec!["s2".into()], ..pb::Filter::default() }, 10, "index"),
        // Forty units count as few, some hundreds do not.
        (pb::Filter { session: "s2".into(), ..pb::Filter::default() }, 10, "exact"),
        (pb::Filter { session: "s1".into(), ..pb::Filter::default() }, 10, "index"),
        (pb::Filter { since: at(1_600_000_000), ..pb::Filter::default() }, 10, "index"),
        (pb::Filter { until: at(1_500_000_005), ..pb::Filter::default() }, 5, "exact"),
        (
            pb::Filter { since: at(1_500_000_028), until: at(1_600_000_000), ..memories.clone() },
            2,
            "exact",
        ),
        (pb::Filter { types: types.clone(), ..pb::Filter::default() }, 10, "exact"),
        (pb::Filter { types, ..memories.clone() }, 10, "exact"),
        (pb::Filter { path_prefix: "memory/".into(), ..pb::Filter::default() }, 1, "exact"),
        (pb::Filter { path_prefix: "memory%".into(), ..pb::Filter::default() }, 0, "exact"),
        (
            pb::Filter { tags: vec!["new".into(), "old".into()], ..pb::Filter::default() },
            10,
            "exact",
        ),
        (pb::Filter { tags: vec!["new".into()], ..pb::Filter::default() }, 0, "exact"),
        (pb::Filter { scope: pb::Scope::Tenant.into(), ..pb::Filter::default() }, 0, "exact"),
        // There are few units of this kind.
        (memories, 10, "exact"),
    ] {
        let (found, by) = best(&ann, &filter).await?;
        let (wanted, _) = best(&same, &filter).await?;

        assert_eq!((by.as_str(), found.len()), (how, hits), "{filter:?}");
        assert_eq!(found, wanted, "{filter:?}");
    }
    Ok(())
}

#[tokio::test]
async fn of_a_word_that_counts_which_they_see_who_asks() -> anyhow::Result<()> {
    let (world, served) = World::start().await?;
    let ann = served.somebody();
    let bob = ann.as_user("bob");
    ann.tell("tea in the morning").await?;
    for place in ["garden", "kitchen", "office"] {
        bob.tell(&format!("tea in the {place}")).await?;
    }
    let agent: holdfast_types::AgentId = ann.who.agent.parse()?;
    let pools = world.pools()?;

    for (users, held) in [(["", "ann"], 1), (["", "bob"], 3), (["ann", "bob"], 4), (["", "eve"], 0)]
    {
        let mut tx = pools.tenant(ann.tenant).await?;
        let counts: Vec<i32> =
            holdfast_pg::query_scalar("select memory.held_by('{tea}', array[$1], $2, '{}')")
                .bind(agent.as_uuid())
                .bind(users)
                .fetch_one(tx.conn())
                .await?;

        assert_eq!(counts, [held], "{users:?}");
    }
    Ok(())
}

#[tokio::test]
async fn what_was_counted_for_a_question_before_changes_no_answer() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut config = world.config.clone();
    config.memory.index_above = 100;
    let served = world.serve_with(config).await?;
    let ann = served.somebody();
    for n in 0..120 {
        ann.tell(&format!("tea from the shelf {}", text(n))).await?;
    }
    ann.embedded().await?;
    let question = format!("tea {}", &text(7)[..8]);
    let hits = async |ann: &Person| {
        let found = ann.search(&question).await?;
        assert_eq!(found.how, "index");
        let scores = |hit: pb::Hit| (hit.id, hit.score.to_bits());
        anyhow::Ok(found.hits.into_iter().map(scores).collect::<Vec<_>>())
    };

    let counted = hits(&ann).await?;

    assert_eq!(hits(&ann).await?, counted);
    ann.search("a zebra").await?;
    ann.tell("the zebra has tea from the shelf").await?;
    let found = ann.search("a zebra").await?;
    let is_told = |hit: &pb::Hit| {
        hit.text.contains("zebra") && hit.why.as_ref().is_some_and(|why| why.words_raw > 0.0)
    };
    assert!(found.hits.iter().any(is_told), "{found:?}");
    Ok(())
}

#[tokio::test]
async fn many_ask_a_large_tenant_at_once_though_connections_are_few() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut config = world.config.clone();
    config.memory.index_above = 100;
    let served = world.serve_with(config.clone()).await?;
    let ann = served.somebody();
    add(&ann, "s1", 120).await?;
    ann.embedded().await?;
    let ids = |found: pb::SearchResponse| -> Vec<String> {
        found.hits.into_iter().map(|hit| hit.id).collect()
    };
    let expected = ids(ann.search(&text(7)).await?);

    for few in [1, 2] {
        config.database.pool_size = few;
        let served = world.serve_with(config.clone()).await?;
        let ann = Person { memory: served.memory.clone(), ..ann.clone() };
        let asked = (0..24).map(|_| {
            let ann = ann.clone();
            tokio::spawn(async move { ann.search(&text(7)).await })
        });
        for asked in asked.collect::<Vec<_>>() {
            let found = asked.await??;
            assert_eq!(found.how, "index", "{few}");
            assert_eq!(ids(found), expected, "{few}");
        }
        served.stop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_is_forgotten_leaves_the_index_too() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut config = world.config.clone();
    config.memory.index_above = 500;
    let served = world.serve_with(config).await?;
    let ann = served.somebody();
    add(&ann, "s1", 600).await?;
    add(&ann, "s2", 100).await?;
    ann.embedded().await?;
    assert_eq!(ann.search(&text(1)).await?.how, "index");

    let what = Some(pb::forget_request::What::Session("s2".into()));
    let request = pb::ForgetRequest { who: ann.me(), what };
    let proof = ann.memory.forget(ann.tenant, request).await?;

    let index =
        |counts: &[pb::Count]| counts.iter().find(|count| count.what == "index").map(|c| c.rows);
    assert_eq!((index(&proof.erased), index(&proof.left)), (Some(100), Some(0)));
    assert!(ann.search(&text(1)).await?.hits.iter().all(|hit| hit.session == "s1"));
    Ok(())
}

/// State of a tenant that was just switched to another model than this service's.
async fn go_over(world: &World, person: &Person, former: &str, seconds: i32) -> anyhow::Result<()> {
    const SQL: &str = "
        update memory.spaces
        set former = $1, model = 'other', own = null,
            changed_at = clock_timestamp() + make_interval(secs => $2)";
    let mut tx = world.pools()?.tenant(person.tenant).await?;
    holdfast_pg::query(SQL).bind(former).bind(seconds).execute(tx.conn()).await?;
    Ok(tx.commit().await?)
}

#[tokio::test]
async fn what_is_forgotten_between_two_models_leaves_the_formers_index_too() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut config = world.config.clone();
    config.memory.index_above = 100;
    let served = world.serve_with(config).await?;
    let ann = served.somebody();
    add(&ann, "s1", 110).await?;
    add(&ann, "s2", 20).await?;
    assert_eq!(ann.embedded().await?.search, "index");
    go_over(&world, &ann, "hashed-v1-384", 3_600).await?;

    let what = Some(pb::forget_request::What::Session("s2".into()));
    let request = pb::ForgetRequest { who: ann.me(), what };
    let proof = ann.memory.forget(ann.tenant, request).await?;

    let index =
        |counts: &[pb::Count]| counts.iter().find(|count| count.what == "index").map(|c| c.rows);
    assert_eq!((index(&proof.erased), index(&proof.left)), (Some(20), Some(0)));
    let mut tx = world.pools()?.tenant(ann.tenant).await?;
    let sql = "select relname::text from pg_class where relname like 'own\\_%' and relkind = 'r'";
    let own: String = holdfast_pg::query_scalar(sql).fetch_one(tx.conn()).await?;
    let sql = sqlx::AssertSqlSafe(format!("select count(*) from memory.{own}"));
    let rows: i64 = holdfast_pg::query_scalar(sql).fetch_one(tx.conn()).await?;
    assert_eq!(rows, 110);
    Ok(())
}

#[tokio::test]
async fn a_third_model_waits_until_nothing_is_left_of_the_first() -> anyhow::Result<()> {
    let world = World::new().await?;
    let first = world.serve().await?;
    let ann = first.somebody();
    ann.tell("the ferry leaves at nine").await?;
    ann.embedded().await?;
    first.stop().await?;
    let mut tx = world.pools()?.tenant(ann.tenant).await?;
    let sql = "
        insert into memory.vectors
        select tenant_id, unit_id, 'first', dimension, agent_id, user_id, kind, group_safe, hash,
               embedding
        from memory.vectors";
    holdfast_pg::query(sql).execute(tx.conn()).await?;
    tx.commit().await?;
    go_over(&world, &ann, "first", -120).await?;

    let third = world.serve().await?;
    let ann = Person { memory: third.memory.clone(), ..ann };
    let until = Instant::now() + Duration::from_secs(60);
    while ann.status().await?.model != "hashed-v1-384" {
        assert!(Instant::now() < until);
        sleep(Duration::from_millis(20)).await;
    }

    let mut tx = world.pools()?.tenant(ann.tenant).await?;
    let sql = "select (select count(*) from memory.vectors where model = 'first'), former
               from memory.spaces";
    let left: (i64, Option<String>) = holdfast_pg::query_as(sql).fetch_one(tx.conn()).await?;
    assert_eq!(left, (0, Some("other".to_owned())));
    Ok(())
}

#[tokio::test]
async fn a_model_that_has_another_dimension_than_its_vectors_is_refused_at_the_start()
-> anyhow::Result<()> {
    let world = World::new().await?;
    let config = |dimension| {
        let mut config = world.config.clone();
        config.memory.embedding = Embedding {
            engine: Engine::OpenAi,
            base_url: "http://127.0.0.1:1/v1".into(),
            model: "tiny".into(),
            dimension,
            ..Embedding::default()
        };
        config
    };
    let mut tx = world.pools()?.tenant(holdfast_types::TenantId::generate()).await?;
    let sql = "insert into memory.spaces (tenant_id, model, dimension)
               values (control.tenant(), 'tiny', 192)";
    holdfast_pg::query(sql).execute(tx.conn()).await?;
    tx.commit().await?;

    let told = world.serve_with(config(256)).await?.ended().await.unwrap_err();

    let told = format!("{told:#}");
    assert!(told.contains("the model `tiny` have 192 numbers here, and the settings say 256"));
    assert!(told.contains("set `memory.embedding.dimension` back"), "{told}");
    Ok(())
}

#[tokio::test]
async fn another_model_takes_over_and_meanwhile_everything_is_found() -> anyhow::Result<()> {
    let world = World::new().await?;
    let first = world.serve().await?;
    let ann = first.somebody();
    for n in 0..100 {
        ann.tell(&text(n)).await?;
    }
    assert_eq!(ann.embedded().await?.model, "hashed-v1-384");
    first.stop().await?;

    let (open, is_open) = watch::channel(false);
    let server = server_behind(192, Duration::ZERO, is_open).await?;
    let mut config = world.config.clone();
    config.memory.former = Some(config.memory.embedding.clone());
    config.memory.embedding = Embedding {
        engine: Engine::OpenAi,
        base_url: server,
        model: "tiny".into(),
        dimension: 192,
        ..Embedding::default()
    };
    let second = world.serve_with(config).await?;
    let ann = Person { memory: second.memory.clone(), ..ann };
    let until = Instant::now() + Duration::from_secs(30);
    let mut models = std::collections::BTreeSet::new();
    loop {
        let found = ann.search(&text(7)).await?;
        assert_eq!(found.hits[0].text, text(7), "by {}", found.model);
        assert!(found.hits[0].why.unwrap_or_default().cosine > 0.9, "by {}", found.model);
        models.insert(found.model);
        // The new model's server responds only after this first search.
        open.send_replace(true);
        let status = ann.status().await?;
        if status.model == "tiny" && status.pending == 0 {
            break;
        }
        assert!(Instant::now() < until, "{status:?}");
        sleep(Duration::from_millis(20)).await;
    }

    assert!(models.contains("hashed-v1-384"), "{models:?}");
    assert_eq!(ann.search(&text(7)).await?.model, "tiny");
    assert_eq!(ann.status().await?.dimension, 192);
    Ok(())
}

/// Server with `/v1/embeddings` whose model has this dimension and is slow.
async fn server(dimension: usize, pause: Duration) -> anyhow::Result<String> {
    server_behind(dimension, pause, watch::channel(true).1).await
}

/// Like the above, but responds only once the flag is set.
async fn server_behind(
    dimension: usize,
    pause: Duration,
    open: watch::Receiver<bool>,
) -> anyhow::Result<String> {
    use axum::{Json, Router, routing::post};
    use holdfast_embed::{Embedder as _, HashEmbedder, Purpose};
    let answer = move |Json(asked): Json<serde_json::Value>| {
        let mut open = open.clone();
        async move {
            // Keep open connections open.
            drop(open.wait_for(|open| *open).await);
            sleep(pause).await;
            let texts: Vec<String> =
                serde_json::from_value(asked["input"].clone()).unwrap_or_default();
            let vectors = HashEmbedder::new(dimension)
                .embed(&texts, Purpose::Passage)
                .await
                .unwrap_or_default();
            let vector = |(index, embedding): (usize, &Vec<f32>)| serde_json::json!({"index": index, "embedding": embedding});
            let data: Vec<_> = vectors.iter().enumerate().map(vector).collect();
            Json(serde_json::json!({"data": data}))
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/v1", listener.local_addr()?);
    let router = Router::new().route("/v1/embeddings", post(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(url)
}

#[tokio::test]
async fn an_embedder_that_is_away_delays_meaning_and_loses_nothing() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut config = world.config.clone();
    config.memory.embedding = Embedding {
        engine: Engine::OpenAi,
        base_url: "http://127.0.0.1:1/v1".into(),
        model: "tiny".into(),
        dimension: 192,
        ..Embedding::default()
    };
    let away = world.serve_with(config.clone()).await?;
    let ann = away.somebody();
    ann.tell("the ferry leaves at nine").await?;
    sleep(Duration::from_millis(600)).await;

    assert_eq!(ann.found("when does the ferry leave?").await?, ["the ferry leaves at nine"]);
    let status = ann.status().await?;
    assert_eq!((status.pending, status.failed), (1, 0));
    away.stop().await?;
    config.memory.embedding.base_url = server(192, Duration::ZERO).await?;
    let back = world.serve_with(config).await?;
    let ann = Person { memory: back.memory.clone(), ..ann };
    assert_eq!(ann.embedded().await?.failed, 0);
    Ok(())
}

/// Not a test: the process that the next test kills.
#[tokio::test]
#[ignore = "it serves until it is killed"]
async fn a_child_that_serves() -> anyhow::Result<()> {
    let config = holdfast_kit::config::load("memory")?;
    memory::App::connect(config).await?.run(tokio_util::sync::CancellationToken::new()).await
}

#[tokio::test]
async fn a_service_that_is_killed_while_it_embeds_leaves_nothing_undone_or_doubled()
-> anyhow::Result<()> {
    let world = World::new().await?;
    let slow = server(192, Duration::from_millis(100)).await?;
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let url = format!("http://{port}");
    let child = || {
        Process::builder(std::env::current_exe()?)
            .arg("--exact")
            .arg("embedding::a_child_that_serves")
            .arg("--ignored")
            .env("HOLDFAST_MEMORY__LISTEN", port.to_string())
            .env("HOLDFAST_MEMORY__EMBEDDING__ENGINE", "openai")
            .env("HOLDFAST_MEMORY__EMBEDDING__BASE_URL", &slow)
            .env("HOLDFAST_MEMORY__EMBEDDING__MODEL", "tiny")
            .env("HOLDFAST_MEMORY__EMBEDDING__DIMENSION", "192")
            .env("HOLDFAST_DATABASE__URL", world.database.service_url("memory-service"))
            .env("HOLDFAST_MESH__SECRET", crate::world::SECRET)
            .spawn()
    };
    let ready = format!("{url}/readyz");
    let mut first = child()?;
    first.wait_for_ok(&ready, Duration::from_secs(60)).await?;
    let ann = crate::world::person(crate::world::client(&url)?);
    add(&ann, "s1", 600).await?;
    while ann.status().await?.pending > 450 {
        sleep(Duration::from_millis(5)).await;
    }
    first.kill().await?;

    let mut second = child()?;
    second.wait_for_ok(&ready, Duration::from_secs(60)).await?;
    // Units claimed by the killed process are available again after a minute, which is over now.
    let mut tx = world.pools()?.system().await?;
    holdfast_pg::query("update memory.queue set ready_at = clock_timestamp()")
        .execute(tx.conn())
        .await?;
    tx.commit().await?;
    let status = ann.embedded().await?;

    assert_eq!(status.failed, 0);
    let mut tx = world.pools()?.tenant(ann.tenant).await?;
    let sql = "select count(*), count(distinct unit_id), (select count(*) from memory.units)
               from memory.vectors";
    let counts: (i64, i64, i64) = holdfast_pg::query_as(sql).fetch_one(tx.conn()).await?;
    assert_eq!(counts, (600, 600, 600));
    second.kill().await
}
