//! Prompt of a model call, composed again by a runner.

use holdfast_bus::{PromptAnswer, PromptQuestion, RenderedMessage};
use holdfast_proto::gateway::v1::{self as pb, RenderPromptRequest, RenderPromptResponse};
use holdfast_types::{Entry, RunId, SessionId, TenantId};

use tonic::Status;

use crate::{
    Error,
    control::{State, invalid, sessions::find_run},
};

pub(super) async fn render(
    state: &State,
    tenant: TenantId,
    request: RenderPromptRequest,
) -> Result<RenderPromptResponse, Status> {
    let id: RunId = request.run_id.parse().map_err(Error::from)?;
    let names = state.agent_names(tenant).await?;
    let (run, entries) = find_run(state, tenant, id, &names).await?;
    let session: SessionId = run.session_id.parse().map_err(Error::from)?;
    let is_asked =
        |entry: &Entry| matches!(entry, Entry::Thought { model, .. } if !model.is_empty());
    let seq = match request.seq {
        0 => entries.iter().rfind(|one| is_asked(&one.entry)).map(|one| one.seq),
        seq => {
            let views = state.sessions.views();
            let found = views.run_entries(tenant, (session, id), seq - 1, 1).await;
            let found = found.map_err(Error::from)?;
            found.into_iter().find(|one| one.seq == seq && is_asked(&one.entry)).map(|one| one.seq)
        }
    };
    let seq = seq.ok_or_else(|| invalid("the run has no such model call".to_owned()))?;
    let pool = state.sessions.runner_pools().of_tenant(tenant).await.map_err(Error::from)?.pool;
    let pool = pool.map(|pool| pool.to_string()).unwrap_or_default();

    let question = PromptQuestion { tenant, session, run: id, seq };
    let answer = question
        .ask(&state.bus, &pool)
        .await
        .map_err(|error| Status::unavailable(format!("no runner composes the prompt: {error}")))?;
    let rendered = match answer {
        PromptAnswer::Rendered { prompt } => *prompt,
        PromptAnswer::Failed { error } => return Err(invalid(error).into()),
    };

    Ok(RenderPromptResponse {
        rendered_again: true,
        model: rendered.model,
        system: rendered.stable,
        dynamic: rendered.dynamic,
        messages: rendered.messages.into_iter().map(message).collect(),
        tools: rendered.tools.into_iter().map(tool).collect(),
        estimated_tokens: rendered.estimated_tokens,
        missing: rendered.missing,
    })
}

fn message(one: RenderedMessage) -> pb::PromptMessage {
    pb::PromptMessage {
        role: one.role,
        text: one.text,
        calls: match one.calls.is_empty() {
            true => String::new(),
            // Calls can always be written as JSON.
            false => serde_json::to_string(&one.calls).unwrap_or_default(),
        },
        call_id: one.call_id,
        pictures: one.pictures,
    }
}

fn tool(spec: holdfast_types::ToolSpec) -> pb::PromptTool {
    pb::PromptTool {
        name: spec.name,
        description: spec.description,
        schema: spec.input.to_string(),
    }
}
