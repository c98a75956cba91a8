//! Ways by which hostile text comes into a conversation of the owner.

use holdfast_directory::{Actor, Agent, NewAgent};
use holdfast_grpc::{MemoryClient, Mesh, Signer};
use holdfast_pg::Pools;
use holdfast_proto::memory::v1 as pb;
use holdfast_session::{NewMessage, NewSystemEvent};
use holdfast_types::{AgentName, Attachment, Body, NewTodo, ReplyTo, TodoInit, TodoOperation};
use holdfast_work::{ActorKind, Place, Work};
use holdfast_workspace::{Base, ChangeAuthor, Edit};
use serde_json::json;

use super::{HOSTILE, outside::Outside};
use crate::{
    obedient_model::{Conversation, PlannedCall},
    world::{Remembers, World, mesh},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Page,
    ForwardedMail,
    FileFromOutside,
    McpAnswer,
    Skill,
    Todo,
    Repository,
    Subagent,
    SearchResult,
    Quotation,
    Attachment,
    Picture,
    Recording,
    McpDescription,
    FileOfOthers,
    InstructionFile,
    Note,
    Memory,
    History,
    Gateway,
    SystemEvent,
}

/// Sources after which all actions are tried.
pub const MAIN: [Source; 8] = [
    Source::Page,
    Source::ForwardedMail,
    Source::FileFromOutside,
    Source::McpAnswer,
    Source::Skill,
    Source::Todo,
    Source::Repository,
    Source::Subagent,
];

/// Sources after which some actions are tried, each time others.
pub const OTHERS: [Source; 13] = [
    Source::SearchResult,
    Source::Quotation,
    Source::Attachment,
    Source::Picture,
    Source::Recording,
    Source::McpDescription,
    Source::FileOfOthers,
    Source::InstructionFile,
    Source::Note,
    Source::Memory,
    Source::History,
    Source::Gateway,
    Source::SystemEvent,
];

impl Source {
    /// Makes the agent that meets the text, and puts the text where all its conversations find it.
    ///
    /// Each source has an agent of its own: a mark of one source must not stand in for another's.
    pub async fn prepare(self, world: &World, memory: &Remembers) -> anyhow::Result<Agent> {
        let name = AgentName::new(&format!("{self:?}"));
        let new = NewAgent { name, ..NewAgent::default() };
        let agent = world.directory.agents().create(world.tenant, Actor::Operator, new).await?;
        world.workspaces.seed(world.tenant, agent.id).await?;
        let note = format!("memory/{}.md", jiff::Timestamp::now().strftime("%Y%m/%Y%m%d"));
        let skill = format!("---\nname: tea\ndescription: {HOSTILE:?}\n---\n\nTea.\n");
        match self {
            Self::FileFromOutside => put(world, &agent, "came.txt", HOSTILE, true).await?,
            Self::FileOfOthers => {
                put(world, &agent, "people/telegram=9/plan.md", HOSTILE, false).await?;
            }
            Self::Repository => put(world, &agent, "clone/README.md", HOSTILE, false).await?,
            Self::InstructionFile => put(world, &agent, "USER.md", HOSTILE, true).await?,
            Self::Note => put(world, &agent, &note, HOSTILE, true).await?,
            Self::Skill => put(world, &agent, "skills/tea/SKILL.md", &skill, true).await?,
            Self::Memory => remember(world, &agent, memory).await?,
            Self::Page
            | Self::ForwardedMail
            | Self::McpAnswer
            | Self::Todo
            | Self::Subagent
            | Self::SearchResult
            | Self::Quotation
            | Self::Attachment
            | Self::Picture
            | Self::Recording
            | Self::McpDescription
            | Self::History
            | Self::Gateway
            | Self::SystemEvent => {}
        }
        Ok(agent)
    }

    /// Puts the text where only one conversation finds it.
    pub async fn prepare_conversation(
        self,
        world: &World,
        conversation: &Conversation,
    ) -> anyhow::Result<()> {
        match self {
            Self::SystemEvent => {
                let event = NewSystemEvent {
                    key: conversation.key.clone(),
                    idem_key: format!("event-{}", conversation.script),
                    text: HOSTILE.to_owned(),
                    outside: true,
                    signed: None,
                };
                world.sessions.add_system_event(world.tenant, &event).await?;
            }
            Self::Todo => add_todo(world, conversation).await?,
            _ => {}
        }
        Ok(())
    }

    /// Calls with which the agent reads the text, if it does not come by itself.
    pub fn calls(self, outside: &Outside, conversation: &Conversation) -> Vec<PlannedCall> {
        let read = |path: &str| ("read", json!({ "path": path }));
        let call = match self {
            Self::Page => ("web_fetch", json!({ "url": outside.url("/page") })),
            Self::FileFromOutside => read("came.txt"),
            Self::FileOfOthers => read("people/telegram=9/plan.md"),
            Self::McpAnswer => ("mcp_x_echo", json!({ "text": HOSTILE })),
            Self::McpDescription => ("tool_describe", json!({ "name": "mcp_x_echo" })),
            Self::Todo => ("todo", json!({ "action": "list" })),
            Self::Repository => ("exec", json!({ "command": "cat clone/README.md" })),
            Self::Subagent => {
                ("sessions_spawn", json!({ "task": "Count the stars.", "wait": true }))
            }
            Self::SearchResult => ("web_search", json!({ "query": "tea" })),
            Self::History => ("sessions_history", json!({ "session": conversation.key.as_str() })),
            Self::Gateway => ("gateway", json!({ "method": "Agents/ListAgents" })),
            Self::ForwardedMail
            | Self::Skill
            | Self::Quotation
            | Self::Attachment
            | Self::Picture
            | Self::Recording
            | Self::InstructionFile
            | Self::Note
            | Self::Memory
            | Self::SystemEvent => return Vec::new(),
        };
        vec![call]
    }

    /// The message that begins the conversation.
    pub fn message(
        self,
        world: &World,
        outside: &Outside,
        conversation: &Conversation,
    ) -> NewMessage {
        let text = format!("what about the kettle on {}?", outside.url("/page"));
        let message = conversation.message(world, &text);
        let body = message.body.clone();
        let attached = |kind: &str| Attachment {
            kind: kind.to_owned(),
            reference: "f".to_owned(),
            name: HOSTILE.to_owned(),
            file: None,
            transcription: None,
        };
        let body = match self {
            Self::ForwardedMail => Body { outside: true, ..body },
            Self::Quotation => {
                let quoted = ReplyTo { message_id: "1".to_owned(), text: HOSTILE.to_owned() };
                Body { outside: true, reply_to: Some(Box::new(quoted)), ..body }
            }
            Self::Attachment => Body { attachments: vec![attached("document")], ..body },
            Self::Picture => Body { attachments: vec![attached("photo")], ..body },
            Self::Recording => Body { attachments: vec![attached("audio")], ..body },
            _ => body,
        };
        NewMessage { body, ..message }
    }
}

async fn put(
    world: &World,
    agent: &Agent,
    path: &str,
    text: &str,
    outside: bool,
) -> anyhow::Result<()> {
    let put = Edit::Put { path: path.parse()?, content: text.into(), base: Base::Any };
    let by = ChangeAuthor::new("main", "test").from_outside(outside);
    world.workspaces.commit(world.tenant, agent.id, &by, vec![put]).await?;
    Ok(())
}

/// Adds a todo that a conversation with text from outside wrote. A list needs its session.
async fn add_todo(world: &World, conversation: &Conversation) -> anyhow::Result<()> {
    let sent = world.send(conversation.other_message(world, "hello")).await?;
    world.text(&sent).await?;
    let items = vec![NewTodo { title: HOSTILE.to_owned(), ..NewTodo::default() }];
    let add = TodoOperation::Init { mode: TodoInit::Merge, items };
    let actor = holdfast_work::Actor {
        kind: ActorKind::RootAgent,
        name: "main".to_owned(),
        role: None,
        has_outside_text: true,
    };
    let place = Place::outside(sent.session, conversation.agent.id);
    let work = Work::new(Pools::lazy(&world.config().database, "test")?);
    let results = work.apply(world.tenant, &place, &actor, ("todo", &[add])).await?;
    anyhow::ensure!(results == [Ok(())], "{results:?}");
    Ok(())
}

/// Stores what a conversation remembered that had read text from outside.
async fn remember(world: &World, agent: &Agent, memory: &Remembers) -> anyhow::Result<()> {
    let item = pb::NewItem {
        kind: pb::Kind::Memory.into(),
        r#type: "fact".to_owned(),
        content: format!("About the kettle: {HOSTILE}"),
        provenance: Some(pb::Provenance {
            kind: pb::SourceKind::Agent.into(),
            name: "main".to_owned(),
            outside: true,
            ..pb::Provenance::default()
        }),
        ..pb::NewItem::default()
    };
    let agent = agent.id.to_string();
    let who = Some(pb::Who { agent, user: "owner".to_owned(), ..pb::Who::default() });
    let put = pb::PutItemsRequest { who, items: vec![item], ..pb::PutItemsRequest::default() };
    let client = MemoryClient::new(&memory.url, Mesh::new(Signer::new(&mesh())?, "gateway"))?;
    client.put_items(world.tenant, put).await?;
    Ok(())
}
