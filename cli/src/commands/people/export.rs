//! `holdfast people export`: everything of a person as files.
//!
//! ```text
//! person.json                the record, and by what they are known
//! conversations/ses_….jsonl  as `holdfast sessions export` prints them
//! memories.jsonl             what is remembered of them
//! reminders.json
//! files/AGENT/…              their files in the workspaces of agents
//! ```

use std::{fs, io::Write as _, path::Path};

use anyhow::Context as _;
use holdfast_proto::gateway::v1::{
    GetPersonRequest, ListAgentsRequest, ListFilesRequest, ListMemoriesRequest,
    ListRemindersRequest, ListSessionsRequest, ReadFileRequest,
};
use serde_json::{Value, json};

use super::details;
use crate::{
    client::Client,
    commands::{
        files::local_folder::{LocalFolder, file_name},
        knowledge::memory,
        schedules::reminders,
        sessions::transfer,
    },
    error::Error,
    screen::Screen,
};

/// Items per request.
const PAGE_SIZE: u32 = 200;

/// Writes everything of a person into a new folder.
pub async fn export(client: &Client, screen: &Screen, id: String, to: &Path) -> Result<(), Error> {
    let request = client.request(GetPersonRequest { id });
    let person = client.answer(client.people().get_person(request).await)?;
    fs::create_dir(to).with_context(|| format!("cannot create `{}`", to.display()))?;
    write(&to.join("person.json"), &pretty(&details(&person)))?;
    let id = person.person.as_ref().map(|person| person.id.clone()).unwrap_or_default();
    // An owner is known by both names.
    let mut users = vec![person.user.clone(), format!("person:{id}")];
    users.dedup();
    let conversations = write_conversations(client, &id, &to.join("conversations")).await?;
    let memories = write_memories(client, &users, &to.join("memories.jsonl")).await?;
    let reminders = write_reminders(client, users, &to.join("reminders.json")).await?;
    let files = match person.folder.as_str() {
        "" => 0,
        folder => write_files(client, screen, folder, &to.join("files")).await?,
    };
    let counts = json!({
        "conversations": conversations, "memories": memories, "reminders": reminders, "files": files,
    });
    screen.one(&["conversations", "memories", "reminders", "files"], &counts)
}

async fn write_conversations(client: &Client, person: &str, to: &Path) -> Result<usize, Error> {
    fs::create_dir(to)?;
    let (mut count, mut page_token) = (0, String::new());
    loop {
        let request = ListSessionsRequest {
            person: person.to_owned(),
            limit: PAGE_SIZE,
            page_token,
            ..ListSessionsRequest::default()
        };
        let listed = client.sessions().list_sessions(client.request(request)).await;
        let listed = client.answer(listed)?;
        for session in listed.sessions {
            let mut file = fs::File::create(to.join(format!("{}.jsonl", file_name(&session.id)?)))?;
            let write = |part| Ok(writeln!(file, "{}", transfer::line(part))?);
            transfer::stream(client, session.id, write).await?;
            count += 1;
        }
        page_token = listed.next_page_token;
        if page_token.is_empty() {
            return Ok(count);
        }
    }
}

async fn write_memories(client: &Client, users: &[String], to: &Path) -> Result<usize, Error> {
    let (mut file, mut count) = (fs::File::create(to)?, 0);
    for user in users {
        let mut after = String::new();
        loop {
            let request = ListMemoriesRequest {
                user: user.clone(),
                history: true,
                limit: PAGE_SIZE,
                after,
                ..ListMemoriesRequest::default()
            };
            let listed = client.memories().list_memories(client.request(request)).await;
            let listed = client.answer(listed)?;
            count += listed.memories.len();
            for memory in listed.memories {
                writeln!(file, "{}", memory::view(memory))?;
            }
            after = listed.next;
            if after.is_empty() {
                break;
            }
        }
    }
    Ok(count)
}

async fn write_reminders(client: &Client, users: Vec<String>, to: &Path) -> Result<usize, Error> {
    let mut all = Vec::new();
    for user in users {
        let request = client.request(ListRemindersRequest { user });
        let listed = client.answer(client.schedules().list_reminders(request).await)?;
        all.extend(listed.reminders.iter().map(reminders::view));
    }
    let count = all.len();
    write(to, &pretty(&Value::Array(all)))?;
    Ok(count)
}

async fn write_files(
    client: &Client,
    screen: &Screen,
    folder: &str,
    to: &Path,
) -> Result<usize, Error> {
    let request = client.request(ListAgentsRequest::default());
    let agents = client.answer(client.agents().list_agents(request).await)?.agents;
    let mut count = 0;
    for agent in agents {
        let list = ListFilesRequest {
            agent: agent.id.clone(),
            path: folder.to_owned(),
            ..ListFilesRequest::default()
        };
        let listed = client.answer(client.files().list_files(client.request(list)).await)?;
        if listed.files.is_empty() {
            continue;
        }
        let mut local = LocalFolder::create(&to.join(file_name(&agent.name)?))?;
        for file in listed.files {
            let read = ReadFileRequest {
                agent: agent.id.clone(),
                path: file.path.clone(),
                ..ReadFileRequest::default()
            };
            let read = client.answer(client.files().read_file(client.request(read)).await)?;
            if local.write(&file.path, &read.content)? {
                count += 1;
            }
        }
        local.note_left_out(screen)?;
    }
    Ok(count)
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))?;
    Ok(())
}
