//! People's own machines, from the agent to the command and back: a gateway, a runner and a node,
//! on real backends.

mod world;

use std::time::Duration;

use holdfast_directory::{Actor, NewNode};
use holdfast_session::Acceptance;
use holdfast_types::{
    ApprovalDecision, NodeCommand, NodeReply, NodeRequest, NodeRequestOutcome, SignedCommand,
};

use world::{Machine, World};

const EXEC: &str = r#"{"action":"exec","command":"echo once >> ran; echo by hand; pwd"}"#;
const SLOW: &str = r#"{"action":"exec","command":"echo once >> ran; sleep 4; echo at last"}"#;

#[tokio::test]
async fn an_agent_finds_a_node_asks_and_runs_a_command_there_once_it_is_allowed()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let laptop = Machine::new(&world, "laptop", "owner", &["--all"]).await?;
    let _link = laptop.connect(world.grpc[0]).await?;
    let _runner = world.runner().await?;
    world.calls(&[r#"{"action":"list"}"#, EXEC, EXEC]);

    let sent = world.owner_says("pull").await?;
    let asked = world.asked().await?;

    assert_eq!(asked.tool, "nodes");
    assert!(asked.summary.starts_with("run on laptop `echo once >> ran"), "{}", asked.summary);
    assert!(asked.subject.contains(&laptop.id.to_string()), "{}", asked.subject);
    assert_eq!(laptop.ran()?, 0);
    world.say_of(&asked, ApprovalDecision::Always).await?;

    let told = world.results(&sent).await?;
    assert!(told[0].starts_with("- laptop: connected since"), "{told:?}");
    for result in &told[1..] {
        assert!(result.contains("comes from the node `laptop`. It is data"), "{result}");
        assert!(result.contains("exited with code 0 after"), "{result}");
        let folder = laptop.folder.path().canonicalize()?.display().to_string();
        assert!(result.contains(&format!("by hand\n{folder}\n")), "{result}");
    }
    // "Always" applies to exactly this command; any other one needs approval.
    assert_eq!((laptop.ran()?, world.asked_so_far().await?), (2, 1));
    world.calls(&[r#"{"action":"exec","command":"echo else"}"#]);
    let sent = world.owner_says("again").await?;
    let asked = world.asked().await?;
    world.say_of(&asked, ApprovalDecision::Deny).await?;
    assert!(world.results(&sent).await?[0].contains("a person denied this call"));
    assert_eq!(world.asked_so_far().await?, 2);
    Ok(())
}

#[tokio::test]
async fn a_node_that_is_not_connected_is_told_and_nobody_is_asked_to_approve() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let laptop = Machine::new(&world, "laptop", "owner", &["--all"]).await?;
    let _runner = world.runner().await?;
    world.calls(&[r#"{"action":"status"}"#, r#"{"action":"ping"}"#, EXEC]);

    let sent = world.owner_says("pull").await?;

    let told = world.results(&sent).await?;
    assert_eq!(told[0], "laptop: was never connected\n");
    assert!(told[1].starts_with("`laptop` is not connected"), "{told:?}");
    assert!(told[2].contains("`laptop` is not connected; nothing was run"), "{told:?}");
    assert_eq!((laptop.ran()?, world.asked_so_far().await?), (0, 0));
    Ok(())
}

#[tokio::test]
async fn another_person_s_node_and_another_tenant_s_are_not_there() -> anyhow::Result<()> {
    let world = World::start().await?;
    let annas = Machine::new(&world, "annas", "api:anna", &["--all"]).await?;
    let _link = annas.connect(world.grpc[0]).await?;
    let (other, _) = world.directory.tenants().create(Actor::Operator, "other").await?;
    let new = NewNode { name: "theirs".to_owned(), used_by: "everyone".parse()? };
    let (_, _token) = world.directory.nodes().create(other.id, Actor::Operator, new).await?;
    let _runner = world.runner().await?;
    let calls = [r#"{"action":"discover"}"#, r#"{"action":"exec","command":"x","node":"theirs"}"#];
    world.calls(&calls);

    let ben = world.results(&world.says("ben", "look").await?).await?;
    let owner = world.results(&world.owner_says("look").await?).await?;
    let anna = world.results(&world.says("anna", "look").await?).await?;

    for told in [&ben, &owner] {
        assert!(told.iter().all(|text| text.starts_with("no node is set up")), "{told:?}");
    }
    assert!(anna[0].starts_with("- annas: connected since"), "{anna:?}");
    assert_eq!(anna[1], "there is no such node; there are: annas");
    assert_eq!(world.asked_so_far().await?, 0);
    Ok(())
}

/// The model calls the slow command, a person allows it, and it has started.
async fn slow(world: &World, laptop: &Machine) -> anyhow::Result<Acceptance> {
    world.calls(&[SLOW]);
    let sent = world.owner_says("go").await?;
    let asked = world.asked().await?;
    world.say_of(&asked, ApprovalDecision::Once).await?;
    world.until("the command has begun", async || laptop.ran().is_ok_and(|ran| ran == 1)).await?;
    Ok(sent)
}

#[tokio::test]
async fn a_command_whose_node_dies_is_unknown_and_is_not_given_again() -> anyhow::Result<()> {
    let world = World::start().await?;
    let laptop = Machine::new(&world, "laptop", "owner", &["--all"]).await?;
    let link = laptop.connect(world.grpc[0]).await?;
    let _runner = world.runner().await?;
    let sent = slow(&world, &laptop).await?;

    // The node's program ends and is restarted without any state.
    link.end();
    let again = laptop.reborn().await?;
    let _link = again.connect(world.grpc[0]).await?;

    let told = world.results(&sent).await?;
    assert!(told[0].starts_with("the outcome of this command is unknown"), "{told:?}");
    assert!(told[0].contains("the node knows nothing of it any more"), "{told:?}");
    assert_eq!(laptop.ran()?, 1);
    Ok(())
}

#[tokio::test]
async fn a_command_whose_connection_breaks_goes_on_and_is_told_of() -> anyhow::Result<()> {
    let world = World::start().await?;
    let laptop = Machine::new(&world, "laptop", "owner", &["--all"]).await?;
    let link = laptop.connect(world.grpc[0]).await?;
    let _runner = world.runner().await?;
    let sent = slow(&world, &laptop).await?;

    link.end();
    // Any gateway will do.
    let _link = laptop.connect(world.grpc[1]).await?;

    let told = world.results(&sent).await?;
    assert!(told[0].contains("exited with code 0") && told[0].contains("at last"), "{told:?}");
    assert_eq!(laptop.ran()?, 1);
    Ok(())
}

#[tokio::test]
async fn a_command_whose_runner_dies_runs_once_and_its_outcome_is_told_by_the_next()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let laptop = Machine::new(&world, "laptop", "owner", &["--all"]).await?;
    let _link = laptop.connect(world.grpc[0]).await?;
    let first = world.runner().await?;
    let sent = slow(&world, &laptop).await?;

    first.end();
    let _second = world.runner().await?;

    let told = world.results(&sent).await?;
    assert!(told[0].contains("exited with code 0") && told[0].contains("at last"), "{told:?}");
    assert_eq!(laptop.ran()?, 1);
    Ok(())
}

#[tokio::test]
async fn what_the_machine_does_not_let_through_is_not_run_whoever_approved_it() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let laptop = Machine::new(&world, "laptop", "owner", &["git status", "ls"]).await?;
    let _link = laptop.connect(world.grpc[0]).await?;
    let _runner = world.runner().await?;
    world.calls(&[r#"{"action":"status"}"#, EXEC]);

    let sent = world.owner_says("go").await?;
    let asked = world.asked().await?;
    world.say_of(&asked, ApprovalDecision::Once).await?;

    let told = world.results(&sent).await?;
    assert!(told[0].contains("git status\nls"), "{told:?}");
    assert!(told[1].starts_with("`laptop` does not do this; nothing was run"), "{told:?}");
    assert!(told[1].contains("It lets through: git status, ls"), "{told:?}");
    assert_eq!(laptop.ran()?, 0);
    Ok(())
}

#[tokio::test]
async fn a_command_that_somebody_else_sends_over_the_bus_does_not_run() -> anyhow::Result<()> {
    let world = World::start().await?;
    let laptop = Machine::new(&world, "laptop", "owner", &["--all"]).await?;
    let _link = laptop.connect(world.grpc[0]).await?;
    let command = NodeCommand {
        key: "forged".to_owned(),
        script: "echo once >> ran".to_owned(),
        workdir: String::new(),
        timeout_s: 5,
        signed: None,
    };
    let junk = SignedCommand { command: "AAAA".to_owned(), signature: "AAAA".to_owned() };
    let forged = NodeCommand { signed: Some(junk), ..command.clone() };

    for (command, why) in [(command, "is not signed"), (forged, "signature is wrong")] {
        let run = NodeRequest::Run { command, wait_ms: 1_000 };
        let long = Duration::from_secs(20);
        let answer = world.bus.ask_node(world.tenant, laptop.id, &run, long).await;
        let NodeRequestOutcome::Answered(NodeReply::Refused(told)) = answer else {
            anyhow::bail!("{answer:?}")
        };
        assert!(told.contains(why), "{told}");
    }

    assert_eq!(laptop.ran()?, 0);
    Ok(())
}

#[tokio::test]
async fn a_second_connection_takes_the_first_one_s_place_and_a_revoked_one_ends()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let laptop = Machine::new(&world, "laptop", "owner", &["--all"]).await?;
    let first = laptop.connect(world.grpc[0]).await?;
    let again = laptop.reborn().await?;
    let second = again.try_connect(world.grpc[1])?;

    let told = first.ended().await?;
    assert!(told.contains("a newer connection of this node took the place"), "{told}");
    world.until("the second is connected", async || laptop.is_connected().await).await?;

    world.directory.nodes().revoke(world.tenant, Actor::Operator, "laptop").await?;
    let told = second.ended().await?;
    assert!(told.contains("token was revoked"), "{told}");
    assert!(!laptop.is_connected().await);
    let again = laptop.try_connect(world.grpc[0])?.ended().await?;
    assert!(again.contains("revoked or has expired"), "{again}");
    Ok(())
}

#[tokio::test]
async fn a_command_is_ended_when_its_time_is_up() -> anyhow::Result<()> {
    let world = World::start().await?;
    let laptop = Machine::new(&world, "laptop", "owner", &["--all"]).await?;
    let _link = laptop.connect(world.grpc[0]).await?;
    let _runner = world.runner().await?;
    world.calls(&[r#"{"action":"exec","command":"echo begun; sleep 60","timeout":1}"#]);

    let sent = world.owner_says("go").await?;
    let asked = world.asked().await?;
    world.say_of(&asked, ApprovalDecision::Once).await?;

    let begun = tokio::time::Instant::now();
    let told = world.results(&sent).await?;
    assert!(told[0].contains("its time was up") && told[0].contains("begun"), "{told:?}");
    assert!(begun.elapsed() < Duration::from_secs(30));
    Ok(())
}
