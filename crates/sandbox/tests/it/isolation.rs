//! Files and processes that a command can and cannot reach.

use std::fs;

use holdfast_sandbox::{BackendChoice, CommandEnd, Config};

use crate::world::{SECRET, World, config};

#[tokio::test]
async fn a_command_sees_its_workspace_and_writes_there() -> anyhow::Result<()> {
    let world = World::walled().await?;
    fs::write(world.workspace().join("in"), "given")?;

    let output = world.output("pwd; cat in; echo made > out; id -u; hostname").await?;

    assert_eq!(output, "/workspace\ngiven1000\nsandbox\n");
    assert_eq!(fs::read_to_string(world.workspace().join("out"))?, "made\n");
    Ok(())
}

#[tokio::test]
async fn a_secret_outside_cannot_be_read_by_any_path() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let secret = world.secret();
    let secret = secret.display();

    let outcome = world
        .run(&format!(
            "cat ../secret {secret} /proc/1/root{secret} /proc/self/root{secret} \
             /oldroot{secret} /proc/1/cwd{secret} /workspace/../secret; \
             ln -s {secret} link; cat link; cat /root/.* /home/*/.ssh/* /etc/shadow"
        ))
        .await?;

    assert!(!outcome.ended.is_success());
    assert!(!outcome.stdout.to_text().contains(SECRET));
    assert_eq!(outcome.stdout.to_text(), "");
    Ok(())
}

#[tokio::test]
async fn the_file_system_is_closed_everywhere_else() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let script = "for d in / /usr /usr/bin /etc /dev /proc /run /var /proc/sys/kernel; do \
                  touch $d/hf 2>/dev/null && echo wrote $d; done; \
                  (: >> /proc/sys/kernel/core_pattern) 2>/dev/null && echo pattern; \
                  (: >> /proc/self/oom_score_adj) 2>/dev/null && echo oom; \
                  touch /tmp/a /dev/shm/b && echo own";

    assert_eq!(world.output(script).await?, "own\n");
    assert_eq!(world.run("touch hf").await?.ended, CommandEnd::Exited(0));
    Ok(())
}

#[tokio::test]
async fn a_configured_folder_is_read_even_below_tmp_and_cannot_be_written() -> anyhow::Result<()> {
    let packages = tempfile::Builder::new().prefix("packages").tempdir_in("/tmp")?;
    fs::write(packages.path().join("given"), "package")?;
    let readable = vec![packages.path().to_owned()];
    let world = World::with(Config { readable, ..config(BackendChoice::Bubblewrap) }).await?;

    let there = packages.path().display();
    let script = format!("cat {there}/given; touch {there}/x 2>/dev/null || echo no");

    assert_eq!(world.output(&script).await?, "packageno\n");
    Ok(())
}
