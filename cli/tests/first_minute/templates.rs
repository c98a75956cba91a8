//! Agents made from templates work by the instructions of these.

use std::time::Duration;

use holdfast_testkit::{FakeModel, Reply, Request};
use serde_json::Value;

use crate::installation::{Installation, eventually};

fn system_prompt(request: &Request) -> String {
    request.messages()[0]["content"].to_string()
}

fn last_prompt(model: &FakeModel) -> String {
    system_prompt(model.requests().last().unwrap())
}

fn agent<'a>(agents: &'a Value, name: &str) -> &'a Value {
    let agents = agents.as_array().unwrap();
    agents.iter().find(|agent| agent["name"] == name).unwrap_or(&Value::Null)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_study_coach_is_made_from_a_template_and_is_asked_when_a_reminder_fires()
-> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    let installation = Installation::with_model(&model).await?;
    installation.run(&["agents", "create", "coach", "--template", "study-coach"]).ok();
    let agents = installation.json(&["agents", "list"]);
    assert_eq!(agent(&agents, "main")["is_default"], true);
    assert_eq!(agent(&agents, "coach")["is_default"], false);

    installation.run(&["chat", "hello", "--agent", "coach"]).ok();
    assert!(last_prompt(&model).contains("strict but caring"), "{}", last_prompt(&model));

    let reminder = ["reminders", "add", "in 1 second", "vocabulary", "--agent", "coach"];
    installation.run(&[&reminder[..], &["--auto-continue"]].concat()).ok();
    let fired = eventually("a turn of the reminder", || {
        let requests = model.requests();
        requests.iter().find(|request| request.last_user_text().contains("vocabulary")).cloned()
    });
    assert!(fired.last_user_text().contains("[Scheduled task fired]"));
    for instruction in ["1. Remind them kindly", "2. Set the next one", "an hour later"] {
        assert!(system_prompt(&fired).contains(instruction), "{}", system_prompt(&fired));
    }

    let instructions = ["--instructions", "You teach chess.", "--model", "fake:two"];
    installation.run(&[&["agents", "update", "coach"][..], &instructions].concat()).ok();
    // A runner caches an agent for a second.
    std::thread::sleep(Duration::from_millis(1_100));
    installation.run(&["chat", "hello", "--agent", "coach"]).ok();
    let prompt = last_prompt(&model);
    assert!(prompt.contains("You teach chess.") && !prompt.contains("strict but caring"));
    assert_eq!(model.requests().last().unwrap().body["model"], "two");
    assert_eq!(model.violations(), Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_librarian_maintains_the_knowledge_base_on_request_and_by_a_job() -> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    model.answer(|request| {
        let asked = request.last_user_text();
        let title = ["Printer", "Round"].into_iter().find(|title| asked.contains(title));
        match title.filter(|_| request.tool_results().is_empty()) {
            Some(title) => {
                let article = serde_json::json!({
                    "title": title, "text": format!("# {title}\n\nOpen the cover."),
                    "source": "Ben", "for_all": true,
                });
                Reply::call("c1", "kb_ingest", article.to_string())
            }
            None => Reply::text("done"),
        }
    });
    let installation = Installation::with_model(&model).await?;
    installation.run(&["agents", "create", "mia", "--template", "librarian"]).ok();
    let titles = || {
        let articles = installation.json(&["kb", "list"]);
        let mut titles: Vec<String> = articles
            .as_array()
            .unwrap()
            .iter()
            .map(|article| article["title"].as_str().unwrap().to_owned())
            .collect();
        titles.sort_unstable();
        titles
    };

    installation.run(&["chat", "Keep this: Printer", "--agent", "mia"]).ok();
    assert_eq!(titles(), ["Printer"]);

    let job = ["cron", "add", "round", "--agent", "mia", "--cron", "0 6 * * 1", "--now"];
    let event = ["--tz", "Europe/Oslo", "--event", "Look through the knowledge base: Round"];
    installation.run(&[&job[..], &event].concat()).ok();
    let jobs = installation.json(&["cron", "list"]);
    assert_eq!((&jobs[0]["name"], &jobs[0]["state"]), (&"round".into(), &"active".into()));
    installation.run(&["cron", "run", jobs[0]["id"].as_str().unwrap()]).ok();
    eventually("an article of the job", || (titles() == ["Printer", "Round"]).then_some(()));
    assert_eq!(model.violations(), Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_agent_is_offered_the_tools_of_the_web_and_a_desktop_agent_needs_a_node()
-> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    let installation = Installation::with_model(&model).await?;

    installation.run(&["agents", "create", "surfer", "--template", "web-agent"]).ok();
    let agents = installation.json(&["agents", "list"]);
    let tools = serde_json::json!(["browser", "web_fetch", "web_search"]);
    assert_eq!(agent(&agents, "surfer")["tools"], tools);
    installation.run(&["chat", "hello", "--agent", "surfer"]).ok();
    let request = model.requests().pop().unwrap();
    // This machine may have no browser, and no provider of searches is set up.
    let offered = request.tool_names();
    assert!(offered.contains(&"web_fetch") && !offered.contains(&"exec"), "{offered:?}");

    let refused = installation
        .run(&["agents", "create", "desk", "--template", "desktop-agent"])
        .exits_with(2);
    assert!(refused.err.contains("through a node"), "{}", refused.err);
    assert_eq!(*agent(&installation.json(&["agents", "list"]), "desk"), Value::Null);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_document_is_in_the_prompt_with_its_beginning_and_its_end() -> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    let installation = Installation::with_model(&model).await?;
    let file = installation.root.join("agents.md");
    std::fs::write(
        &file,
        format!("{}{}{}", "b".repeat(14_000), "m".repeat(7_000), "e".repeat(4_000)),
    )?;
    installation.run(&["files", "write", "AGENTS.md", file.to_str().unwrap()]).ok();

    installation.run(&["chat", "hello"]).ok();

    let prompt = last_prompt(&model);
    let longest = |letter: char| {
        let runs = prompt.split(|c| c != letter);
        runs.map(str::len).max().unwrap_or_default()
    };
    assert_eq!((longest('b'), longest('e')), (14_000, 4_000));
    assert!(longest('m') < 10);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jarvis_answers_small_things_at_once_and_a_coder_brings_its_own_behaviors()
-> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    model.answer(|_| {
        let result = r#"{"next_behavior": "END", "reply": "Hello!", "memory_queries": []}"#;
        Reply::text(result)
    });
    let installation = Installation::with_model(&model).await?;

    installation.run(&["agents", "create", "ada", "--template", "jarvis"]).ok();
    installation.run(&["agents", "create", "carl", "--template", "coder"]).ok();
    let said = installation.run(&["chat", "hello", "--agent", "ada"]).ok();

    assert!(said.out.contains("Hello!"), "{}", said.out);
    let prompt = last_prompt(&model);
    assert!(prompt.contains("a capable personal assistant who gets things done"), "{prompt}");
    assert!(prompt.contains("You are the first to see what arrives."), "{prompt}");
    let layers = |name: &str| {
        let listed = installation.json(&["behaviors", "list", "--agent", name]);
        let all = listed.as_array().unwrap().iter();
        let own = all.filter(|behavior| behavior["layer"] == "agent");
        own.map(|behavior| behavior["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(layers("ada"), Vec::<String>::new());
    assert_eq!(layers("carl"), ["check", "do"]);
    assert_eq!(model.count(), 1, "the router alone answers");
    assert_eq!(model.violations(), Vec::<String>::new());
    Ok(())
}
