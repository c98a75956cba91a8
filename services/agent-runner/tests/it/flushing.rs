//! Before a compaction the agent writes down what should be kept; once, and invisibly to users.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use holdfast_directory::{Actor, Budget};
use holdfast_llm::{Error, ScriptedModel};
use holdfast_types::{Chat, ChatMessage, Entry, Note, Reply, SessionId, Usage};

use crate::world::World;

const WINDOW: usize = 20_000;

/// Tokens of each answer.
const EACH: i64 = 100;

/// Kind of a request to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Summary,
    /// To write memory down, after so many calls.
    Flush(usize),
    Answer,
}

fn asked(chat: &Chat) -> Asked {
    if &*chat.stable == holdfast_agent::compact::SUMMARISER {
        return Asked::Summary;
    }
    let told = chat.messages.iter().rposition(
        |message| matches!(message, ChatMessage::User { text, .. } if text.starts_with("Pre-compaction memory flush")),
    );
    match told {
        Some(told) => Asked::Flush((chat.messages.len() - told - 1) / 2),
        None => Asked::Answer,
    }
}

fn today() -> String {
    format!("memory/{}.md", jiff::Timestamp::now().strftime("%Y%m/%Y%m%d"))
}

/// Writes a note into this file with one call of this tool.
fn flushing(tool: &'static str, path: &str) -> impl Fn(usize) -> Reply + use<> {
    let input = serde_json::json!({"path": path, "content": "The cat is Tom.\n"});
    move |calls| match calls {
        0 => ScriptedModel::calls(&[("flush-1", tool, &input.to_string())]),
        _ => ScriptedModel::text("NO_REPLY"),
    }
}

async fn notes(world: &World, session: SessionId) -> anyhow::Result<Vec<Note>> {
    let journal = world.journal(session).await?;
    let notes = journal.into_iter().filter_map(|entry| match entry {
        Entry::Noted { note, .. } => Some(note),
        _ => None,
    });
    Ok(notes.collect())
}

async fn ask(world: &World, text: &str) -> anyhow::Result<(SessionId, String)> {
    let sent = world.send(world.owners(text)).await?;
    Ok((sent.session, world.text(&sent).await?))
}

#[tokio::test]
async fn memory_is_written_down_before_what_does_not_fit_is_summarised() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    let notes_of_today = today();
    let flush = flushing("write", &notes_of_today);
    let mut answers = 0;
    let model = Arc::new(ScriptedModel::answering(move |request| {
        let reply = match asked(&request.chat) {
            Asked::Summary => ScriptedModel::text("They spoke of a cat."),
            Asked::Flush(calls) => flush(calls),
            Asked::Answer => {
                answers += 1;
                ScriptedModel::text(&"much ".repeat(if answers > 2 { 1 } else { 6_000 }))
            }
        };
        Ok(Reply { usage: Usage { input: 90, output: 10, ..Usage::default() }, ..reply })
    }));
    let shared = Arc::clone(&model);
    let budget = Budget { agent: None, tokens: Some(100_000_000), micros: None };
    world.sessions.usage().open_budget(world.tenant, None).await?;
    world.directory.budgets().put(world.tenant, Actor::Operator, &budget).await?;
    let mut config = world.config();
    config.runner.context_tokens = WINDOW;
    config.runner.summaries = 0;
    let _runner = world.runner_with(config, |app| app.with_demo(shared)).await?;

    ask(&world, "my cat is Tom").await?;
    ask(&world, "more").await?;
    let (session, answer) = ask(&world, "and now?").await?;

    assert_eq!(answer.trim(), "much");
    assert_eq!(world.file(&notes_of_today).await?.as_deref(), Some("The cat is Tom.\n"));
    let marks = notes(&world, session).await?;
    assert_eq!(marks, [Note::Flush, Note::Flushed, Note::Summary]);
    let requests = model.requests();
    let flushes: Vec<&Chat> =
        requests.iter().filter(|chat| matches!(asked(chat), Asked::Flush(_))).collect();
    assert_eq!(flushes.len(), 2);
    let tools: Vec<&str> = flushes[0].tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(tools, ["append_file", "edit", "read", "write"]);
    let last = requests.last().unwrap();
    assert_eq!(asked(last), Asked::Answer);
    assert!(!format!("{:?}", last.messages).contains("flush-1"), "{:?}", last.messages);
    assert_eq!(model.violations(), Vec::<String>::new());
    let spent = world.number("select tokens from session.spending").await?;
    assert_eq!(spent, i64::try_from(requests.len())? * EACH);
    Ok(())
}

#[tokio::test]
async fn memory_is_written_down_once_after_a_model_has_refused_what_is_too_long()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    let notes_of_today = today();
    let flush = flushing("write", &notes_of_today);
    let mut answers = 0;
    let model = Arc::new(ScriptedModel::answering(move |request| match asked(&request.chat) {
        Asked::Summary => Ok(ScriptedModel::text("They spoke of a cat.")),
        // The provider counts otherwise than we do.
        Asked::Flush(0) if request.chat.messages.len() > 3 => Err(Error::ContextOverflow),
        Asked::Flush(calls) => Ok(flush(calls)),
        Asked::Answer => {
            answers += 1;
            match answers {
                1 => Ok(ScriptedModel::text(&"long ".repeat(5_000))),
                2 => Ok(ScriptedModel::text(&"longer ".repeat(3_000))),
                3 => Err(Error::ContextOverflow),
                _ => Ok(ScriptedModel::text("short")),
            }
        }
    }));
    let shared = Arc::clone(&model);
    let mut config = world.config();
    config.runner.context_tokens = 24_000;
    config.runner.summaries = 0;
    let _runner = world.runner_with(config, |app| app.with_demo(shared)).await?;

    ask(&world, "my cat is Tom").await?;
    ask(&world, "more").await?;
    let (session, answer) = ask(&world, "and now?").await?;

    assert_eq!(answer, "short");
    assert_eq!(world.file(&notes_of_today).await?.as_deref(), Some("The cat is Tom.\n"));
    assert_eq!(notes(&world, session).await?, [Note::Flush, Note::Flushed, Note::Summary]);
    // A refused request is not repeated before it is shorter.
    let refused = model.requests().iter().filter(|chat| asked(chat) == Asked::Answer).count();
    assert_eq!(refused, 4);
    Ok(())
}

#[tokio::test]
async fn a_runner_that_dies_while_memory_is_written_down_writes_nothing_twice() -> anyhow::Result<()>
{
    let world = World::start().await?;
    world.use_demo().await?;
    let notes_of_today = today();
    let flush = flushing("append_file", &notes_of_today);
    let asks = Arc::new(Mutex::new(Vec::new()));
    let gate = Arc::new(AtomicUsize::new(0));
    let (seen, held) = (Arc::clone(&asks), Arc::clone(&gate));
    let mut answers = 0;
    let model = Arc::new(
        ScriptedModel::answering(move |request| {
            let what = asked(&request.chat);
            seen.lock().unwrap().push(what);
            Ok(match what {
                Asked::Summary => ScriptedModel::text("They spoke of a cat."),
                Asked::Flush(calls) => {
                    held.fetch_add(1, Ordering::SeqCst);
                    flush(calls)
                }
                Asked::Answer => {
                    answers += 1;
                    ScriptedModel::text(&"much ".repeat(if answers > 2 { 1 } else { 6_000 }))
                }
            })
        })
        .with_delay(Duration::from_millis(300)),
    );
    let mut config = world.config();
    config.runner.context_tokens = WINDOW;
    config.runner.summaries = 0;
    config.runner.lease = Duration::from_secs(5);
    let shared = Arc::clone(&model);
    let first = world.runner_with(config.clone(), |app| app.with_demo(shared)).await?;
    ask(&world, "my cat is Tom").await?;
    ask(&world, "more").await?;

    let sent = world.send(world.owners("and now?")).await?;
    let written = "select count(*) from session.entries where kind = 'returned'";
    world
        .until("the call is made, and the model is asked again", async || {
            world.number(written).await.is_ok_and(|n| n == 1) && gate.load(Ordering::SeqCst) == 2
        })
        .await?;
    first.kill();
    let shared = Arc::clone(&model);
    let _second = world.runner_with(config, |app| app.with_demo(shared)).await?;
    let answer = world.text(&sent).await?;

    assert_eq!(answer.trim(), "much");
    assert_eq!(world.file(&notes_of_today).await?.as_deref(), Some("The cat is Tom.\n"));
    let marks = notes(&world, sent.session).await?;
    assert_eq!(marks, [Note::Flush, Note::Flushed, Note::Summary]);
    let first_words =
        asks.lock().unwrap().iter().filter(|asked| **asked == Asked::Flush(0)).count();
    assert_eq!(first_words, 1, "it was begun anew");
    Ok(())
}

#[tokio::test]
async fn nothing_but_notes_can_be_written_and_nobody_but_the_owner_has_any() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let mut answers = 0;
    let model = Arc::new(ScriptedModel::answering(move |request| {
        Ok(match asked(&request.chat) {
            Asked::Summary => ScriptedModel::text("They spoke."),
            Asked::Flush(0) => ScriptedModel::calls(&[
                ("a", "append_file", r#"{"path":"SOUL.md","content":"obey the page"}"#),
                ("b", "message", r#"{"text":"psst"}"#),
            ]),
            Asked::Flush(_) => {
                for message in &request.chat.messages {
                    if let ChatMessage::Tool { output, failed: true, .. } = message {
                        heard.lock().unwrap().push(output.clone());
                    }
                }
                ScriptedModel::text("NO_REPLY")
            }
            Asked::Answer => {
                answers += 1;
                ScriptedModel::text(&"much ".repeat(if answers % 3 == 0 { 1 } else { 6_000 }))
            }
        })
    }));
    let shared = Arc::clone(&model);
    let mut config = world.config();
    config.runner.context_tokens = WINDOW;
    config.runner.summaries = 0;
    let _runner = world.runner_with(config, |app| app.with_demo(shared)).await?;

    for text in ["my cat is Tom", "more", "and now?"] {
        ask(&world, text).await?;
    }
    let soul = world.file("SOUL.md").await?.unwrap_or_default();
    let told = told.lock().unwrap().clone();
    assert!(!soul.contains("obey the page"));
    assert!(told[0].contains("`SOUL.md` is outside of where you may write: memory"), "{told:?}");
    assert!(told[1].contains("this tool is not one of yours"), "{told:?}");

    let mut other = world.say("stranger", "my cat is Tim").await?;
    for text in ["more", "and now?"] {
        world.text(&other).await?;
        other = world.say("stranger", text).await?;
    }
    world.text(&other).await?;
    assert_eq!(notes(&world, other.session).await?, [Note::Summary]);
    Ok(())
}
