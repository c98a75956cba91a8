//! Limits: a command that exceeds one is ended, and the reason is reported.

use std::time::{Duration, Instant};

use holdfast_sandbox::{BackendChoice, CommandEnd, Limit, Limits};

use crate::world::{World, config, is_running, seconds};

#[tokio::test]
async fn a_bomb_of_processes_is_stopped() -> anyhow::Result<()> {
    let world = World::walled().await?;
    // At most 2⁹ processes if nothing limited them.
    let word = seconds(37);
    let script = "b() { [ $1 -gt 0 ] && { b $(($1 - 1)) & b $(($1 - 1)) & }; sleep WORD; }; b 8";
    let mut command = world.command(&script.replace("WORD", &word));
    command.timeout = Some(Duration::from_secs(10));

    let ended = world.run_command(command).await?.ended;

    // The kernel refuses to fork, except for the host's root, where the supervisor ends the
    // command.
    let expected = [CommandEnd::Limit(Limit::Processes), CommandEnd::TimedOut];
    assert!(expected.contains(&ended), "{ended}");
    if rustix::process::geteuid().is_root() {
        assert_eq!(ended, CommandEnd::Limit(Limit::Processes));
    }
    assert!(!is_running(&word));
    Ok(())
}

#[tokio::test]
async fn one_process_gets_no_more_memory_than_all_may() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let outcome = world.run("perl -e '$x = \"a\" x (400 << 20); print \"had it\"'").await?;

    // The kernel refuses one large allocation at once; the supervisor ends a command that grows in
    // pieces.
    assert!(matches!(outcome.ended, CommandEnd::Exited(1..)), "{}", outcome.ended);
    assert_eq!(outcome.stdout.to_text(), "");
    Ok(())
}

#[tokio::test]
async fn processes_that_take_too_much_together_are_stopped() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let script = "for i in 1 2 3 4; do perl -e '$x = \"a\" x (40 << 20); sleep 30' & done; \
                  sleep 1; for i in 1 2 3 4; do perl -e '$x = \"a\" x (40 << 20); sleep 30' & done; wait";
    let began = Instant::now();

    let outcome = world.run(script).await?;

    assert_eq!(outcome.ended, CommandEnd::Limit(Limit::Memory));
    assert!(outcome.peak_memory.is_some_and(|peak| peak > 190 << 20), "{:?}", outcome.peak_memory);
    assert!(began.elapsed() < Duration::from_secs(25));
    Ok(())
}

#[tokio::test]
async fn what_a_command_used_is_told() -> anyhow::Result<()> {
    let world = World::walled().await?;

    let outcome =
        world.run("perl -e '$x = \"a\" x (50 << 20); select undef, undef, undef, 0.3'").await?;

    assert_eq!(outcome.ended, CommandEnd::Exited(0));
    let peak = outcome.peak_memory.unwrap_or(0) >> 20;
    assert!((50..150).contains(&peak), "{peak} MiB");
    assert!(outcome.duration >= Duration::from_millis(300));
    Ok(())
}

#[tokio::test]
async fn a_file_grows_to_its_limit_and_no_further() -> anyhow::Result<()> {
    for world in [World::walled().await?, World::plain().await?] {
        let outcome = world.run("exec head -c 64000000 /dev/zero > big").await?;

        assert_eq!(outcome.ended, CommandEnd::Limit(Limit::FileSize));
        let size = std::fs::metadata(world.workspace().join("big"))?.len();
        assert!(size <= 16 << 20, "{size}");
    }
    Ok(())
}

#[tokio::test]
async fn a_workspace_that_is_filled_stops_the_command() -> anyhow::Result<()> {
    for world in [World::walled().await?, World::plain().await?] {
        let script = "for i in 1 2 3 4 5; do head -c 8000000 /dev/zero > f$i; done; sleep 300";
        let mut command = world.command(script);
        command.timeout = Some(Duration::from_secs(100));
        let began = Instant::now();

        assert_eq!(world.run_command(command).await?.ended, CommandEnd::Limit(Limit::Disk));

        assert!(began.elapsed() < Duration::from_secs(60));
    }
    Ok(())
}

#[tokio::test]
async fn files_that_are_deleted_and_held_fill_it_too() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let script = "for i in 11 12 13 14 15; do eval \"exec $i>f\"; rm f; \
                  head -c 8000000 /dev/zero >&$i; done; sleep 30";

    assert_eq!(world.run(script).await?.ended, CommandEnd::Limit(Limit::Disk));
    Ok(())
}

#[tokio::test]
async fn files_without_content_stop_the_command_too() -> anyhow::Result<()> {
    for world in [World::walled().await?, World::plain().await?] {
        let mut command = world.command("i=0; while :; do i=$((i+1)); : > f$i; done");
        let limits = config(BackendChoice::Auto).limits;
        command.limits = Some(Limits { entries: 5_000, ..limits });
        command.timeout = Some(Duration::from_secs(100));

        assert_eq!(world.run_command(command).await?.ended, CommandEnd::Limit(Limit::Entries));

        let left = std::fs::read_dir(world.workspace())?.count();
        assert!((5_000..200_000).contains(&left), "{left}");
    }
    Ok(())
}

#[tokio::test]
async fn a_command_that_filled_it_quickly_is_told_so() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let script = "head -c 15000000 /dev/zero > a; head -c 15000000 /dev/zero > b";

    assert_eq!(world.run(script).await?.ended, CommandEnd::Limit(Limit::Disk));
    Ok(())
}

#[tokio::test]
async fn what_was_there_before_counts_against_nobody() -> anyhow::Result<()> {
    let world = World::walled().await?;
    std::fs::write(world.workspace().join("old"), vec![1; 40 << 20])?;

    assert_eq!(world.run("echo x > new; sleep 0.4").await?.ended, CommandEnd::Exited(0));
    Ok(())
}

#[tokio::test]
async fn memory_that_is_a_file_system_is_small() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let script = "head -c 12000000 /dev/zero > /tmp/a; stat -c %s /tmp/a; \
                  for i in 1 2; do head -c 15000000 /dev/zero > /dev/shm/$i; done; \
                  du -sb --apparent-size /dev/shm | cut -f1";

    let output = world.run(script).await?.stdout.to_text();

    let sizes: Vec<u64> = output.lines().filter_map(|line| line.parse().ok()).collect();
    assert!(sizes[0] <= 4 << 20, "{sizes:?}");
    assert!(sizes[1] <= 17 << 20, "{sizes:?}");
    Ok(())
}

#[tokio::test]
async fn limits_cannot_be_raised_from_within() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let script = "ulimit -f unlimited && echo f; ulimit -d unlimited && echo d; \
                  ulimit -u unlimited && echo u; ulimit -n 100000 && echo n; \
                  ulimit -c unlimited && echo c; true";

    assert_eq!(world.output(script).await?, "");
    Ok(())
}
