//! Death of the process that started a command.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::world::{World, is_running};

fn word(parent: u32) -> String {
    format!("38.{parent}")
}

#[tokio::test]
#[ignore = "another test starts it as a process of its own, and kills that"]
async fn runs_a_command_until_it_is_killed() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let word = word(std::os::unix::process::parent_id());
    world.run(&format!("setsid sleep {word} & sleep {word}")).await?;
    Ok(())
}

#[test]
fn a_command_does_not_survive_the_process_that_started_it() -> anyhow::Result<()> {
    let word = word(std::process::id());
    let mut parent = Command::new(std::env::current_exe()?)
        .args(["--ignored", "--exact", "parent::runs_a_command_until_it_is_killed"])
        .stdout(Stdio::null())
        .spawn()?;
    let began = Instant::now();
    while !is_running(&word) {
        assert!(began.elapsed() < Duration::from_secs(60), "it never ran");
        std::thread::sleep(Duration::from_millis(10));
    }

    parent.kill()?;
    parent.wait()?;

    let killed = Instant::now();
    while is_running(&word) {
        assert!(killed.elapsed() < Duration::from_secs(60), "it survived");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
