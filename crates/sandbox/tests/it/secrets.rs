//! Secrets of this process, which no command may read.

use std::fs;

use rustix::io::{FdFlags, fcntl_setfd};

use crate::world::{SECRET, World};

/// Prints everything that a command could learn about processes: environments, arguments, open
/// files.
const SHOW: &str = "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; \
                    for p in /proc/[0-9]*; do readlink $p/exe $p/cwd $p/root; done; true";

#[tokio::test]
async fn nothing_of_the_parents_environment_is_seen() -> anyhow::Result<()> {
    let world = World::walled().await?;
    // Cargo gives a test's process many of these.
    let ours: Vec<(String, String)> = std::env::vars()
        .filter(|(name, value)| name.starts_with("CARGO") && value.len() > 8)
        .collect();
    assert!(!ours.is_empty());

    let shown = world.run(SHOW).await?.stdout.to_text();

    assert!(shown.contains("USER=agent"), "{shown}");
    for (name, value) in ours {
        assert!(!shown.contains(&name) && !shown.contains(&value), "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn a_commands_variables_are_on_no_command_line() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let mut command = world.command("echo $TOKEN; sleep 0.5; tr '\\0' ' ' < /proc/1/cmdline");
    command.env.insert("TOKEN".to_owned(), SECRET.to_owned());

    let run = tokio::spawn({
        let sandbox = world.sandbox.clone();
        async move { sandbox.run(command, tokio_util::sync::CancellationToken::new()).await }
    });
    tokio::time::sleep(std::time::Duration::from_millis(250)).await;
    let mut lines = Vec::new();
    for process in fs::read_dir("/proc")?.flatten() {
        lines.extend(fs::read(process.path().join("cmdline")).unwrap_or_default());
    }

    assert!(!String::from_utf8_lossy(&lines).contains(SECRET));
    let shown = run.await??.stdout.to_text();
    assert!(shown.starts_with(SECRET) && shown.matches(SECRET).count() == 1, "{shown}");
    Ok(())
}

#[tokio::test]
async fn other_processes_are_not_there() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let own = std::process::id();
    let name = std::env::current_exe()?;
    let name = name.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();

    let script = format!("{SHOW}; echo; ls -d /proc/[0-9]* | wc -l; kill -0 {own} || echo gone");
    let shown = world.run(&script).await?.stdout.to_text();

    assert!(!shown.contains(&name), "{shown}");
    let mut last = shown.lines().rev();
    assert_eq!(last.next(), Some("gone"));
    let processes: u32 = last.next().unwrap_or("").parse()?;
    assert!(processes <= 5, "{processes}");
    Ok(())
}

#[tokio::test]
async fn no_descriptor_is_inherited() -> anyhow::Result<()> {
    let world = World::walled().await?;

    assert_eq!(world.output("cd /proc/self/fd && echo *").await?, "0 1 2 3\n");
    Ok(())
}

#[tokio::test]
async fn a_descriptor_that_someone_forgot_to_close_is_not_inherited_either() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let file = fs::File::open(world.secret())?;
    fcntl_setfd(&file, FdFlags::empty())?;

    let shown = world.run("readlink /proc/[0-9]*/fd/*").await?.stdout.to_text();

    let secret = world.secret();
    let name = secret.parent().and_then(|dir| dir.file_name()).unwrap_or_default();
    assert!(!shown.contains(&*name.to_string_lossy()), "{shown}");
    assert!(shown.contains("pipe:"), "{shown}");
    Ok(())
}

#[tokio::test]
async fn the_kernels_keys_are_not_seen() -> anyhow::Result<()> {
    let world = World::walled().await?;

    assert_eq!(world.output("cat /proc/keys /proc/key-users 2>/dev/null; true").await?, "");
    Ok(())
}
