//! `holdfast tui` in a pseudo terminal.

use std::{thread::sleep, time::Duration};

use holdfast_testkit::{FakeModel, Reply};

use crate::{
    installation::{Installation, eventually},
    terminal::Terminal,
};

const ENTER: &str = "\r";
const ESCAPE: &str = "\x1b";
const DOWN: &str = "\x1b[B";
const TAB: &str = "\t";
const CONTROL_C: &str = "\x03";
const ALT_ENTER: &str = "\x1b\r";

#[tokio::test(flavor = "multi_thread")]
async fn a_person_chats_approves_and_changes_the_session_in_the_terminal() -> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    let installation = Installation::with_model(&model).await?;
    let write = r#"{"path": "role.md", "content": "Be a pirate."}"#;
    model.answer(move |request| match request.last_user_text() {
        text if text.contains("become") => match request.tool_results().as_slice() {
            [] => Reply::call("a", "write", write),
            [..] => Reply::text("It is **written**, 学习 done."),
        },
        text if text.contains("slowly") => Reply::text(format!("begin {} end", "word ".repeat(60))),
        _ => Reply::text("- one\n- two\n\nfine"),
    });
    installation.run(&["chat", "an earlier message", "--session", "earlier"]).ok();
    let mut tui = Terminal::start(&installation, &["tui"]);
    tui.wait_for("agent:main:main");

    // Several lines are one message; the answer is rendered and streamed.
    tui.type_text(&format!("first{ALT_ENTER}second{ENTER}"));
    let shown = tui.wait_for("• two");
    assert!(shown.contains("› first\n  second"), "{shown}");
    assert!(tui.has_color());
    // Slow enough to be seen in parts on a busy machine.
    model.pace(Duration::from_secs(1));
    tui.type_text(&format!("slowly{ENTER}"));
    let shown = tui.wait("a part of the answer", |text| {
        text.contains("begin word") && text.contains("answering")
    });
    assert!(!shown.contains(" end"), "{shown}");
    tui.type_text(ESCAPE);
    tui.wait_for("the turn was stopped");
    model.pace(Duration::ZERO);

    // A call waits for a key.
    tui.type_text(&format!("become a pirate{ENTER}"));
    let shown = tui.wait_for("y once · a always · n no");
    assert!(shown.contains("Be a pirate."), "{shown}");
    sleep(Duration::from_millis(800));
    tui.type_text("y");
    let shown = tui.wait_for("学习 done.");
    assert!(shown.contains("✓ write") && !shown.contains("**"), "{shown}");
    assert!(!shown.contains("approval needed"), "{shown}");

    // Another session, with its history; then a smaller terminal.
    tui.type_text(TAB);
    tui.wait_for("Enter opens");
    tui.wait_for("earlier");
    eventually("the session in the list", || {
        tui.type_text(DOWN);
        Some(())
    });
    tui.type_text(ENTER);
    let shown = tui.wait_for("an earlier message");
    assert!(!shown.contains("pirate"), "{shown}");
    tui.resize(12, 50);
    tui.type_text("学习");
    tui.wait_for("› 学习");
    tui.wait("the line within the terminal", |text| {
        text.lines().all(|line| line.chars().count() <= 50) && text.contains("earlier")
    });

    tui.type_text(CONTROL_C);
    tui.type_text(CONTROL_C);
    assert_eq!(tui.end(), Some(0));
    assert!(model.violations().is_empty(), "{:?}", model.violations());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_missed_while_the_gateway_was_away_is_shown() -> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    let installation = Installation::new().await?;
    installation.run(&["up", "--split", "--detach", "--port-base", "0"]).ok();
    let provider = ["providers", "put", "fake", "--base-url", &model.url(), "--api-key", "k"];
    installation.run(&[&provider[..], &["--model", "fake:one"]].concat()).ok();
    let gate = holdfast_testkit::model::Gate::default();
    model.queue([Reply::text("the answer that was missed").behind(&gate)]);
    let mut tui = Terminal::start(&installation, &["tui"]);
    tui.wait_for("agent:main:main");

    tui.type_text(&format!("question{ENTER}"));
    eventually("the model's request", || (model.count() > 0).then_some(()));
    let gateway = installation.pid("gateway-1").unwrap();
    crate::installation::signal("KILL", gateway);
    // The remark goes when the gateway is back.
    eventually("the loss of the gateway", || {
        let is_back = installation.pid("gateway-1").is_some_and(|pid| pid != gateway);
        (is_back || tui.text().contains("trying again")).then_some(())
    });
    gate.open();
    tui.wait_for("the answer that was missed");

    // What others write into the session appears by itself.
    installation.run(&["chat", "from elsewhere"]).ok();
    let shown = tui.wait_for("echo: from elsewhere");
    assert_eq!(shown.matches("the answer that was missed").count(), 1, "{shown}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_the_interface_says_what_to_use() -> anyhow::Result<()> {
    let installation = Installation::with_model(&FakeModel::start().await?).await?;

    let refused = installation.run(&["tui"]).exits_with(1);

    assert!(refused.err.contains("`holdfast chat`"), "{}", refused.err);
    Ok(())
}
