//! Commands that see only some directories of their workspace.

use std::{fs, os::unix::fs::symlink};

use holdfast_sandbox::{Access, Command, Error, PathError, Scope, WorkPath};
use tokio_util::sync::CancellationToken;

use crate::world::World;

fn scoped(world: &World, script: &str, read: &[&str], write: &[&str]) -> anyhow::Result<Command> {
    let paths = |texts: &[&str]| -> Result<Vec<WorkPath>, PathError> {
        texts.iter().map(|text| WorkPath::parse(text)).collect()
    };
    let scope = Scope { read: paths(read)?, write: paths(write)? };
    let mut command = world.command(script);
    command.workspace.access = Access::Scoped(scope);
    Ok(command)
}

fn tree(world: &World) -> anyhow::Result<()> {
    for dir in ["a/deep", "b", "c"] {
        fs::create_dir_all(world.workspace().join(dir))?;
    }
    for file in ["top", "a/x", "a/deep/x", "b/x", "c/x"] {
        fs::write(world.workspace().join(file), file)?;
    }
    Ok(())
}

#[tokio::test]
async fn only_what_is_in_scope_is_there_and_only_some_of_it_is_written() -> anyhow::Result<()> {
    let world = World::walled().await?;
    tree(&world)?;
    let script = "find . -type f | sort; for d in . a a/deep b; do \
                  touch $d/new 2>/dev/null && echo wrote $d; done; true";

    let outcome = world.run_command(scoped(&world, script, &["a"], &["b", "a/deep"])?).await?;

    assert_eq!(outcome.stdout.to_text(), "./a/deep/x\n./a/x\n./b/x\nwrote a/deep\nwrote b\n");
    assert!(!world.workspace().join("new").exists() && !world.workspace().join("a/new").exists());
    Ok(())
}

#[tokio::test]
async fn what_may_be_written_is_not_made_read_only_by_what_may_be_read() -> anyhow::Result<()> {
    let world = World::walled().await?;
    tree(&world)?;

    let command = scoped(&world, "touch a/deep/new && echo wrote", &["a/deep"], &["a"])?;

    assert_eq!(world.run_command(command).await?.stdout.to_text(), "wrote\n");
    Ok(())
}

#[tokio::test]
async fn a_scope_that_became_a_symlink_leads_nowhere() -> anyhow::Result<()> {
    let world = World::walled().await?;
    symlink("/etc", world.workspace().join("out"))?;

    for (read, write) in [(vec!["out"], vec![]), (vec![], vec!["out"])] {
        let command = scoped(&world, "ls out", &read, &write)?;
        let error = world.sandbox.run(command, CancellationToken::new()).await.unwrap_err();
        assert!(matches!(error, Error::Path(PathError::SymlinkOutside)), "{error}");
    }
    Ok(())
}

#[tokio::test]
async fn a_workspace_for_reading_is_not_written() -> anyhow::Result<()> {
    let world = World::walled().await?;
    tree(&world)?;
    let mut command = world.command("cat top; touch new 2>/dev/null || echo refused");
    command.workspace.access = Access::Read;

    assert_eq!(world.run_command(command).await?.stdout.to_text(), "toprefused\n");
    Ok(())
}

#[tokio::test]
async fn a_command_starts_in_its_directory_if_that_is_within() -> anyhow::Result<()> {
    for world in [World::walled().await?, World::plain().await?] {
        tree(&world)?;
        symlink("/etc", world.workspace().join("out"))?;
        let at = async |dir: &str| {
            let mut command = world.command("cat x");
            command.workdir = WorkPath::parse(dir)?;
            world.sandbox.run(command, CancellationToken::new()).await
        };

        assert_eq!(at("a/deep").await?.stdout.to_text(), "a/deep/x");
        for (dir, message) in [
            ("nowhere", "there is no such file or directory"),
            ("top", "this is not a directory"),
            ("out", "access denied: symlink resolves outside workspace"),
            ("..", "access denied: path is outside the workspace"),
        ] {
            assert_eq!(at(dir).await.unwrap_err().to_string(), message);
        }
    }
    Ok(())
}

#[tokio::test]
async fn without_isolation_a_scope_is_refused() -> anyhow::Result<()> {
    let world = World::plain().await?;
    let command = scoped(&world, "true", &[], &[])?;

    let error = world.sandbox.run(command, CancellationToken::new()).await.unwrap_err();

    assert!(matches!(error, Error::NoScope), "{error}");
    Ok(())
}
