//! Background commands of a session.

use std::time::{Duration, Instant};

use holdfast_sandbox::{
    Access, CommandEnd, Error, Limit, Owner, ProcessId, Processes, Signal, State,
};
use holdfast_types::{SessionId, TenantId};

use crate::world::{World, is_running, seconds};

const PATIENCE: Duration = Duration::from_secs(60);

fn owner() -> Owner {
    Owner { tenant: TenantId::generate(), session: SessionId::generate() }
}

fn processes(world: &World) -> Processes {
    Processes::new(world.sandbox.clone(), 3)
}

/// Returns the process' output up to and including this text.
async fn reads_until(
    processes: &Processes,
    owner: Owner,
    id: ProcessId,
    end: &str,
) -> anyhow::Result<String> {
    let began = Instant::now();
    let mut text = String::new();
    while !text.ends_with(end) {
        anyhow::ensure!(began.elapsed() < PATIENCE, "it wrote only `{text}`");
        let unread = processes.unread(owner, id)?;
        text.push_str(&String::from_utf8_lossy(&unread.out.bytes));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(text)
}

#[tokio::test]
async fn a_process_is_talked_to_and_ends_by_itself() -> anyhow::Result<()> {
    for world in [World::walled().await?, World::plain().await?] {
        let (processes, owner) = (processes(&world), owner());
        let mut command = world.command("while read l; do echo \"got $l\"; done; echo bye; exit 4");
        command.stdin = b"zero\n".to_vec();

        let id = processes.spawn(owner, command).await?;
        assert_eq!(reads_until(&processes, owner, id, "\n").await?, "got zero\n");
        processes.write(owner, id, b"one\n".to_vec()).await?;
        assert_eq!(reads_until(&processes, owner, id, "\n").await?, "got one\n");
        assert_eq!(processes.wait(owner, id, Duration::ZERO).await?, State::Running);
        processes.close_input(owner, id)?;

        let ended = State::Ended(CommandEnd::Exited(4));
        assert_eq!(processes.wait(owner, id, PATIENCE).await?, ended);
        let last = processes.unread(owner, id)?;
        assert_eq!((last.out.bytes.as_slice(), last.state), (&b"bye\n"[..], ended));
        assert!(matches!(processes.write(owner, id, vec![1]).await, Err(Error::InputClosed)));
        assert_eq!(processes.list(owner).len(), 1);
    }
    Ok(())
}

#[tokio::test]
async fn a_signal_reaches_it_and_stopping_ends_it() -> anyhow::Result<()> {
    for world in [World::walled().await?, World::plain().await?] {
        let (processes, owner) = (processes(&world), owner());
        let script = "trap 'echo hup' HUP; trap '' TERM; echo on; while :; do sleep 0.02; done";

        let id = processes.spawn(owner, world.command(script)).await?;
        assert_eq!(reads_until(&processes, owner, id, "on\n").await?, "on\n");
        processes.signal(owner, id, Signal::HangUp)?;
        assert_eq!(reads_until(&processes, owner, id, "hup\n").await?, "hup\n");

        let began = Instant::now();
        assert_eq!(processes.stop(owner, id).await?, CommandEnd::Cancelled);
        assert!(began.elapsed() >= Duration::from_secs(2), "it was not asked first");
    }
    Ok(())
}

#[tokio::test]
async fn a_killed_process_is_told_as_such() -> anyhow::Result<()> {
    for world in [World::walled().await?, World::plain().await?] {
        let (processes, owner) = (processes(&world), owner());
        let id = processes.spawn(owner, world.command("echo on; sleep 60")).await?;
        reads_until(&processes, owner, id, "on\n").await?;

        processes.signal(owner, id, Signal::Kill)?;

        let state = processes.wait(owner, id, PATIENCE).await?;
        assert_eq!(state, State::Ended(CommandEnd::Signalled(9)));
    }
    Ok(())
}

#[tokio::test]
async fn limits_hold_in_the_background_too() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let (processes, owner) = (processes(&world), owner());
    let script = "for i in 1 2 3 4 5; do head -c 8000000 /dev/zero > f$i; done; sleep 60";
    let filling = processes.spawn(owner, world.command(script)).await?;
    let mut slow = world.command("sleep 60");
    // Otherwise the output of the other process would end up here.
    slow.workspace.access = Access::Read;
    slow.timeout = Some(Duration::from_millis(300));
    let slow = processes.spawn(owner, slow).await?;

    let ended = async |id| processes.wait(owner, id, PATIENCE).await;
    assert_eq!(ended(slow).await?, State::Ended(CommandEnd::TimedOut));
    assert_eq!(ended(filling).await?, State::Ended(CommandEnd::Limit(Limit::Disk)));
    Ok(())
}

#[tokio::test]
async fn another_session_and_another_tenant_see_nothing() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let (processes, owner) = (processes(&world), owner());
    let id = processes.spawn(owner, world.command("echo mine; sleep 60")).await?;
    let tenant = Owner { tenant: TenantId::generate(), ..owner };
    let session = Owner { session: SessionId::generate(), ..owner };

    for other in [tenant, session] {
        assert!(processes.list(other).is_empty());
        assert!(matches!(processes.unread(other, id), Err(Error::NoSuchProcess)));
        assert!(matches!(processes.stop(other, id).await, Err(Error::NoSuchProcess)));
        let signalled = processes.signal(other, id, Signal::Kill);
        assert!(matches!(signalled, Err(Error::NoSuchProcess)));
        assert!(matches!(processes.write(other, id, vec![]).await, Err(Error::NoSuchProcess)));
        processes.forget(other, id);
    }
    assert_eq!(processes.wait(owner, id, Duration::ZERO).await?, State::Running);
    Ok(())
}

#[tokio::test]
async fn a_session_has_so_many_and_no_more() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let (processes, owner) = (processes(&world), owner());
    let start = || processes.spawn(owner, world.command("sleep 60"));

    let started = futures::future::join_all((0..6).map(|_| start())).await;

    let ids: Vec<ProcessId> = started.iter().filter_map(|it| it.as_ref().ok()).copied().collect();
    assert_eq!(ids.len(), 3);
    let refused = started.into_iter().filter_map(Result::err).next();
    let words = "`3` background processes are running, which is the limit: end one first";
    assert_eq!(refused.map(|error| error.to_string()).as_deref(), Some(words));
    processes.signal(owner, ids[0], Signal::Kill)?;
    processes.wait(owner, ids[0], PATIENCE).await?;
    start().await?;
    Ok(())
}

#[tokio::test]
async fn processes_end_when_they_are_forgotten_and_with_the_runner() -> anyhow::Result<()> {
    for (world, whole) in [(World::walled().await?, 35), (World::plain().await?, 36)] {
        let word = &seconds(whole);
        let (processes, owner) = (processes(&world), owner());
        for is_forgotten in [true, false] {
            let script = format!("trap '' TERM; sleep {word} & sleep {word}");
            let id = processes.spawn(owner, world.command(&script)).await?;
            soon(|| is_running(word)).await?;
            if is_forgotten {
                processes.forget(owner, id);
                assert!(processes.list(owner).is_empty());
                soon(|| !is_running(word)).await?;
            }
        }

        drop(processes);

        soon(|| !is_running(word)).await?;
    }
    Ok(())
}

async fn soon(is_so: impl Fn() -> bool) -> anyhow::Result<()> {
    let began = Instant::now();
    while !is_so() {
        anyhow::ensure!(began.elapsed() < PATIENCE, "it did not come about");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

#[tokio::test]
async fn a_flood_is_forgotten_from_its_beginning_and_told() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let (processes, owner) = (processes(&world), owner());
    let id = processes.spawn(owner, world.command("yes | head -c 1000000; echo last")).await?;

    processes.wait(owner, id, PATIENCE).await?;

    let unread = processes.unread(owner, id)?;
    assert_eq!(unread.out.skipped, 1_000_005 - 20_000);
    assert!(unread.out.bytes.len() == 20_000 && unread.out.bytes.ends_with(b"last\n"));
    assert!(processes.unread(owner, id)?.out.bytes.is_empty());
    Ok(())
}
