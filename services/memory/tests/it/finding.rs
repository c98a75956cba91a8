//! Search results and their order.

use holdfast_proto::memory::v1 as pb;

use crate::world::{World, fact, from};

#[tokio::test]
async fn an_answer_is_found_by_the_question_before_it() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    ann.say("s1", &[("Bo", "Which instrument does your daughter play?"), ("Ann", "The oboe.")])
        .await?;
    ann.say("s1", &[("Bo", "And your son?"), ("Ann", "He rows.")]).await?;
    ann.embedded().await?;

    let found = ann.search("Which instrument does Ann's daughter play?").await?;

    let texts: Vec<&str> = found.hits.iter().map(|hit| hit.text.as_str()).collect();
    assert!(texts[..2].contains(&"The oboe."), "{texts:?}");
    let oboe = found.hits.iter().find(|hit| hit.text == "The oboe.").unwrap();
    let why = oboe.why.unwrap_or_default();
    assert!(why.author > 0.0 && why.words > 0.0, "{why:?}");
    Ok(())
}

#[tokio::test]
async fn turns_that_are_sent_again_are_known() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let turn = |name: &str, text: &str| pb::Turn {
        r#ref: name.into(),
        author: "Ann".into(),
        text: text.into(),
        at: None,
    };
    let send = |turns: Vec<pb::Turn>| {
        let request = pb::AddTurnsRequest {
            who: ann.me(),
            session: "s1".into(),
            turns,
            group_safe: false,
            provenance: from(),
        };
        ann.memory.add_turns(ann.tenant, request)
    };

    let first = send(vec![turn("a", "one"), turn("b", "two")]).await?;
    let again = send(vec![turn("a", "one"), turn("b", "two"), turn("c", "three")]).await?;

    assert_eq!((first.added, first.known), (2, 0));
    assert_eq!((again.added, again.known), (1, 2));
    Ok(())
}

#[tokio::test]
async fn filters_narrow_both_searches() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    ann.say("s1", &[("Ann", "tea at the harbour")]).await?;
    ann.say("s2", &[("Ann", "tea in the garden")]).await?;
    ann.index("memory/notes.md", "Green tea wants water of eighty degrees.").await?;
    let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    let old = pb::NewItem {
        at: at(1_500_000_000),
        tags: vec!["drinks".into()],
        r#type: "preference".into(),
        ..fact("tea rather than coffee")
    };
    ann.put(vec![old]).await?;
    ann.embedded().await?;

    for (filter, expected) in [
        (pb::Filter::default(), 4),
        (pb::Filter { kinds: vec![pb::Kind::Turn.into()], ..pb::Filter::default() }, 2),
        (pb::Filter { session: "s1".into(), ..pb::Filter::default() }, 1),
        (pb::Filter { not_sessions: vec!["s1".into()], ..pb::Filter::default() }, 3),
        (pb::Filter { types: vec!["preference".into()], ..pb::Filter::default() }, 1),
        (pb::Filter { until: at(1_600_000_000), ..pb::Filter::default() }, 1),
        (pb::Filter { since: at(1_600_000_000), ..pb::Filter::default() }, 3),
        (pb::Filter { path_prefix: "memory/".into(), ..pb::Filter::default() }, 1),
        (pb::Filter { tags: vec!["x".into(), "drinks".into()], ..pb::Filter::default() }, 1),
        (pb::Filter { tags: vec!["x".into()], ..pb::Filter::default() }, 0),
    ] {
        let found = ann.search_in("tea", filter.clone()).await?;
        assert_eq!(found.hits.len(), expected, "{filter:?}");
    }
    Ok(())
}

#[tokio::test]
async fn an_old_daily_note_comes_after_a_new_one_that_says_the_same() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    ann.index("memory/202001/20200105.md", "Went swimming in the lake with Bo.").await?;
    let today = jiff::Timestamp::now().strftime("%Y%m/%Y%m%d").to_string();
    ann.index(&format!("memory/{today}.md"), "Went swimming in the lake with Cy.").await?;
    ann.embedded().await?;

    let found = ann.search("swimming in the lake").await?;

    assert!(found.hits[0].path.contains(&today), "{:?}", found.hits[0].path);
    let decay = |at: usize| found.hits[at].why.unwrap_or_default().decay;
    assert!(decay(0) > 0.9 && decay(1) < 0.31, "{} {}", decay(0), decay(1));
    Ok(())
}

#[tokio::test]
async fn chinese_is_found_by_pairs_of_its_characters() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    ann.tell("我喜欢喝绿茶").await?;
    ann.tell("明天去北京开会").await?;

    assert_eq!(ann.found("绿茶好喝吗").await?[0], "我喜欢喝绿茶");
    assert_eq!(ann.found("北京").await?[0], "明天去北京开会");
    Ok(())
}

#[tokio::test]
async fn a_question_cannot_be_anything_but_a_question() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    ann.tell("tea'); drop table memory.items; --").await?;
    ann.embedded().await?;

    for odd in
        ["'", "tea' | '", r"te\a & !", "a:* <-> b", "@x | @y", "日本'語", &"ж'".repeat(9_000)]
    {
        ann.search(odd).await?;
    }

    assert_eq!(ann.found("tea").await?, ["tea'); drop table memory.items; --"]);
    Ok(())
}
