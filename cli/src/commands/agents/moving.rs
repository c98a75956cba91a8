//! `holdfast agents export --layout opendan`, and the import of such a tree: an agent with its files,
//! behaviours, memories and subagents.

use std::{collections::BTreeSet, fs, path::Path};

use holdfast_proto::gateway::v1::{
    Agent, BehaviorSettings, CreateAgentRequest, ExportFilesRequest, GetAgentRequest,
    ImportFilesRequest, ListBehaviorsRequest, ListMemoriesRequest, Memory, PutBehaviorRequest,
    SaveMemoryRequest,
};
use serde_json::{Value, json};

use super::{
    super::files::archive::{Files, read_archive, write_archive},
    tree::{self, AgentTree, DATABASE_FILES},
};
use crate::{client::Client, error::Error, screen::Screen};

/// Memories of one page.
const MEMORIES_PER_PAGE: u32 = 500;

/// Maximum depth of subagents in a tree.
const MAX_DEPTH: usize = 4;

/// Exports an agent and the agents that it may run as subagents.
pub async fn export(
    client: &Client,
    screen: &Screen,
    agent: &str,
    to: Option<String>,
) -> Result<(), Error> {
    let tree = agent_tree(client, screen, agent, &mut BTreeSet::new()).await?;
    let to = to.unwrap_or_else(|| format!("{agent}.tar.gz"));
    let archive = write_archive(&tree.into_files())?;
    fs::write(&to, archive).map_err(|error| Error::Usage(format!("cannot write {to}: {error}")))?;
    screen.done(&format!("written to {to}"), &json!({ "file": to }))
}

async fn agent_tree(
    client: &Client,
    screen: &Screen,
    agent: &str,
    seen: &mut BTreeSet<String>,
) -> Result<AgentTree, Error> {
    let request = client.request(GetAgentRequest { agent: agent.to_owned() });
    let found = client.answer(client.agents().get_agent(request).await)?;
    let agent = found.agent.unwrap_or_default();
    seen.insert(agent.name.clone());
    let request = client.request(ListBehaviorsRequest { agent: agent.id.clone() });
    let listed = client.answer(client.behaviors().list_behaviors(request).await)?.behaviors;
    let behaviors = listed.into_iter().filter(|behavior| behavior.layer != "built-in");
    let behaviors = behaviors.map(|behavior| (behavior.name, behavior.source.into_bytes()));
    let request = client.request(ExportFilesRequest { agent: agent.id.clone(), revision: 0 });
    let exported = client.answer(client.files().export_files(request).await)?;
    let mut tree = AgentTree {
        settings: Some(operator::agent_document(&agent)?.into_bytes()),
        behaviors: behaviors.collect(),
        memories: memories_of(client, screen, &agent).await?,
        files: read_archive(&exported.archive)?,
        ..AgentTree::default()
    };
    let subagents = agent.spawns.iter().filter(|name| *name != "*");
    for name in subagents.filter(|name| !seen.contains(*name)).cloned().collect::<Vec<_>>() {
        let subagent = Box::pin(agent_tree(client, screen, &name, seen)).await?;
        tree.subagents.insert(name, subagent);
    }
    Ok(tree)
}

/// The agent's own memories, a line for each; `None` if there are none.
async fn memories_of(
    client: &Client,
    screen: &Screen,
    agent: &Agent,
) -> Result<Option<Vec<u8>>, Error> {
    let (mut lines, mut after) = (String::new(), String::new());
    loop {
        let request = client.request(ListMemoriesRequest {
            agent: agent.id.clone(),
            kinds: vec!["memory".to_owned()],
            limit: MEMORIES_PER_PAGE,
            after,
            ..ListMemoriesRequest::default()
        });
        let page = match client.answer(client.memories().list_memories(request).await) {
            Ok(page) => page,
            // Without a memory service there are no memories.
            Err(error) if error.code() == 5 => {
                screen.note(&format!("memories are left out: {error}"))?;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let own = page.memories.iter().filter(|memory| memory.agent == agent.name);
        own.for_each(|memory| lines.push_str(&format!("{}\n", line(memory))));
        after = page.next;
        if after.is_empty() {
            break;
        }
    }
    Ok(Some(lines.into_bytes()).filter(|lines| !lines.is_empty()))
}

fn line(memory: &Memory) -> Value {
    json!({
        "text": memory.text,
        "type": memory.r#type,
        "subject": memory.subject,
        "predicate": memory.predicate,
        "user": memory.user,
        "importance": memory.importance,
        "tags": memory.tags,
    })
}

/// Imports the agents of a tree. Their names must be free.
pub async fn import(
    client: &Client,
    screen: &Screen,
    from: &str,
    archive: &[u8],
) -> Result<(), Error> {
    let tree = AgentTree::of(read_archive(archive)?);
    let file = Path::new(from).file_name().unwrap_or_default().to_string_lossy();
    let name = file.split('.').next().unwrap_or_default().to_owned();
    let made = create(client, screen, tree, (name, MAX_DEPTH)).await?;
    let told = format!("made the agent {}", made.name);
    screen.done(&told, &json!({ "agent": made.name, "id": made.id }))
}

/// Creates the agents of a tree, and returns the first. `name` is for one without settings.
async fn create(
    client: &Client,
    screen: &Screen,
    tree: AgentTree,
    (name, depth): (String, usize),
) -> Result<Agent, Error> {
    let AgentTree { settings, behaviors, memories, files, subagents } = tree;
    let is_own = settings.is_some();
    let mut agent = match settings {
        Some(settings) => operator::agent_of_document(&String::from_utf8_lossy(&settings))
            .map_err(|error| Error::Usage(format!("`{}`: {error}", tree::SETTINGS_FILE)))?,
        None => {
            let behaviors = Some(BehaviorSettings::default()).filter(|_| !behaviors.is_empty());
            Agent { name, behaviors, ..Agent::default() }
        }
    };
    // The tenant's default agent stays what it is.
    agent.is_default = false;
    for (name, subagent) in subagents {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(Error::Usage(format!(
                "the tree has more than {MAX_DEPTH} levels of agents"
            )));
        };
        let made = Box::pin(create(client, screen, subagent, (name, depth))).await?;
        if !agent.spawns.iter().any(|known| *known == made.name || known == "*") {
            agent.spawns.push(made.name);
        }
    }
    let request = client.request(CreateAgentRequest { agent: Some(agent) });
    let made = client.answer(client.agents().create_agent(request).await)?;
    screen.warn(&made.warnings)?;
    let made = made.agent.unwrap_or_default();
    for database in DATABASE_FILES.iter().filter(|file| files.contains_key(**file)) {
        screen.warn(&[format!(
            "`{database}` is kept as a file, and its memories are not read: write them to \
             `{}` as lines of JSON, and import that",
            tree::MEMORIES_FILE
        )])?;
    }
    put_behaviors(client, screen, &made, behaviors).await?;
    if !files.is_empty() {
        let request = client.request(ImportFilesRequest {
            agent: made.id.clone(),
            archive: write_archive(&files)?,
            // The first files of a new agent, unless they are in the tree.
            replace: is_own,
            reason: "import of the agent".to_owned(),
            ..ImportFilesRequest::default()
        });
        client.answer(client.files().import_files(request).await)?;
    }
    save_memories(client, &made, &memories.unwrap_or_default()).await?;
    Ok(made)
}

/// Stores the behaviours that are not in effect already.
async fn put_behaviors(
    client: &Client,
    screen: &Screen,
    agent: &Agent,
    behaviors: Files,
) -> Result<(), Error> {
    let request = client.request(ListBehaviorsRequest { agent: agent.id.clone() });
    let known = client.answer(client.behaviors().list_behaviors(request).await)?.behaviors;
    for (name, source) in behaviors {
        let source = String::from_utf8_lossy(&source).into_owned();
        if known.iter().any(|known| known.name == name && known.source == source) {
            continue;
        }
        let request = client.request(PutBehaviorRequest {
            agent: agent.id.clone(),
            source,
            default_name: name.clone(),
            ..PutBehaviorRequest::default()
        });
        match client.answer(client.behaviors().put_behavior(request).await) {
            Ok(_) => {}
            // A document of another program.
            Err(error) if error.code() == 1 => {
                screen.warn(&[format!("the behaviour `{name}` is left out: {error}")])?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn save_memories(client: &Client, agent: &Agent, lines: &[u8]) -> Result<(), Error> {
    let lines = String::from_utf8_lossy(lines);
    for (number, line) in (1..).zip(lines.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let memory: Value = serde_json::from_str(line).map_err(|error| {
            Error::Usage(format!("`{}`, line {number}: {error}", tree::MEMORIES_FILE))
        })?;
        let text = |field: &str| memory[field].as_str().unwrap_or_default().to_owned();
        let tags = memory["tags"].as_array().into_iter().flatten();
        let request = client.request(SaveMemoryRequest {
            agent: agent.id.clone(),
            user: text("user"),
            text: text("text"),
            r#type: text("type"),
            subject: text("subject"),
            predicate: text("predicate"),
            importance: memory["importance"].as_f64(),
            tags: tags.filter_map(|tag| tag.as_str().map(str::to_owned)).collect(),
            source: "import of the agent".to_owned(),
            ..SaveMemoryRequest::default()
        });
        client.answer(client.memories().save_memory(request).await)?;
    }
    Ok(())
}
