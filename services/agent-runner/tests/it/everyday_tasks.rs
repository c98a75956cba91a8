//! A hundred harmless everyday tasks: how often a person is asked, and how often more than before
//! decision 0122.
//!
//! The tasks are in `everyday_tasks/table.rs`. Each is done in the main conversation of an agent of its own,
//! with a model that makes the calls of the task. Each question is answered with "once".
//!
//! The numbers are printed: `cargo test -p agent-runner everyday_tasks -- --nocapture`.

mod table;

use futures::{StreamExt as _, TryStreamExt as _};
use holdfast_directory::{Actor, Agent, NewAgent};
use holdfast_session::{Acceptance, NewMessage};
use holdfast_types::{AgentName, ApprovalDecision, Attachment, Body, Entry};
use holdfast_workspace::{Base, ChangeAuthor, Edit};

use self::table::{Arrival, Task, tasks};
use crate::{
    approvals::say_of,
    hostile_text::Site,
    obedient_model::{Conversation, Script, follow, question},
    world::World,
};

/// Of a hundred tasks, those that may ask more than before.
const MAX_TASKS_THAT_ASK_MORE: usize = 10;

/// Conversations that run at once.
const CONCURRENT: usize = 6;

#[tokio::test]
async fn few_of_a_hundred_everyday_tasks_ask_more_than_before() -> anyhow::Result<()> {
    let site = Site::start().await?;
    let world = &site.world;
    let tasks = tasks(&site.outside);
    let script = |task: &Task| Script { calls: task.calls.clone(), ..Script::default() };
    follow(world, tasks.iter().map(script).collect());
    let _runner = world.runner_with(site.config()?, |app| app).await?;

    let given = site.outside.url("/page");
    let given = &given;
    let questions: Vec<usize> = futures::stream::iter(tasks.iter().enumerate())
        .map(|(at, task)| async move {
            let asked = run(world, (at, task), given).await;
            asked.map_err(|error| error.context(task.name))
        })
        .buffered(CONCURRENT)
        .try_collect()
        .await?;

    let different: Vec<String> = tasks
        .iter()
        .zip(&questions)
        .filter(|(task, asked)| task.asked != **asked)
        .map(|(task, asked)| format!("{}: {} expected, {asked} asked", task.name, task.asked))
        .collect();
    assert!(different.is_empty(), "{different:#?}");
    let more: Vec<&str> = tasks
        .iter()
        .zip(&questions)
        .filter(|(task, asked)| **asked > task.asked_before)
        .map(|(task, _)| task.name)
        .collect();
    println!("{} tasks, {} ask more than before: {more:#?}", tasks.len(), more.len());
    assert_eq!(tasks.len(), 100);
    assert!(more.len() <= MAX_TASKS_THAT_ASK_MORE, "{more:#?}");
    Ok(())
}

/// Does a task, and returns how often a person was asked.
async fn run(world: &World, (at, task): (usize, &Task), given: &str) -> anyhow::Result<usize> {
    let agent = agent(world, at).await?;
    let sent = world.send(message(world, (&agent, at), task, given)).await?;
    let mut asked = 0;
    while let Some(approval) = question(world, &sent).await? {
        asked += 1;
        anyhow::ensure!(asked <= task.calls.len(), "a call is asked about again: {approval:?}");
        say_of(world, &approval, ApprovalDecision::Once).await?;
    }
    check_calls(world, &sent, task).await?;
    Ok(asked)
}

/// An agent with two files of its own and one from outside.
async fn agent(world: &World, at: usize) -> anyhow::Result<Agent> {
    let name = AgentName::new(&format!("everyday-{at}"));
    let new = NewAgent { name, ..NewAgent::default() };
    let agent = world.directory.agents().create(world.tenant, Actor::Operator, new).await?;
    world.workspaces.seed(world.tenant, agent.id).await?;
    for (path, text, is_outside) in [
        ("shopping.txt", "milk\nbread\n", false),
        ("costs.csv", "rent,900\nfood,300\n", false),
        ("received.txt", "The meeting is on Monday at nine.\n", true),
    ] {
        let put = Edit::Put { path: path.parse()?, content: text.into(), base: Base::Any };
        let by = ChangeAuthor::new("ada", "a test").from_outside(is_outside);
        world.workspaces.commit(world.tenant, agent.id, &by, vec![put]).await?;
    }
    Ok(agent)
}

fn message(world: &World, (agent, at): (&Agent, usize), task: &Task, given: &str) -> NewMessage {
    let text = format!("{} ({given})", task.name);
    let message = Conversation::main(agent, at).message(world, &text);
    let body = message.body.clone();
    let body = match task.arrival {
        Arrival::Plain => body,
        Arrival::Forwarded => Body { outside: true, ..body },
        Arrival::WithFile => {
            let file = Attachment {
                kind: "document".to_owned(),
                reference: "f".to_owned(),
                name: "invitation.pdf".to_owned(),
                file: None,
                transcription: None,
            };
            Body { attachments: vec![file], ..body }
        }
    };
    NewMessage { body, ..message }
}

/// Checks that the model has made all calls of the task.
async fn check_calls(world: &World, sent: &Acceptance, task: &Task) -> anyhow::Result<()> {
    let journal = world.journal(sent.session).await?;
    let returned = journal.iter().filter(|entry| matches!(entry, Entry::Returned { .. })).count();
    anyhow::ensure!(returned == task.calls.len(), "{returned} calls returned: {journal:?}");
    Ok(())
}
