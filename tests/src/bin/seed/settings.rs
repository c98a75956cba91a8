//! What is made through the API: agents, channels, schedules, memories, articles, skills, budgets,
//! todos, and calls that wait for an approval.

use std::{str::FromStr as _, time::Duration};

use anyhow::{Context as _, ensure};
use holdfast_proto::gateway::v1::{
    Account as PbAccount, AddJobRequest, AddReminderRequest, Agent as PbAgent, ApplyTodosRequest,
    CreateAccountRequest, CreateAgentRequest, GetCallerRequest, IngestArticleRequest,
    ListAgentsRequest, ListApprovalsRequest, PutSkillRequest, SaveMemoryRequest, SendRequest,
    SetBudgetRequest, SetMemoryValueRequest, SkillFile, agents_client::AgentsClient,
    approvals_client::ApprovalsClient, budgets_client::BudgetsClient,
    channels_client::ChannelsClient, knowledge_client::KnowledgeClient,
    memories_client::MemoriesClient, messages_client::MessagesClient, people_client::PeopleClient,
    schedules_client::SchedulesClient, skills_client::SkillsClient, work_client::WorkClient,
};
use holdfast_types::{AccountId, AgentId, JobId, TenantId};
use rand::{RngExt as _, rngs::StdRng};
use serde_json::{Value, json};
use tonic::{
    Request,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};
use uuid::Uuid;

use crate::{Amounts, content};

const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long seeded approvals wait.
const APPROVAL_TIMEOUT_S: u32 = 7 * 24 * 3600;
/// How long to wait until they are asked for.
const ASK_TIMEOUT: Duration = Duration::from_secs(120);
const ASK_POLL: Duration = Duration::from_millis(100);
/// What makes the fake model ask for an approval.
const APPROVAL_MESSAGE: &str = "Please write down what we agreed on for the role";

#[derive(Debug, Clone)]
pub struct Agent {
    pub name: String,
    pub id: Uuid,
}

#[derive(Debug, Clone)]
pub struct Account {
    pub channel: String,
    pub id: Uuid,
}

/// The gateway, called with a key.
#[derive(Debug)]
pub struct Api {
    channel: Channel,
    authorization: MetadataValue<Ascii>,
}

/// Channels with their settings and secrets. Those that are enabled call no platform.
fn accounts() -> [(&'static str, &'static str, bool, Value, Value); 5] {
    let (secret, everybody) = ("0123456789abcdef0123456789abcdef", json!({"allow": ["*"]}));
    let widget = json!({"origins": ["https://example.com"], "allow": ["*"], "title": "Ask us", "greeting": "您好"});
    let webhook = json!({"url": "https://example.com/replies", "allow": ["anna"]});
    [
        ("webhook", "crm", true, webhook, json!({"secret": secret})),
        ("widget", "shop", true, widget, json!({"secret": secret})),
        ("telegram", "support", false, everybody, json!({"token": "12345:token-of-a-bot"})),
        (
            "slack",
            "team",
            false,
            json!({"allow": ["U012AB3CD"]}),
            json!({"bot_token": "xoxb-1", "app_token": "xapp-1"}),
        ),
        (
            "matrix",
            "community",
            false,
            json!({"homeserver": "https://matrix.example.org", "allow": ["@anna:example.org"]}),
            json!({"access_token": "token-of-a-bot"}),
        ),
    ]
}

impl Api {
    pub fn connect(grpc: &str, key: &str) -> anyhow::Result<Self> {
        let mut authorization: MetadataValue<Ascii> = format!("Bearer {key}").parse()?;
        authorization.set_sensitive(true);
        Ok(Self { channel: holdfast_grpc::channel(grpc, CALL_TIMEOUT)?, authorization })
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", self.authorization.clone());
        request
    }

    fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Tenant of the key.
    pub async fn tenant(&self) -> anyhow::Result<Uuid> {
        let mut people = PeopleClient::new(self.channel());
        let caller = people.get_caller(self.request(GetCallerRequest {})).await?.into_inner();
        Ok(TenantId::from_str(&caller.tenant_id)?.as_uuid())
    }

    pub async fn make_agents(&self, amounts: &Amounts) -> anyhow::Result<Vec<Agent>> {
        let mut agents = AgentsClient::new(self.channel());
        for number in 0..amounts.agents {
            let (name, description) = content::AGENTS[number % content::AGENTS.len()];
            let name = match number / content::AGENTS.len() {
                0 => name.to_owned(),
                team => format!("{name}-{team}"),
            };
            let agent = PbAgent {
                description: description.to_owned(),
                instructions: format!(
                    "You are {name}. {description}\n\nAnswer in the language of the question."
                ),
                approval_timeout_s: APPROVAL_TIMEOUT_S,
                name,
                ..PbAgent::default()
            };
            let request = CreateAgentRequest { agent: Some(agent) };
            agents.create_agent(self.request(request)).await?;
        }
        let listed = agents.list_agents(self.request(ListAgentsRequest {})).await?.into_inner();
        let read = |agent: PbAgent| {
            let id = AgentId::from_str(&agent.id)?.as_uuid();
            anyhow::Ok(Agent { name: agent.name, id })
        };
        // The agent that each tenant begins with has other settings.
        let made = listed.agents.into_iter().filter(|agent| agent.name != "main");
        made.map(read).collect()
    }

    pub async fn make_accounts(&self) -> anyhow::Result<Vec<Account>> {
        let mut channels = ChannelsClient::new(self.channel());
        let mut made = Vec::new();
        for (channel, name, enabled, settings, secrets) in accounts() {
            let account = PbAccount {
                channel: channel.to_owned(),
                name: name.to_owned(),
                enabled,
                settings: settings.to_string(),
                ..PbAccount::default()
            };
            let request =
                CreateAccountRequest { account: Some(account), secrets: secrets.to_string() };
            let answer = channels.create_account(self.request(request)).await;
            let account = answer.with_context(|| format!("the account on {channel}"))?;
            let account = account.into_inner().account.context("no account was made")?;
            let id = AccountId::from_str(&account.id)?.as_uuid();
            made.push(Account { channel: account.channel, id });
        }
        Ok(made)
    }

    /// Makes everything else that has settings. Returns the ids of the jobs.
    pub async fn make_settings(
        &self,
        agents: &[Agent],
        amounts: &Amounts,
        random: &mut StdRng,
    ) -> anyhow::Result<Vec<Uuid>> {
        let jobs = self.make_jobs(agents, amounts.jobs).await?;
        self.make_reminders(random).await?;
        self.make_memories(agents, amounts.memories, random).await?;
        self.make_articles(amounts.articles, random).await?;
        self.make_skills(amounts.skills).await?;
        let mut budgets = BudgetsClient::new(self.channel());
        // More than the seeded conversations of a day have used: turns of tests are run too.
        let limits =
            [("", 60_000_000, 150_000_000), (agents[0].name.as_str(), 30_000_000, 60_000_000)];
        for (agent, tokens, micros) in limits {
            let request = SetBudgetRequest { agent: agent.to_owned(), tokens, micros };
            budgets.set_budget(self.request(request)).await?;
        }
        Ok(jobs)
    }

    async fn make_jobs(&self, agents: &[Agent], count: usize) -> anyhow::Result<Vec<Uuid>> {
        const NAMES: [&str; 4] = ["morning news", "weekly report", "每日对账", "watch the queue"];
        let mut schedules = SchedulesClient::new(self.channel());
        let mut jobs = Vec::new();
        for number in 0..count {
            let agent = &agents[number % agents.len()];
            let schedule = match number % 3 {
                0 => json!({"kind": "cron", "expr": "0 8 * * 1-5", "tz": "Europe/Oslo"}),
                1 => json!({"kind": "cron", "expr": "30 9 * * 1", "tz": "Asia/Shanghai"}),
                _ => json!({"kind": "every", "every_ms": 86_400_000}),
            };
            let job = json!({
                "name": format!("{} {number}", NAMES[number % NAMES.len()]),
                "description": "Made for a test.",
                "schedule": schedule,
                "session_target": "isolated",
                "payload": {"kind": "agentTurn", "message": "Read the news and tell me what matters.",
                            "deliver": false},
            });
            let request = AddJobRequest {
                job: job.to_string(),
                agent: agent.name.clone(),
                ..AddJobRequest::default()
            };
            let job = schedules.add_job(self.request(request)).await?.into_inner().job;
            let job = job.context("no job was made")?;
            jobs.push(JobId::from_str(&job.long_id)?.as_uuid());
        }
        Ok(jobs)
    }

    async fn make_reminders(&self, random: &mut StdRng) -> anyhow::Result<()> {
        const CONTENTS: [&str; 4] =
            ["call the dentist", "提交报销单", "water the plants", "answer the landlord"];
        let mut schedules = SchedulesClient::new(self.channel());
        for content in CONTENTS {
            let request = AddReminderRequest {
                user: "owner".to_owned(),
                time: format!("in {} hours", random.random_range(20..100)),
                content: content.to_owned(),
                ..AddReminderRequest::default()
            };
            schedules.add_reminder(self.request(request)).await?;
        }
        Ok(())
    }

    async fn make_memories(
        &self,
        agents: &[Agent],
        count: usize,
        random: &mut StdRng,
    ) -> anyhow::Result<()> {
        const FACTS: [&str; 5] = [
            "{} prefers a window seat and an early train.",
            "{} is responsible for the payment gateway.",
            "{}喜欢简短的回答，并且要有来源。",
            "{} is on holiday in the first week of August.",
            "{}的报告要在每周五下午三点之前发出。",
        ];
        let mut memories = MemoriesClient::new(self.channel());
        for number in 0..count {
            let agent = agents[number % agents.len().min(8)].name.clone();
            let text = FACTS[number % FACTS.len()].replace("{}", content::person(random));
            let request = SaveMemoryRequest {
                agent: agent.clone(),
                text: format!("{text} ({number})"),
                r#type: "fact".to_owned(),
                tags: vec!["people".to_owned()],
                ..SaveMemoryRequest::default()
            };
            memories.save_memory(self.request(request)).await?;
            if number.is_multiple_of(10) {
                let request = SetMemoryValueRequest {
                    agent,
                    key: format!("reports.week.{number}"),
                    value: json!({"sent": true, "rows": number}).to_string(),
                    ..SetMemoryValueRequest::default()
                };
                memories.set_memory_value(self.request(request)).await?;
            }
        }
        Ok(())
    }

    async fn make_articles(&self, count: usize, random: &mut StdRng) -> anyhow::Result<()> {
        let mut knowledge = KnowledgeClient::new(self.channel());
        for number in 0..count {
            let topic = content::topic(random);
            let title = format!("{} ({number})", topic.title(random));
            let parts = (0..4).map(|part| {
                let (question, answer) = topic.turn(random, part);
                format!("## {question}\n\n{answer}\n")
            });
            let text = format!("# {title}\n\n{}", parts.collect::<Vec<_>>().join("\n"));
            let request = IngestArticleRequest {
                title,
                content: text.into_bytes(),
                media_type: "text/markdown".to_owned(),
                tags: vec![if number.is_multiple_of(2) { "handbook" } else { "流程" }.to_owned()],
                source: "https://example.com/handbook".to_owned(),
                ..IngestArticleRequest::default()
            };
            knowledge.ingest_article(self.request(request)).await?;
        }
        Ok(())
    }

    async fn make_skills(&self, count: usize) -> anyhow::Result<()> {
        const NAMES: [&str; 5] = [
            "weekly-report",
            "expense-check",
            "release-notes",
            "translate-page",
            "incident-review",
        ];
        let mut skills = SkillsClient::new(self.channel());
        for number in 0..count {
            let name = format!("{}-{}", NAMES[number % NAMES.len()], number / NAMES.len() + 1);
            let text = format!(
                "---\nname: {name}\ndescription: Says how to do the {name}. 每周使用一次。\nversion: 1.{number}.0\n\
                 tags: [office]\n---\n\n# {name}\n\n1. Read `{{baseDir}}/notes.md`.\n2. Do it.\n"
            );
            let file = |path: &str, content: String| SkillFile {
                path: path.to_owned(),
                content: content.into_bytes(),
            };
            let files = vec![file("SKILL.md", text), file("notes.md", "Notes.\n".to_owned())];
            let request = PutSkillRequest { files, ..PutSkillRequest::default() };
            skills.put_skill(self.request(request)).await?;
        }
        Ok(())
    }

    /// Gives each session a list of todos, some of them done.
    pub async fn make_todos(
        &self,
        sessions: &[(Uuid, String, Uuid)],
        random: &mut StdRng,
    ) -> anyhow::Result<()> {
        let mut work = WorkClient::new(self.channel());
        for (_, key, _) in sessions {
            let topic = content::topic(random);
            let items: Vec<Value> = (0..6)
                .map(|number| {
                    let title = topic.turn(random, number).0;
                    json!({"title": title, "type": if number == 5 { "bench" } else { "task" }})
                })
                .collect();
            let update = |code: &str, to: &str, reason: &str| json!({"op": "update", "code": code, "to_status": to, "reason": reason});
            let operations = json!([
                {"op": "init", "mode": "replace", "items": items},
                update("T001", "IN_PROGRESS", "begun"),
                update("T001", "COMPLETE", "all three were compared"),
                update("T001", "DONE", "checked"),
                update("T002", "IN_PROGRESS", "begun"),
                {"op": "note", "code": "T002", "kind": "result", "text": "第二个方案更便宜。"},
            ]);
            let request = ApplyTodosRequest {
                session: key.clone(),
                operations: operations.to_string(),
                request_id: String::new(),
            };
            let answer = work.apply_todos(self.request(request)).await?.into_inner();
            let refused = answer.results.iter().find(|result| !result.applied);
            ensure!(refused.is_none(), "a todo was refused: {refused:?}");
        }
        Ok(())
    }

    /// Sends messages to agents whose model then wants to change its protected files, which it may do in
    /// the owner's own conversation only.
    pub async fn ask_for_approvals(
        &self,
        model: &str,
        agents: &[Agent],
        count: usize,
    ) -> anyhow::Result<()> {
        let text = "# Role\n\nAnswers customers, 并且只用已经确认的信息。\n";
        let call = json!({"tool": "write", "input": {"path": "role.md", "content": text}});
        let rule = json!({"when": APPROVAL_MESSAGE, "replies": [
            {"text": "I write it down.", "calls": [call]}, {"text": "It is written down."}]});
        let client = reqwest::Client::new();
        let answer = client.post(format!("{model}/script")).json(&rule).send().await?;
        answer.error_for_status().context("the model takes no rules")?;

        let mut messages = MessagesClient::new(self.channel());
        anyhow::ensure!(count <= agents.len(), "each of {count} approvals is another agent's");
        for (number, agent) in agents.iter().take(count).enumerate() {
            let request = SendRequest {
                text: format!("{APPROVAL_MESSAGE} ({number})."),
                agent: agent.name.clone(),
                ..SendRequest::default()
            };
            messages.send(self.request(request)).await?;
        }
        let mut approvals = ApprovalsClient::new(self.channel());
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < ASK_TIMEOUT {
            let request = ListApprovalsRequest {
                state: "pending".to_owned(),
                ..ListApprovalsRequest::default()
            };
            let listed = approvals.list_approvals(self.request(request)).await?.into_inner();
            if listed.approvals.len() >= count {
                return Ok(());
            }
            tokio::time::sleep(ASK_POLL).await;
        }
        anyhow::bail!(
            "after {} s fewer than {count} calls wait for an approval: look into the log of the \
             agent-runner",
            ASK_TIMEOUT.as_secs()
        )
    }
}
