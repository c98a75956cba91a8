//! The todo list as the tool `todo` sees it.
//!
//! A subagent works on the list of its root session, and changes only the todos that are assigned to
//! its label.

use holdfast_session::Sessions;
use holdfast_tools::{Call, TodoRequest, Todos};
use holdfast_types::{Fault as _, Kind, SessionKind, TodoOperation};
use holdfast_work::{Actor, ActorKind, Place, TodoView, Work, details_of};

use crate::tools::tool_context::ToolContext;

/// Budget of a list, in tokens.
const LIST_TOKENS: usize = 1_600;

#[derive(Debug)]
pub(crate) struct TodoLists {
    pub(crate) work: Work,
    pub(crate) sessions: Sessions,
}

impl Todos for TodoLists {
    async fn todo(
        &self,
        call: &Call,
        request: TodoRequest,
    ) -> anyhow::Result<Result<String, String>> {
        let list = self.sessions.root_of(call.tenant, call.session).await?;
        match request {
            TodoRequest::List => {
                let view = self.work.view(call.tenant, list).await?;
                let text = shown(call, &view)?;
                let nothing = "The list is empty.".to_owned();
                Ok(Ok(if text.is_empty() { nothing } else { text }))
            }
            TodoRequest::Show(code) => match self.work.todo(call.tenant, list, &code).await {
                Ok(todo) => {
                    if todo.outside {
                        ToolContext::of(call)?.note_outside_text();
                    }
                    Ok(Ok(details_of(&todo)))
                }
                Err(error) if error.kind() == Kind::NotFound => Ok(Err(error.to_string())),
                Err(error) => Err(error.into()),
            },
            TodoRequest::Change(operation) => {
                let place = place(call, list)?;
                self.change(call, &place, &operation).await
            }
        }
    }
}

impl TodoLists {
    async fn change(
        &self,
        call: &Call,
        place: &Place,
        operation: &TodoOperation,
    ) -> anyhow::Result<Result<String, String>> {
        let actor = self.actor(call).await?;
        let operations = std::slice::from_ref(operation);
        // Keys of other callers begin otherwise.
        let op_id = format!("call:{}", call.key);
        let results = self.work.apply(call.tenant, place, &actor, (&op_id, operations)).await?;
        if let Some(Err(refused)) = results.into_iter().next() {
            return Ok(Err(refused.to_string()));
        }
        let view = self.work.view(call.tenant, place.list).await?;
        Ok(Ok(format!("Done. {}", shown(call, &view)?)))
    }

    async fn actor(&self, call: &Call) -> anyhow::Result<Actor> {
        let context = ToolContext::of(call)?;
        let role = context.step.as_ref().map(|step| step.role);
        let has_outside_text = context.has_read_outside_text;
        if context.kind != SessionKind::Subagent {
            let name = call.agent_name.to_string();
            return Ok(Actor { kind: ActorKind::RootAgent, name, role, has_outside_text });
        }
        let subagent = self.sessions.subagents().get(call.tenant, call.session).await?;
        let name = subagent.map(|subagent| subagent.label).unwrap_or_default();
        Ok(Actor { kind: ActorKind::SubAgent, name, role, has_outside_text })
    }
}

/// The list as the model reads it.
fn shown(call: &Call, view: &TodoView) -> anyhow::Result<String> {
    if view.has_outside_text() {
        ToolContext::of(call)?.note_outside_text();
    }
    Ok(view.render(LIST_TOKENS))
}

/// Place of a call in the worklog.
pub(crate) fn place(call: &Call, list: holdfast_types::SessionId) -> anyhow::Result<Place> {
    let context = ToolContext::of(call)?;
    let step = context.step.clone();
    let outside = Place {
        session: call.session,
        list,
        agent: call.agent,
        run: Some(call.run),
        behavior: String::new(),
        step: 0,
        todo: None,
        has_outside_text: context.has_read_outside_text,
    };
    Ok(match step {
        None => outside,
        Some(step) => {
            Place { behavior: step.behavior, step: step.step, todo: step.todo, ..outside }
        }
    })
}
