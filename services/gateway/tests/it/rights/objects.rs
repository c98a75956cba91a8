//! What is called: one conversation of each kind, with all that belongs to it.

use std::time::Duration;

use holdfast_directory::{Approver, DeviceProfile, DeviceUser};
use holdfast_proto::gateway::v1::{self as pb, memories_client::MemoriesClient};
use holdfast_session::{
    Acceptance, ApprovalFilter, Cleanup, NewMessage, NewSubagent, SubagentAccess,
};
use holdfast_types::{AgentId, AgentName, Body, PersonId, QueueMode, SessionKey, Source};
use uuid::Uuid;

use crate::world::{World, until};

/// Part of an object that a call names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The conversation, by its id and by its key. Both must be answered alike.
    Session,
    /// The conversation, by its key.
    Key,
    /// The conversation, by its id.
    SessionId,
    Message,
    Run,
    /// A message that was given up.
    DeadLetter,
    Subagent,
    /// A tool call that waits for a decision.
    Approval,
    /// Who is meant by reminders.
    User,
    /// Whom memories are about.
    MemoryUser,
    Memory,
    Person,
    Device,
    DeviceRequest,
    /// Nothing: the call lists what may be somebody's.
    List,
}

/// A conversation and what belongs to it. A text is empty if the object has no such part.
#[derive(Debug, Clone, Default)]
pub struct Object {
    pub letter: char,
    /// Text that its messages, memories and names contain, and those of no other.
    pub mark: String,
    pub session: String,
    pub key: String,
    message: String,
    run: String,
    dead_letter: String,
    subagent: String,
    approval: String,
    user: String,
    memory: String,
    person: String,
    device: String,
    device_request: String,
}

/// The objects that belong to none of the callers.
pub struct Objects(Vec<Object>);

impl Objects {
    pub async fn create(world: &World, other: PersonId, owner: PersonId) -> Self {
        let others = format!("agent:main:api:={other}/trip");
        let mut all = Vec::new();
        for (letter, key, user, person) in [
            ('p', others.as_str(), format!("person:{other}"), Some(other)),
            ('m', "agent:main:main", "owner".to_owned(), Some(owner)),
            ('g', "agent:main:group:telegram:-7", "telegram:7".to_owned(), None),
            ('u', "agent:main:api:anna", "api:anna".to_owned(), None),
            ('s', "agent:main:cron:job:run", String::new(), None),
        ] {
            let mark = format!("mark-{letter}-");
            let object = Object { letter, mark, user, ..Object::default() };
            all.push(object.filled(world, key, person).await);
        }
        Self(all)
    }

    pub fn all(&self) -> impl Iterator<Item = &Object> {
        self.0.iter()
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Object> {
        self.0.iter_mut()
    }
}

impl Object {
    /// A conversation of a caller's own.
    pub async fn own(world: &World, n: usize, key: &str, person: Option<PersonId>) -> Self {
        let user = person.map(|person| format!("person:{person}")).unwrap_or_default();
        let mark = format!("mark-o{n}-");
        let object = Self { letter: 'o', mark, user, ..Self::default() };
        object.filled(world, key, person).await
    }

    async fn filled(mut self, world: &World, key: &str, person: Option<PersonId>) -> Self {
        key.clone_into(&mut self.key);
        self.begin(world).await;
        let dead = self.say(world, "die").await;
        self.dead_letter = dead.message.to_string();
        self.spawn(world).await;
        if !self.user.is_empty() {
            self.remember(world).await;
        }
        if let Some(person) = person {
            self.person = person.to_string();
            self.pair(world, person).await;
        }
        self
    }

    /// Begins the conversation, also anew.
    pub async fn begin(&mut self, world: &World) {
        let said = self.say(world, "say").await;
        self.session = said.session.to_string();
        self.message = said.message.to_string();
        self.run = self.message.replacen("msg_", "run_", 1);
    }

    /// Sends a message, and waits until it is answered.
    pub async fn say(&self, world: &World, text: &str) -> Acceptance {
        let accepted = self.accept(world, text).await;
        world.follow(&world.anna, &accepted.message.to_string()).await.unwrap();
        accepted
    }

    async fn accept(&self, world: &World, text: &str) -> Acceptance {
        let message = NewMessage {
            key: self.key.parse().unwrap(),
            agent: agent(world).await,
            label: None,
            source: Source::Internal("system".to_owned()),
            idem_key: Uuid::now_v7().to_string(),
            body: Body::text(format!("{text} {}", self.mark)),
            target: None,
            mode: QueueMode::Followup,
            debounce: Duration::ZERO,
            trace: None,
        };
        let accepted = world.sessions.ingest(world.anna.id, message).await.unwrap();
        world.bus().await.unwrap().wake_run(0);
        accepted
    }

    /// Lets the conversation wait for a decision about a tool call.
    pub async fn ask(&mut self, world: &World) {
        // The conversation may have been begun anew by another caller whose it is.
        self.session = self.accept(world, "ask").await.session.to_string();
        let session = Some(self.session.parse().unwrap());
        let filter = ApprovalFilter { session, limit: 1, ..ApprovalFilter::default() };
        let approvals = world.sessions.approvals();
        let found = until(async || {
            let found = approvals.list(world.anna.id, filter).await.unwrap();
            found.first().map(|approval| approval.id)
        });
        self.approval = found.await.to_string();
    }

    /// A subagent of the conversation.
    async fn spawn(&mut self, world: &World) {
        let new = NewSubagent {
            parent: self.session.parse().unwrap(),
            key: SessionKey::subagent(&AgentName::new("main"), &self.mark).unwrap(),
            agent: agent(world).await,
            label: self.mark.clone(),
            task: self.mark.clone(),
            outside: false,
            model: None,
            thinking: None,
            cleanup: Cleanup::Keep,
            max_duration: Duration::from_secs(600),
            max_steps: None,
            max_tokens: None,
            most: 8,
            given: SubagentAccess::default(),
            await_timeout: None,
            place: None,
            trace: None,
        };
        let (session, task) = world.sessions.subagents().spawn(world.anna.id, new).await.unwrap();
        world.follow(&world.anna, &task.message.to_string()).await.unwrap();
        self.subagent = session.to_string();
    }

    /// A memory about the person or user.
    pub async fn remember(&mut self, world: &World) {
        let save = pb::SaveMemoryRequest {
            user: self.user.clone(),
            text: format!("{} likes tea", self.mark),
            request_id: Uuid::now_v7().to_string(),
            ..Default::default()
        };
        let mut memories = MemoriesClient::new(world.shared_channel().await.unwrap());
        let saved = memories.save_memory(world.anna.request(save)).await.unwrap();
        self.memory = saved.into_inner().id;
    }

    /// A device of a person, and one that asks to be paired.
    async fn pair(&mut self, world: &World, person: PersonId) {
        let profile = || {
            let id = Uuid::now_v7().simple().to_string().repeat(2);
            DeviceProfile {
                public_key: id.as_bytes()[..32].try_into().unwrap(),
                id,
                name: self.mark.clone(),
                platform: "linux".into(),
                family: String::new(),
                client_id: "cli".into(),
                client_mode: "cli".into(),
            }
        };
        let (devices, tenant) = (world.directory.devices(), world.anna.id);
        let scopes = ["operator.pairing".to_owned()];
        let user = DeviceUser { id: person.to_string(), person: Some(person) };
        let by = (Approver::Person(person), &user);
        let paired = devices.pair(tenant, by, profile(), &scopes).await.unwrap();
        let asked = devices.ask(tenant, profile(), (&scopes[..], &user)).await.unwrap();
        self.device = paired.profile.id;
        self.device_request = asked.unwrap().0.id.to_string();
    }

    /// Pairs another device, and lets a further one ask.
    pub async fn pair_again(&mut self, world: &World) {
        let person = self.person.parse().unwrap();
        self.pair(world, person).await;
    }

    /// Names of a part; none if the object has no such part.
    pub fn names(&self, part: Part) -> Vec<&str> {
        let names = match part {
            Part::Session => vec![&self.session, &self.key],
            Part::Key => vec![&self.key],
            Part::SessionId => vec![&self.session],
            Part::Message => vec![&self.message],
            Part::Run => vec![&self.run],
            Part::DeadLetter => vec![&self.dead_letter],
            Part::Subagent => vec![&self.subagent],
            Part::Approval => vec![&self.approval],
            Part::User | Part::MemoryUser => vec![&self.user],
            Part::Memory => vec![&self.memory],
            Part::Person => vec![&self.person],
            Part::Device => vec![&self.device],
            Part::DeviceRequest => vec![&self.device_request],
            Part::List => Vec::new(),
        };
        names.into_iter().map(String::as_str).filter(|name| !name.is_empty()).collect()
    }

    /// Name of the conversation in its key, as a program or person would give it.
    pub fn name(&self) -> &str {
        self.key.strip_prefix("agent:main:api:").unwrap_or(&self.key)
    }

    /// Whether the object has what a call lists.
    pub fn is_listed_by(&self, call: &str) -> bool {
        let part = match call {
            call if call.starts_with("Devices/") || call.starts_with("device.") => Part::Device,
            call if call.starts_with("People/") => Part::Person,
            call if call.starts_with("Memories/") => Part::Memory,
            _ => Part::Key,
        };
        !self.names(part).is_empty()
    }

    /// Whether an answer shows something of the object.
    pub fn is_in(&self, answer: &str) -> bool {
        let ids = [&self.mark, &self.session, &self.approval, &self.device, &self.person];
        ids.into_iter().any(|id| !id.is_empty() && answer.contains(id.as_str()))
    }
}

async fn agent(world: &World) -> AgentId {
    let agents = world.directory.agents().list(world.anna.id).await.unwrap();
    agents.iter().find(|agent| agent.name.as_str() == "main").unwrap().id
}
