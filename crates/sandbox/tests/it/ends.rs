//! Ends of commands: each is reported, and no process is left.

use std::time::{Duration, Instant};

use holdfast_sandbox::{CommandEnd, Limit};
use tokio_util::sync::CancellationToken;

use crate::world::{World, is_running, seconds};

#[tokio::test]
async fn a_command_tells_its_code_and_both_its_outputs() -> anyhow::Result<()> {
    for world in [World::walled().await?, World::plain().await?] {
        let mut command = world.command("cat; echo $GREETING; echo bad >&2; exit 3");
        command.stdin = b"input\n".to_vec();
        command.env.insert("GREETING".to_owned(), "hello there".to_owned());

        let outcome = world.run_command(command).await?;

        assert_eq!(outcome.ended, CommandEnd::Exited(3));
        assert_eq!(outcome.stdout.to_text(), "input\nhello there\n");
        assert_eq!(outcome.stderr.to_text(), "bad\n");
        assert!(outcome.duration < Duration::from_secs(20));
    }
    Ok(())
}

#[tokio::test]
async fn a_signal_is_told_as_one() -> anyhow::Result<()> {
    for world in [World::walled().await?, World::plain().await?] {
        assert_eq!(world.run("kill -SEGV $$").await?.ended, CommandEnd::Signalled(11));
    }
    Ok(())
}

#[tokio::test]
async fn a_command_whose_time_is_up_ends_though_it_refuses_to() -> anyhow::Result<()> {
    for world in [World::walled().await?, World::plain().await?] {
        let mut command = world.command("trap '' TERM INT HUP; while :; do sleep 0.05; done");
        command.timeout = Some(Duration::from_secs(3));
        let began = Instant::now();

        let outcome = world.run_command(command).await?;

        assert_eq!(outcome.ended, CommandEnd::TimedOut);
        let took = began.elapsed();
        assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(30), "{took:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_command_that_is_asked_to_end_may_tidy_up() -> anyhow::Result<()> {
    for world in [World::walled().await?, World::plain().await?] {
        let script = "trap 'echo tidy; exit 0' TERM; echo on; while :; do sleep 0.05; done";
        let mut command = world.command(script);
        // Long enough that the trap is set by then.
        command.timeout = Some(Duration::from_secs(12));

        let outcome = world.run_command(command).await?;

        assert_eq!(outcome.ended, CommandEnd::TimedOut);
        assert_eq!(outcome.stdout.to_text(), "on\ntidy\n");
    }
    Ok(())
}

#[tokio::test]
async fn a_cancelled_command_ends() -> anyhow::Result<()> {
    for world in [World::walled().await?, World::plain().await?] {
        let cancel = CancellationToken::new();
        let stop = cancel.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(200)).await;
            stop.cancel();
        });

        let outcome = world.sandbox.run(world.command("sleep 30"), cancel).await?;

        assert_eq!(outcome.ended, CommandEnd::Cancelled);
        assert!(outcome.duration < Duration::from_secs(20));
    }
    Ok(())
}

#[tokio::test]
async fn a_process_left_in_the_background_does_not_survive() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let word = seconds(31);
    let script = format!(
        "setsid sleep {word} </dev/null >/dev/null 2>&1 & (setsid sleep {word} &); echo left"
    );

    assert_eq!(world.output(&script).await?, "left\n");

    assert!(!is_running(&word));
    Ok(())
}

#[tokio::test]
async fn a_process_left_in_the_group_does_not_survive_without_isolation_either()
-> anyhow::Result<()> {
    let world = World::plain().await?;

    let word = seconds(32);
    assert_eq!(world.output(&format!("sleep {word} & echo left")).await?, "left\n");

    assert!(!is_running(&word));
    Ok(())
}

#[tokio::test]
async fn a_command_nobody_waits_for_any_more_is_killed() -> anyhow::Result<()> {
    for (world, whole) in [(World::walled().await?, 33), (World::plain().await?, 34)] {
        let word = seconds(whole);
        let script = format!("sleep {word}; true");
        let run = world.run(&script);

        assert!(tokio::time::timeout(Duration::from_millis(500), run).await.is_err());

        let began = Instant::now();
        while is_running(&word) {
            assert!(began.elapsed() < Duration::from_secs(60), "it still runs");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_flood_of_output_is_cut_and_told() -> anyhow::Result<()> {
    for world in [World::walled().await?, World::plain().await?] {
        let outcome = world.run("echo first; yes | head -c 8000000; echo; echo last").await?;

        assert_eq!(outcome.ended, CommandEnd::Exited(0));
        let text = outcome.stdout.to_text();
        assert!(text.len() < 21_000, "{}", text.len());
        assert!(text.starts_with("first\ny\n") && text.ends_with("y\n\nlast\n"));
        let omitted = outcome.stdout.omitted();
        assert!((7_979_000..8_000_012).contains(&omitted), "{omitted}");
        assert!(text.contains(&format!("{omitted} bytes left out …]")));
    }
    Ok(())
}

#[tokio::test]
async fn a_busy_loop_ends_at_its_processor_time() -> anyhow::Result<()> {
    for world in [World::walled().await?, World::plain().await?] {
        let mut command = world.command("while :; do :; done");
        let mut limits = crate::world::config(holdfast_sandbox::BackendChoice::Auto).limits;
        limits.cpu = Duration::from_secs(1);
        command.limits = Some(limits);

        assert_eq!(world.run_command(command).await?.ended, CommandEnd::Limit(Limit::Cpu));
    }
    Ok(())
}
