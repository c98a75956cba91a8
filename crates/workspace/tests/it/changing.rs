//! A change is made whole or not at all, once, and never over somebody else's work.

use holdfast_types::{Fault as _, Kind, RunId};
use holdfast_workspace::{Base, ChangeAuthor, Clash, CommitOutcome, Error, LogFilter, Revision};

use crate::world::{World, by, delete, hash, path, put, put_on, tree};

#[tokio::test]
async fn a_change_is_made_whole_and_numbered() -> anyhow::Result<()> {
    let world = World::start().await?;

    let first = world.commit(vec![put("a.md", "one")?, put("b/c.md", "two")?]).await?;
    let second = world.commit(vec![put("a.md", "three")?, delete("b/c.md")?]).await?;

    assert_eq!(first, CommitOutcome { revision: 1.into(), changed: 2, repeated: false });
    assert_eq!(second, CommitOutcome { revision: 2.into(), changed: 2, repeated: false });
    assert_eq!(world.tree(None).await?, tree(&[("a.md", "three")]));
    assert_eq!(world.trees.head(world.tenant, world.agent).await?, 2.into());
    Ok(())
}

#[tokio::test]
async fn what_somebody_else_changed_is_not_written_over_and_they_are_named() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.put("plan.md", "one").await?;
    let theirs = vec![put_on("plan.md", "theirs", hash("one"))?];
    world.trees.commit(world.tenant, world.agent, &by("eve"), theirs).await?;

    let mine = vec![put("other.md", "x")?, put_on("plan.md", "mine", hash("one"))?];
    let error = world.commit(mine).await.unwrap_err();

    assert_eq!(
        error.to_string(),
        "`plan.md` was changed by eve in revision 2, after you last read it: read it again, \
         then decide"
    );
    assert_eq!(error.kind(), Kind::Conflict);
    assert_eq!(world.tree(None).await?, tree(&[("plan.md", "theirs")]));
    Ok(())
}

#[tokio::test]
async fn what_was_made_or_deleted_meanwhile_is_a_clash_too() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.put("made.md", "theirs").await?;
    world.put("gone.md", "theirs").await?;
    world.commit(vec![delete("gone.md")?]).await?;

    let made = world.commit(vec![put_on("made.md", "mine", Base::Absent)?]).await;
    let gone = world.commit(vec![put_on("gone.md", "mine", hash("theirs"))?]).await;
    let never = world.commit(vec![put_on("never.md", "mine", hash("theirs"))?]).await;
    let nothing = world.commit(vec![delete("never.md")?]).await;

    assert!(matches!(made, Err(Error::Clash { clash: Clash::Created, .. })));
    let Err(Error::Clash { clash: Clash::Deleted, revision, .. }) = gone else {
        anyhow::bail!("{gone:?}")
    };
    assert_eq!(revision, Revision::from(3));
    assert!(matches!(never, Err(Error::NotFound { .. })));
    assert!(matches!(nothing, Err(Error::NotFound { .. })));
    Ok(())
}

#[tokio::test]
async fn of_many_who_change_one_file_at_once_one_is_first_and_all_others_are_told()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.put("plan.md", "one").await?;
    world.connect(8).await?;

    let mut all = Vec::new();
    for n in 0..8 {
        let edits = vec![put_on("plan.md", &format!("mine {n}"), hash("one"))?];
        all.push(world.commit(edits));
    }
    let outcomes = futures::future::join_all(all).await;

    let made = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let told = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, Err(Error::Clash { clash: Clash::Changed, .. })))
        .count();
    assert_eq!((made, told), (1, 7), "{outcomes:?}");
    assert_eq!(world.trees.head(world.tenant, world.agent).await?, 2.into());
    Ok(())
}

#[tokio::test]
async fn changes_of_different_files_at_once_are_all_made() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.connect(8).await?;

    let mut all = Vec::new();
    for n in 0..8 {
        // The same contents in the other order, so that they meet.
        let mut edits = vec![put(&format!("{n}/a"), "one")?, put(&format!("{n}/b"), "two")?];
        if n % 2 == 0 {
            edits.reverse();
        }
        all.push(world.commit(edits));
    }
    for outcome in futures::future::join_all(all).await {
        outcome?;
    }

    assert_eq!(world.paths().await?.len(), 16);
    assert_eq!(world.number("select count(*) from workspace.contents").await?, 2);
    assert_eq!(world.number("select files::bigint from workspace.trees").await?, 16);
    assert_eq!(world.number("select bytes from workspace.trees").await?, 48);
    Ok(())
}

#[tokio::test]
async fn the_same_key_again_changes_nothing_and_answers_with_the_first_revision()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let (tenant, agent) = (world.tenant, world.agent);
    let keyed = by("ada").with_key("ses:1:2:3");
    let edits = || anyhow::Ok(vec![put_on("a.md", "one", Base::Absent)?]);
    let first = world.trees.commit(tenant, agent, &keyed, edits()?).await?;
    world.put("a.md", "later").await?;

    let again = world.trees.commit(tenant, agent, &keyed, edits()?).await?;
    // Read again after its own first time, it is still the same change.
    let reread = vec![put_on("a.md", "one", hash("one"))?];
    let reread = world.trees.commit(tenant, agent, &keyed, reread).await?;
    let other = world.trees.commit(tenant, agent, &keyed, vec![put("a.md", "two")?]).await;

    assert_eq!(first, CommitOutcome { revision: 1.into(), changed: 1, repeated: false });
    assert_eq!(again, CommitOutcome { revision: 1.into(), changed: 1, repeated: true });
    assert_eq!(reread, again);
    assert!(matches!(other, Err(Error::KeyReused(key)) if key == "ses:1:2:3"));
    assert_eq!(world.trees.outcome_by_key(tenant, agent, "ses:1:2:3").await?, Some(again));
    assert_eq!(world.trees.outcome_by_key(tenant, agent, "ses:1:2:4").await?, None);
    assert_eq!(world.text("a.md").await?.as_deref(), Some("later"));
    Ok(())
}

#[tokio::test]
async fn of_many_with_one_key_at_once_one_changes() -> anyhow::Result<()> {
    let world = World::start().await?;
    let keyed = by("ada").with_key("k");
    world.connect(8).await?;

    let mut all = Vec::new();
    for _ in 0..8 {
        let edits = vec![put("a.md", "one")?];
        all.push(world.trees.commit(world.tenant, world.agent, &keyed, edits));
    }
    let outcomes = futures::future::join_all(all).await;

    let mut first = 0;
    for outcome in outcomes {
        let outcome = outcome?;
        assert_eq!(outcome.revision, 1.into());
        first += usize::from(!outcome.repeated);
    }
    assert_eq!(first, 1);
    Ok(())
}

#[tokio::test]
async fn what_changes_nothing_makes_no_revision_unless_a_key_is_to_be_remembered()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.put("a.md", "one").await?;

    let nothing = world.commit(vec![put("a.md", "one")?]).await?;
    let keyed = by("ada").with_key("k");
    let empty =
        world.trees.commit(world.tenant, world.agent, &keyed, vec![put("a.md", "one")?]).await?;

    assert_eq!(nothing, CommitOutcome { revision: 1.into(), changed: 0, repeated: false });
    assert_eq!(empty, CommitOutcome { revision: 2.into(), changed: 0, repeated: false });
    assert_eq!(world.tree(Some(2.into())).await?, world.tree(Some(1.into())).await?);
    Ok(())
}

#[tokio::test]
async fn a_file_is_never_a_folder_too() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.put("a/b", "one").await?;
    world.put("a-b", "beside").await?;
    world.put("a.md", "beside").await?;

    let above = world.commit(vec![put("a", "x")?]).await.unwrap_err();
    let below = world.commit(vec![put("a/b/c", "x")?]).await.unwrap_err();
    let both = world.commit(vec![put("new", "x")?, put("new/x", "x")?]).await.unwrap_err();
    world.commit(vec![delete("a/b")?, put("a", "a file now")?]).await?;

    assert_eq!(
        above.to_string(),
        "`a` cannot be a file and a folder, and `a/b` is in it: take another name"
    );
    assert!(matches!(below, Error::Folder { folder, file } if folder == "a/b" && file == "a/b/c"));
    assert!(matches!(both, Error::Folder { .. }));
    assert_eq!(world.paths().await?, ["a", "a-b", "a.md"]);
    Ok(())
}

#[tokio::test]
async fn a_change_that_says_nothing_or_too_much_is_refused() -> anyhow::Result<()> {
    let world = World::start().await?;
    let commit = async |by: ChangeAuthor| {
        let edits = vec![put("a", "x")?];
        anyhow::Ok(world.trees.commit(world.tenant, world.agent, &by, edits).await)
    };

    let twice = world.commit(vec![put("a", "x")?, delete("a")?]).await;
    assert!(matches!(twice, Err(Error::Invalid(told)) if told.contains("two of `a`")));
    assert!(matches!(world.commit(vec![]).await, Err(Error::Invalid(_))));
    for wrong in [
        by(""),
        by("a\nb"),
        by(&"x".repeat(201)),
        ChangeAuthor { reason: "x".repeat(2_001), ..by("ada") },
        ChangeAuthor { reason: "a\0b".to_owned(), ..by("ada") },
        by("ada").with_key(""),
        by("ada").with_key(&"x".repeat(257)),
    ] {
        assert!(matches!(commit(wrong).await?, Err(Error::Invalid(_))));
    }
    assert!(commit(ChangeAuthor { reason: "ü".repeat(2_000), ..by("ada") }).await?.is_ok());
    Ok(())
}

#[tokio::test]
async fn a_change_knows_its_run() -> anyhow::Result<()> {
    let world = World::start().await?;
    let run = RunId::generate();
    let in_turn = ChangeAuthor { run: Some(run), reason: "asked to".to_owned(), ..by("main") };
    world.trees.commit(world.tenant, world.agent, &in_turn, vec![put("a", "x")?]).await?;

    let filter = LogFilter { limit: 10, ..LogFilter::default() };
    let log = world.trees.log(world.tenant, world.agent, &filter).await?;

    assert_eq!((log[0].run, log[0].reason.as_str()), (Some(run), "asked to"));
    assert_eq!(log[0].files[0].path, path("a")?);
    Ok(())
}
