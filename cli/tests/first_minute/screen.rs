//! Colors, widths and progress on a terminal.

use std::time::Duration;

use holdfast_testkit::{FakeModel, Reply, model::Gate};

use crate::{installation::Installation, terminal::Terminal};

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_shows_colors_progress_and_tables_that_fit() -> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    let mut installation = Installation::with_model(&model).await?;
    let long = "学".repeat(80);
    installation.run(&["agents", "create", "coach", "--description", &long]).ok();

    let line = ["sessions", "show", "agent:main:api:nobody"];
    let mut failed = Terminal::start(&installation, &line);
    failed.wait_for("error: ");
    assert!(failed.has_color());
    assert_eq!(failed.end(), Some(3));
    installation.vars.push(("NO_COLOR", "1".to_owned()));
    let mut plain = Terminal::start(&installation, &line);
    plain.wait_for("error: ");
    assert!(!plain.has_color());
    assert_eq!(plain.end(), Some(3));
    let always = installation.run(&[&line[..], &["--color", "always"]].concat());
    assert!(always.err.starts_with("\x1b[31merror:\x1b[0m "), "{:?}", always.err);

    let mut table = Terminal::start(&installation, &["agents", "list"]);
    table.wait_for("coach");
    assert_eq!(table.end(), Some(0));
    // Three lines: a line that did not fit would have been broken.
    let shown = table.text();
    assert_eq!(shown.trim_end().lines().count(), 3, "{shown}");
    let piped = installation.run(&["agents", "list"]).ok();
    assert!(!piped.out.contains('\x1b'), "{:?}", piped.out);

    let gate = Gate::default();
    model.queue([Reply::text("late").behind(&gate)]);
    let mut waiting = Terminal::start(&installation, &["chat", "hello"]);
    let counts = |text: &str| text.contains("the model thinks ") && !text.contains("thinks 1 s");
    waiting.wait("two seconds or more", counts);
    gate.open();
    let shown = waiting.wait_for("late");
    assert!(!shown.contains("the model thinks"), "{shown}");
    assert_eq!(waiting.end(), Some(0));
    model.latency(Duration::from_millis(3_500));
    let piped = installation.run(&["chat", "hello"]).ok();
    assert!(!piped.err.contains("thinks"), "{}", piped.err);
    Ok(())
}
