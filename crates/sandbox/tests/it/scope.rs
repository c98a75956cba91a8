//! Access of commands to their workspace.

use std::{fs, os::unix::fs::symlink};

use holdfast_sandbox::{Access, WorkPath};
use tokio_util::sync::CancellationToken;

use crate::world::World;

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
