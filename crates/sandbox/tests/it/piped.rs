//! Commands with pipes.

use std::time::Duration;

use holdfast_sandbox::{CommandEnd, State, Stream};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    time::timeout,
};

use crate::world::{World, is_running, seconds};

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn nothing_of_what_is_said_is_lost_however_much_it_is() -> anyhow::Result<()> {
    for world in [World::walled().await?, World::plain().await?] {
        // More than is kept of a command's output.
        let script =
            "while read n; do head -c $n /dev/zero | tr '\\0' x; echo; done; echo end >&2; exit 3";
        let piped = world.sandbox.spawn_piped(world.command(script)).await?;
        let (mut stdin, mut stdout) = (piped.stdin, BufReader::new(piped.stdout));

        for length in [1, 100_000, 7] {
            stdin.write_all(format!("{length}\n").as_bytes()).await?;
            let mut line = String::new();
            timeout(PATIENCE, stdout.read_line(&mut line)).await??;
            assert_eq!(line.trim_end().len(), length);
        }
        drop(stdin);

        assert_eq!(timeout(PATIENCE, piped.process.ended()).await?, CommandEnd::Exited(3));
        assert_eq!(timeout(PATIENCE, stdout.read_to_end(&mut Vec::new())).await??, 0);
        assert_eq!(piped.process.read(Stream::Err, 0).bytes, b"end\n");
    }
    Ok(())
}

#[tokio::test]
async fn dropping_it_kills_it_whoever_holds_its_pipes() -> anyhow::Result<()> {
    for world in [World::walled().await?, World::plain().await?] {
        let mark = seconds(641);
        let piped = world.sandbox.spawn_piped(world.command(&format!("sleep {mark}"))).await?;
        let began = async {
            while !is_running(&mark) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, began).await?;
        assert_eq!(piped.process.state(), State::Running);

        drop(piped.process);

        let gone = async {
            while is_running(&mark) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, gone).await?;
        let mut stdout = piped.stdout;
        assert_eq!(timeout(PATIENCE, stdout.read_to_end(&mut Vec::new())).await??, 0);
    }
    Ok(())
}
