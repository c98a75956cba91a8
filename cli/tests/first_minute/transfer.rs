//! Sessions that are listed, read, exported and imported; settings under paths; answers that nobody
//! asked for.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::Stdio,
    sync::{Arc, Mutex},
    thread,
};

use holdfast_testkit::{FakeModel, Reply};
use serde_json::{Value, json};

use crate::installation::{Installation, eventually};

/// A file of the installation's folder.
fn file(installation: &Installation, name: &str, text: &str) -> String {
    let path = installation.root.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn keys(installation: &Installation) -> Vec<String> {
    let sessions = installation.json(&["sessions", "list", "--kind", "api"]);
    let key = |session: &Value| session["key"].as_str().unwrap().to_owned();
    sessions.as_array().unwrap().iter().map(key).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_exported_and_imported_and_its_conversation_goes_on() -> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    let installation = Installation::with_model(&model).await?;
    installation.run(&["chat", "my colour is blue", "--session", "colours"]).ok();
    installation.run(&["chat", "hello", "--session", "other"]).ok();
    let (colours, copy) = ("agent:main:api:colours", "agent:main:api:copy");
    assert_eq!(keys(&installation), ["agent:main:api:other", colours]);

    let exported = installation.run(&["sessions", "export", "--session", colours]).ok().out;
    let lines: Vec<Value> =
        exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["type"], &lines[0]["key"]), (&json!("session"), &json!(colours)));
    assert!(lines.len() > 2 && lines[1..].iter().all(|line| line["type"] == "entry"), "{exported}");
    let path = file(&installation, "colours.jsonl", &exported);
    let imported = installation.json(&["sessions", "import", &path, "--session", "copy"]);
    assert_eq!(imported["key"], copy);

    let history = installation.run(&["sessions", "history", copy]).ok().out;
    assert!(history.contains("my colour is blue"), "{history}");
    installation.run(&["chat", "which is it?", "--session", "copy"]).ok();
    let requests = model.requests();
    let asked = requests.iter().rfind(|request| request.last_user_text().contains("which is it?"));
    assert!(asked.unwrap().body.to_string().contains("my colour is blue"));
    // The last used one is first.
    installation.run(&["chat", "again", "--session", "colours"]).ok();
    assert_eq!(keys(&installation), [colours, copy, "agent:main:api:other"]);

    // What exists is not changed, and a broken file imports nothing.
    let taken = installation.run(&["sessions", "import", &path, "--session", "copy"]);
    assert!(taken.code != Some(0) && taken.err.contains("already"), "{}", taken.err);
    let broken = file(&installation, "broken.jsonl", &format!("{exported}{{\"type\": 3}}\n"));
    let refused = installation.run(&["sessions", "import", &broken, "--session", "broken"]);
    let line = format!("line {}", lines.len() + 1);
    assert!(refused.exits_with(2).err.contains(&line));
    let backwards = exported.lines().map(|line| format!("{line}\n")).rev().collect::<String>();
    let backwards = file(&installation, "backwards.jsonl", &backwards);
    let refused = installation.run(&["sessions", "import", &backwards, "--session", "broken"]);
    assert!(refused.code != Some(0) && refused.err.contains("order"), "{}", refused.err);
    assert_eq!(keys(&installation).len(), 3);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_shows_the_newest_twenty_entries_or_all() -> anyhow::Result<()> {
    let installation = Installation::with_model(&FakeModel::start().await?).await?;
    let line = |n: usize| {
        let kind = if n % 2 == 1 { "heard" } else { "thought" };
        format!("{}\n", json!({"type": "entry", "seq": n, "kind": kind, "text": format!("n{n}")}))
    };
    let path = file(&installation, "long.jsonl", &(1..=450).map(line).collect::<String>());
    let refused = installation.run(&["sessions", "import", &path]).exits_with(2);
    assert!(refused.err.contains("--session"), "{}", refused.err);
    let imported = installation.json(&["sessions", "import", &path, "--session", "long"]);
    assert_eq!(imported["entries"], 450);

    let texts = |line: &[&str]| -> Vec<String> {
        let entries = installation.json(line);
        let text = |entry: &Value| entry["text"].as_str().unwrap().to_owned();
        entries.as_array().unwrap().iter().map(text).collect()
    };
    let key = "agent:main:api:long";
    let newest = texts(&["sessions", "history", key]);
    assert_eq!(newest, (431..=450).map(|n| format!("n{n}")).collect::<Vec<_>>());
    assert_eq!(texts(&["sessions", "history", key, "--limit", "2"]), ["n449", "n450"]);
    let all = texts(&["sessions", "history", key, "--all"]);
    assert_eq!(all, (1..=450).map(|n| format!("n{n}")).collect::<Vec<_>>());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setting_is_described_read_and_changed_and_a_stale_change_is_refused()
-> anyhow::Result<()> {
    let installation = Installation::with_model(&FakeModel::start().await?).await?;
    let config = |line: &[&str]| installation.json(&[&["config"], line].concat());
    let path = "agents.main.time_zone";

    let described = config(&["describe", path]);
    assert_eq!(described[0]["schema"]["type"], "string");
    let before = config(&["get", path])[0].clone();
    let version = before["version"].as_i64().unwrap().to_string();
    let set = config(&["set", path, "Europe/Oslo", "--base", &version]);
    assert_eq!(set["value"], "Europe/Oslo");
    assert_eq!(config(&["get", path])[0], set);
    assert_eq!(installation.json(&["agents", "show", "main"])["time_zone"], "Europe/Oslo");
    let other = installation.run(&["config", "set", path, "Asia/Tokyo", "--base", &version]);
    assert!(other.code != Some(0) && other.err.contains("version"), "{}", other.err);
    assert_eq!(config(&["get", path])[0], set);

    let policy = config(&["set", "policy", r#"{"deny": ["exec"]}"#, "--base", "0"]);
    assert_eq!(policy["value"]["deny"], json!(["exec"]));
    let stale = installation.run(&["config", "set", "policy", "{}", "--base", "0"]);
    assert!(stale.code != Some(0) && stale.err.contains("version"), "{}", stale.err);
    for (path, value, told) in [
        ("gateway.port", "1", "`gateway.port`"),
        ("agents.main.fallbacks", "x", "array"),
        ("agents.main.queue_mode", "later", "steer"),
        ("agents.nobody.model", "x", "nobody"),
    ] {
        let refused = installation.run(&["config", "set", path, value]);
        assert!(refused.code != Some(0) && refused.err.contains(told), "{path}: {}", refused.err);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_asked_for_is_shown_with_a_prefix_in_a_chat() -> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    let installation = Installation::with_model(&model).await?;
    model.answer(|request| Reply::text(format!("echo: {}", request.last_user_text())));
    let mut command = installation.command(&["chat"]);
    let mut chat = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut typed = chat.stdin.take().unwrap();
    let output = BufReader::new(chat.stdout.take().unwrap());
    let shown = Arc::new(Mutex::new(String::new()));
    let read = Arc::clone(&shown);
    thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            read.lock().unwrap().push_str(&format!("{line}\n"));
        }
    });
    let wait_for = |text: &str| {
        eventually(text, || shown.lock().unwrap().contains(text).then_some(()));
    };

    // The conversation begins with the first message.
    typed.write_all(b"from here\n")?;
    wait_for("from here");
    let unasked = eventually("an answer that was not asked for", || {
        // The chat follows the conversation some time after its first answer.
        installation.run(&["chat", "from elsewhere"]).ok();
        let shown = shown.lock().unwrap().clone();
        shown.contains("from elsewhere").then_some(shown)
    });
    typed.write_all(b"once more\nexit\n")?;
    assert!(chat.wait()?.success());

    let line = unasked.lines().find(|line| line.contains("from elsewhere")).unwrap();
    assert!(line.starts_with("[unasked] "), "{unasked}");
    let shown = shown.lock().unwrap();
    assert!(!shown.contains("[unasked] echo: from here"), "{shown}");
    assert!(!shown.contains("[unasked] echo: once more"), "{shown}");
    Ok(())
}
