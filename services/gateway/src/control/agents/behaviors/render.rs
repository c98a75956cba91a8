//! What a model would be asked in a step.

use holdfast_agent::{
    behavior::{
        Behavior, BehaviorInput, Bucket, BucketKind, Composed, IncludedFile, RoleTexts,
        StepPosition, compose, result_schema,
    },
    bootstrap::{BootstrapName, trimmed},
    tokens::{CjkAware, Tokenizer as _, messages_tokens},
};
use holdfast_directory::Agent;
use holdfast_proto::gateway::v1::{RenderBehaviorRequest, RenderBehaviorResponse};
use holdfast_types::{BehaviorName, Chat, ChatMessage, TenantId, ToolSpec, TreePath};
use serde_json::json;

use super::State;
use crate::Error;

/// Maximum number of tokens of a rendered prompt.
const BUDGET_TOKENS: usize = 100_000;

/// Renders a step of the agent, or of the tenant's default agent.
pub(super) async fn render(
    state: &State,
    tenant: TenantId,
    agent: Option<Agent>,
    (name, behavior): (&BehaviorName, &Behavior),
    request: &RenderBehaviorRequest,
) -> Result<RenderBehaviorResponse, Error> {
    let agent = match agent {
        Some(agent) => agent,
        None => state.directory.agents().default_agent(tenant).await?,
    };
    let now = jiff::Timestamp::now().to_string();
    let buckets = [Bucket { kind: BucketKind::AgentMemory, items: &request.memories }];
    let input = BehaviorInput {
        messages: &request.messages,
        events: &request.events,
        todo: Some(&request.todo),
        last_step: Some(&request.last_step),
        continues: request.step > 0,
        buckets: &buckets,
        ..BehaviorInput::at(StepPosition { name, step: request.step }, &now)
    };
    let composed = compose_step(state, (tenant, &agent), behavior, &input).await?;
    let chat = composed.chat;
    let prompt_tokens = prompt_tokens(&chat);
    let text = |message: ChatMessage| match message {
        ChatMessage::User { text, .. } | ChatMessage::Assistant { text, .. } => text,
        ChatMessage::Tool { output, .. } => output,
    };
    Ok(RenderBehaviorResponse {
        system_prompt: chat.stable.to_string(),
        messages: chat.messages.into_iter().map(text).collect(),
        tools: chat.tools.into_iter().map(|tool| tool.name).collect(),
        is_empty_input: composed.is_empty_input,
        result_schema: result_schema(behavior.protocol).to_string(),
        prompt_tokens,
    })
}

/// Composes the request of a step. Its tools have no schemas of their own.
pub(super) async fn compose_step(
    state: &State,
    (tenant, agent): (TenantId, &Agent),
    behavior: &Behavior,
    input: &BehaviorInput<'_>,
) -> Result<Composed, Error> {
    let tools = offered_tools(state, agent, behavior).await?;
    let files = included_files(state, tenant, agent, behavior).await?;
    let files: Vec<IncludedFile<'_>> =
        files.iter().map(|(path, text)| IncludedFile { path, text }).collect();
    let [role_file, self_text] = defining_files(state, tenant, agent).await?;
    let role_text = format!("{}\n\n{role_file}", agent.instructions);
    let role = RoleTexts {
        agent: agent.name.as_str(),
        role: &role_text,
        self_text: &self_text,
        files: &files,
        ..RoleTexts::default()
    };
    Ok(compose(behavior, &role, input, &tools, BUDGET_TOKENS))
}

/// Estimates the tokens of a prompt, without the descriptions of its tools.
pub(super) fn prompt_tokens(chat: &Chat) -> u32 {
    let used = CjkAware.count(&chat.stable) + messages_tokens(&CjkAware, &chat.messages);
    u32::try_from(used).unwrap_or(u32::MAX)
}

/// Tools that runners have announced, as far as the agent and the behaviour have them.
async fn offered_tools(
    state: &State,
    agent: &Agent,
    behavior: &Behavior,
) -> Result<Vec<ToolSpec>, Error> {
    let known = state.directory.policies().known_tools().await?;
    let own = agent.settings.tools.as_ref();
    let has = |name: &String| own.is_none_or(|tools| tools.contains(name));
    let offered = known.into_iter().filter(|tool| has(&tool.name));
    let offered = offered.filter(|tool| behavior.toolbox.offers(&tool.name));
    let spec = |tool: holdfast_directory::KnownTool| ToolSpec {
        name: tool.name,
        description: tool.summary,
        input: json!({ "type": "object" }),
    };
    Ok(offered.map(spec).collect())
}

/// Reads role.md and self.md, as a prompt shows them; empty if there are none.
async fn defining_files(
    state: &State,
    tenant: TenantId,
    agent: &Agent,
) -> Result<[String; 2], Error> {
    let names = [BootstrapName::Role, BootstrapName::SelfFile];
    let paths: Vec<TreePath> = names.iter().filter_map(|name| name.path().parse().ok()).collect();
    let files = state.workspaces.read_many(tenant, agent.id, &paths).await?;
    Ok(names.map(|name| {
        let file = files.iter().find(|(path, _)| path.as_str() == name.path());
        let text = file.and_then(|(_, file)| file.text()).unwrap_or_default();
        trimmed(name, text.trim()).into_owned()
    }))
}

/// Reads the files that the behaviour includes. Text from outside is never part of instructions.
async fn included_files(
    state: &State,
    tenant: TenantId,
    agent: &Agent,
    behavior: &Behavior,
) -> Result<Vec<(String, String)>, Error> {
    let paths = behavior.included_files().into_iter().filter_map(|path| path.parse().ok());
    let paths: Vec<TreePath> = paths.collect();
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let files = state.workspaces.read_many(tenant, agent.id, &paths).await?;
    let own = files.into_iter().filter(|(_, file)| !file.outside);
    Ok(own.filter_map(|(path, file)| Some((path.to_string(), file.text()?.to_owned()))).collect())
}
