//! `holdfast logs`.

use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use crate::installation::Installation;

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_read_by_service_level_and_time_and_followed() -> anyhow::Result<()> {
    let installation = Installation::new().await?;
    let early = installation.run(&["logs"]).exits_with(3);
    assert!(early.err.contains("kubectl"), "{}", early.err);
    installation.run(&["up", "--split", "--runners", "2", "--detach", "--port-base", "0"]).ok();

    let all = installation.run(&["logs"]).ok().out;
    for service in ["gateway-1", "agent-runner-1", "agent-runner-2", "scheduler-1"] {
        assert!(all.lines().any(|line| line.starts_with(service)), "{service} in {all}");
    }
    let runners = installation.run(&["logs", "--service", "agent-runner"]).ok().out;
    assert!(runners.lines().all(|line| line.starts_with("agent-runner-")), "{runners}");
    let lines = installation.run(&["logs", "--output", "json", "--lines", "3"]).ok().out;
    let lines: Vec<serde_json::Value> =
        lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    assert!(lines.len() == 3 && lines.iter().all(|line| line["at"].is_string()), "{lines:?}");
    let errors = installation.run(&["logs", "--level", "error"]).ok().out;
    assert!(!errors.contains(" INFO "), "{errors}");
    assert_eq!(installation.run(&["logs", "--since", "2999-01-01T00:00:00Z"]).ok().out, "");
    installation.run(&["logs", "--service", "nobody"]).exits_with(3);

    let mut follower = installation.command(&["logs", "--follow", "--lines", "1"]);
    let mut follower = follower.stdout(Stdio::piped()).spawn()?;
    let output = BufReader::new(follower.stdout.take().unwrap());
    let mut lines = output.lines().map_while(Result::ok);
    // What is written after the first line is shown.
    assert!(lines.next().is_some());
    // A runner that ends and comes back writes about it.
    crate::installation::signal("KILL", installation.pid("agent-runner-1").unwrap());
    let line = lines.find(|line| line.starts_with("agent-runner-1"));
    follower.kill()?;
    follower.wait()?;
    assert!(line.is_some());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn start_takes_a_file_of_settings_and_one_log_is_read_by_service() -> anyhow::Result<()> {
    let installation = Installation::new().await?;
    std::fs::create_dir_all(&installation.root)?;
    let file = installation.root.join("settings.yaml");
    let path = file.display().to_string();
    let start = ["start", "--detach", "--port-base", "0", "--config", &path];
    std::fs::write(&file, "telemetry:\n  nonsense: 1\n")?;
    let refused = installation.run(&start).exits_with(1);
    assert!(refused.err.contains("nonsense"), "{}", refused.err);
    std::fs::write(&file, "telemetry:\n  format: json\n")?;
    installation.run(&start).ok();

    let log = std::fs::read_to_string(installation.dir.join("log/up.log"))?;
    assert!(log.lines().any(|line| line.starts_with("{\"timestamp\"")), "{log}");
    let gateway = installation.run(&["logs", "--service", "gateway"]).ok().out;
    assert!(!gateway.is_empty() && gateway.lines().all(|line| line.contains("\"gateway")));
    assert!(!gateway.contains("agent_runner::"), "{gateway}");

    installation.run(&["chat", "hello"]).ok();
    let reset = installation.run(&["sessions", "reset", "agent:main:main"]).ok();
    assert!(!reset.out.trim().is_empty());
    installation.run(&["sessions", "reset", "agent:main:api:nobody"]).exits_with(3);
    installation.run(&["stop"]).ok();
    Ok(())
}
