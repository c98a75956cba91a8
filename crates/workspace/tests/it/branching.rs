//! A subagent's copy of the files: what is changed in it is taken over whole and once, or not.

use holdfast_types::{AgentId, TenantId, TreePath};
use holdfast_workspace::{BranchState, ChangeAuthor, CommitOutcome, Error, LogFilter, Patch};

use crate::world::{World, by, delete, hash, path, put, put_on, tree};

/// A world with three files, and a copy of them.
async fn branched() -> anyhow::Result<(World, AgentId)> {
    let world = World::start().await?;
    world.commit(vec![put("a", "one\n")?, put("b", "two\n")?, put("c/d", "three\n")?]).await?;
    let branch = AgentId::generate();
    world.trees.branch(world.tenant, world.agent, branch, &by("sub")).await?;
    Ok((world, branch))
}

async fn change(world: &World, branch: AgentId) -> anyhow::Result<()> {
    let edits = vec![put_on("a", "uno\n", hash("one\n"))?, delete("b")?, put("e", "new\n")?];
    world.trees.commit(world.tenant, branch, &by("sub"), edits).await?;
    Ok(())
}

async fn patch(world: &World, branch: AgentId) -> Result<Patch, Error> {
    world.trees.patch(world.tenant, world.agent, branch, None).await
}

async fn merge(
    world: &World,
    branch: AgentId,
    by: &ChangeAuthor,
    except: &[TreePath],
) -> Result<CommitOutcome, Error> {
    world.trees.merge(world.tenant, world.agent, branch, by, except, |_| None).await
}

fn keyed() -> ChangeAuthor {
    by("main").with_key("call-1")
}

#[tokio::test]
async fn what_is_changed_in_a_copy_is_in_nobody_elses_files_until_it_is_merged()
-> anyhow::Result<()> {
    let (world, branch) = branched().await?;
    let before = world.tree(None).await?;

    change(&world, branch).await?;
    let told = patch(&world, branch).await?;
    let shown = told.diff.to_string();

    assert_eq!(world.tree(None).await?, before);
    assert_eq!((told.state, told.base), (BranchState::Open, 1.into()));
    let files: Vec<String> = told.diff.files.iter().map(|f| f.file.path.to_string()).collect();
    assert_eq!(files, ["a", "b", "e"]);
    assert!(shown.contains("-one\n+uno\n") && shown.contains("--- /dev/null\n+++ b/e"), "{shown}");

    let merged = merge(&world, branch, &keyed(), &[]).await?;

    assert_eq!((merged.revision, merged.changed), (2.into(), 3));
    assert_eq!(
        world.tree(None).await?,
        tree(&[("a", "uno\n"), ("c/d", "three\n"), ("e", "new\n")])
    );
    let log = world.trees.log(world.tenant, world.agent, &LogFilter::default()).await?;
    assert!(log.is_empty());
    let filter = LogFilter { limit: 1, ..LogFilter::default() };
    let log = world.trees.log(world.tenant, world.agent, &filter).await?;
    assert_eq!((log[0].author.as_str(), log[0].changed), ("main", 3));
    assert_eq!(patch(&world, branch).await?.state, BranchState::Merged);
    Ok(())
}

#[tokio::test]
async fn a_copy_is_of_one_moment_and_what_others_do_since_does_not_reach_it() -> anyhow::Result<()>
{
    let (world, branch) = branched().await?;

    world.put("a", "later\n").await?;
    world.trees.branch(world.tenant, world.agent, branch, &by("again")).await?;
    let read = world.trees.read(world.tenant, branch, &path("a")?, None).await?;

    assert_eq!(read.unwrap().text(), Some("one\n"));
    assert!(patch(&world, branch).await?.diff.files.is_empty());
    Ok(())
}

#[tokio::test]
async fn files_that_both_changed_are_named_and_nothing_of_the_patch_is_taken() -> anyhow::Result<()>
{
    let (world, branch) = branched().await?;
    change(&world, branch).await?;
    world.commit(vec![put("a", "eins\n")?, put("e", "neu\n")?]).await?;
    let before = world.tree(None).await?;

    let error = merge(&world, branch, &keyed(), &[]).await.unwrap_err();
    let told = error.to_string();

    assert!(matches!(error, Error::Conflicts { ref paths, more: 0 } if paths.len() == 2), "{told}");
    assert!(told.starts_with("`a`, `e` changed on both sides"), "{told}");
    assert_eq!(world.tree(None).await?, before);
    assert_eq!(patch(&world, branch).await?.state, BranchState::Open);

    merge(&world, branch, &keyed(), &[path("a")?, path("e")?]).await?;
    assert_eq!(
        world.tree(None).await?,
        tree(&[("a", "eins\n"), ("c/d", "three\n"), ("e", "neu\n")])
    );
    Ok(())
}

#[tokio::test]
async fn what_both_changed_alike_is_no_conflict() -> anyhow::Result<()> {
    let (world, branch) = branched().await?;
    change(&world, branch).await?;
    world.commit(vec![put("a", "uno\n")?, delete("b")?]).await?;

    let merged = merge(&world, branch, &keyed(), &[]).await?;

    assert_eq!(merged.changed, 1);
    assert_eq!(world.text("e").await?.as_deref(), Some("new\n"));
    Ok(())
}

#[tokio::test]
async fn a_merge_that_is_sent_again_is_made_once_and_nothing_is_written_after_it()
-> anyhow::Result<()> {
    let (world, branch) = branched().await?;
    change(&world, branch).await?;

    let first = merge(&world, branch, &keyed(), &[]).await?;
    world.put("a", "mine\n").await?;
    let again = merge(&world, branch, &keyed(), &[]).await?;
    let other = merge(&world, branch, &by("main").with_key("call-2"), &[]).await.unwrap_err();
    let late = world.trees.commit(world.tenant, branch, &by("sub"), vec![put("a", "x")?]).await;
    let kept = world.trees.discard_branch(world.tenant, world.agent, branch).await;

    assert_eq!((again.revision, again.repeated), (first.revision, true));
    assert!(matches!(other, Error::Closed(BranchState::Merged)), "{other}");
    assert!(matches!(late, Err(Error::Closed(BranchState::Merged))));
    assert!(matches!(kept, Err(Error::Closed(BranchState::Merged))));
    assert_eq!(world.text("a").await?.as_deref(), Some("mine\n"));
    Ok(())
}

#[tokio::test]
async fn a_patch_with_a_file_that_may_not_be_changed_is_refused_whole() -> anyhow::Result<()> {
    let (world, branch) = branched().await?;
    change(&world, branch).await?;
    let refuse = |file: &TreePath| (file.as_str() == "e").then(|| "`e` is not yours".to_owned());

    let by = keyed();
    let error = world.trees.merge(world.tenant, world.agent, branch, &by, &[], refuse).await;

    assert_eq!(error.unwrap_err().to_string(), "`e` is not yours");
    assert_eq!(world.text("a").await?.as_deref(), Some("one\n"));
    let stray = merge(&world, branch, &keyed(), &[path("c/d")?]).await.unwrap_err();
    assert_eq!(stray.to_string(), "there is no change in the patch to `c/d`");
    Ok(())
}

#[tokio::test]
async fn a_patch_that_is_given_up_changes_nothing_and_its_files_go() -> anyhow::Result<()> {
    let (world, branch) = branched().await?;
    change(&world, branch).await?;

    world.trees.discard_branch(world.tenant, world.agent, branch).await?;
    world.trees.discard_branch(world.tenant, world.agent, branch).await?;
    let merged = merge(&world, branch, &keyed(), &[]).await.unwrap_err();
    assert!(matches!(merged, Error::Closed(BranchState::Discarded)), "{merged}");
    assert_eq!(world.trees.sweep_branches().await?, 0);

    world
        .admin(
            "update workspace.trees set closed_at = now() - interval '2 hours'
                 where branch_of is not null",
        )
        .await?;
    assert_eq!(world.trees.sweep_branches().await?, 1);

    assert_eq!(world.tree(None).await?.len(), 3);
    let contents = world.number("select count(*) from workspace.contents").await?;
    assert_eq!(contents, 3);
    assert_eq!(patch(&world, branch).await?.state, BranchState::Gone);
    let late = world.trees.commit(world.tenant, branch, &by("sub"), vec![put("a", "x")?]).await;
    assert!(matches!(late, Err(Error::Closed(BranchState::Gone))));
    world
        .admin(
            "update workspace.trees set closed_at = now() - interval '8 days'
                 where branch_of is not null",
        )
        .await?;
    assert_eq!(world.trees.sweep_branches().await?, 1);
    assert_eq!(world.number("select count(*) from workspace.trees").await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_patch_that_nobody_merges_goes_after_eight_days_and_not_before() -> anyhow::Result<()> {
    let (world, branch) = branched().await?;
    change(&world, branch).await?;
    let aged = |days: u32| {
        format!(
            "update workspace.trees set created_at = now() - interval '{days} days'
             where branch_of is not null"
        )
    };

    world.admin(&aged(7)).await?;
    assert_eq!(world.trees.sweep_branches().await?, 0);
    world.admin(&aged(9)).await?;
    assert_eq!(world.trees.sweep_branches().await?, 1);

    assert_eq!(world.number("select count(*) from workspace.files").await?, 3);
    Ok(())
}

#[tokio::test]
async fn a_branch_is_its_tenants_and_its_agents_and_goes_with_the_agent() -> anyhow::Result<()> {
    let (world, branch) = branched().await?;
    change(&world, branch).await?;
    let (eve, other) = (TenantId::generate(), AgentId::generate());

    for (tenant, agent) in [(eve, world.agent), (world.tenant, other)] {
        assert!(world.trees.patch(tenant, agent, branch, None).await.is_err());
        assert!(world.trees.discard_branch(tenant, agent, branch).await.is_err());
        let merged = world.trees.merge(tenant, agent, branch, &keyed(), &[], |_| None).await;
        assert!(matches!(merged, Err(Error::NotFound { .. })));
    }
    assert_eq!(patch(&world, branch).await?.diff.files.len(), 3);

    world.trees.delete_tree(world.tenant, world.agent).await?;
    for table in ["trees", "contents", "files", "revisions", "changes"] {
        let left = world.number(&format!("select count(*) from workspace.{table}")).await?;
        assert_eq!(left, 0, "{table}");
    }
    Ok(())
}
