//! Steps without their effects: what the runtime makes of a model's answers.
//!
//! The answers are those of the request, or that of the agent's model, which a runner asks. Todo
//! operations are judged on a list that is not stored. No tool is called.

use crate::permissions::rights::ConversationRight;
use holdfast_grpc::Caller;
use std::time::Duration;

use holdfast_agent::behavior::{
    ActionOutcome, Behavior, BehaviorInput, BehaviorSet, Bucket, BucketKind, Composed,
    FinishedStep, StepPosition, next_behavior, read_result,
    state::{BehaviorRules, BehaviorState, NextAction, Transition, WaitKind, advance},
    step_summary,
};
use holdfast_bus::{ModelAnswer, ModelQuestion};
use holdfast_directory::Agent;
use holdfast_proto::gateway::v1::{
    TriedCall, TriedOperation, TriedStep, TryBehaviorRequest, TryBehaviorResponse,
};
use holdfast_types::{BehaviorName, Chat, Reply, StepResult, TenantId, Usage};
use holdfast_work::{Actor, ActorKind, TodoList, TodoView};
use jiff::Timestamp;

use super::{State, not_found, render};
use crate::{
    Error,
    control::{invalid, mcp_servers::runner_pool, sessions::convert, work::Work},
};

/// Answers of one request.
const MAX_ANSWERS: usize = 64;

/// Maximum time that a model may take.
const MAX_MODEL_TIME: Duration = Duration::from_mins(2);

/// Budget of the list in a prompt, in tokens; a behaviour's memory may have less.
const TODO_TOKENS: usize = 1_600;

/// Result of an action in the summary of a step.
const NOT_CALLED: &str = "(not called: the step is only tried)";

/// A run of steps without effects.
pub(super) struct Trial<'a> {
    state: &'a State,
    tenant: TenantId,
    agent: Agent,
    set: BehaviorSet,
    todos: TodoList,
    request: TryBehaviorRequest,
}

/// Answer of a model, or why there is none.
type Answer = Result<(Reply, u64), String>;

/// Messages and events that a step has not seen yet, and its todo.
#[derive(Default)]
struct StepNews {
    messages: Vec<String>,
    events: Vec<String>,
}

impl<'a> Trial<'a> {
    pub(super) async fn new(
        state: &'a State,
        (caller, agent): (&Caller, Option<Agent>),
        set: BehaviorSet,
        request: TryBehaviorRequest,
    ) -> Result<Self, Error> {
        let tenant = caller.tenant;
        if request.answers.len() > MAX_ANSWERS {
            let given = request.answers.len();
            let error = format!("`answers` has {given} entries, and {MAX_ANSWERS} is the most");
            return Err(invalid(error));
        }
        let agent = match agent {
            Some(agent) => agent,
            None => state.directory.agents().default_agent(tenant).await?,
        };
        let todos = match request.session.as_str() {
            "" => TodoList::default(),
            session => {
                let right = ConversationRight::Read;
                let list = Work(state.clone()).list(caller, session, right).await?;
                state.work.whole_list(tenant, list).await?
            }
        };
        Ok(Self { state, tenant, agent, set, todos, request })
    }

    /// Runs steps until the answers or the turn end; with a model, one step.
    pub(super) async fn run(mut self, name: BehaviorName) -> Result<TryBehaviorResponse, Error> {
        let mut state = BehaviorState::new(name);
        state.step = self.request.step;
        state.last_step = std::mem::take(&mut self.request.last_step);
        state.continues = state.step > 0;
        let mut news = StepNews {
            messages: std::mem::take(&mut self.request.messages),
            events: std::mem::take(&mut self.request.events),
        };
        let asks = self.request.answers.is_empty();
        let mut answers = std::mem::take(&mut self.request.answers).into_iter();
        let (mut was_corrected, mut steps) = (false, Vec::new());
        while asks || answers.len() > 0 {
            let base = state.behavior.base().to_owned();
            let behavior = self.set.find(&state.behavior).ok_or_else(|| not_found(&base))?.clone();
            let Composed { chat, is_empty_input } = self.compose(&behavior, &state, &news).await?;
            let mut step = TriedStep {
                behavior: state.behavior.to_string(),
                step: state.step,
                prompt_tokens: render::prompt_tokens(&chat),
                ..TriedStep::default()
            };
            if is_empty_input {
                "idle".clone_into(&mut step.next);
                steps.push(step);
                break;
            }
            let answer = match answers.next() {
                Some(text) => Ok((Reply { text, ..Reply::default() }, 0)),
                None => self.ask(&behavior, chat).await?,
            };
            let after = self.judge(&behavior, &state, answer, &mut step);
            if after.is_none() && was_corrected {
                "fail".clone_into(&mut step.next);
            }
            was_corrected = step.next == "correct";
            let goes_on = was_corrected || step.next == "step";
            steps.push(step);
            if let Some(after) = after {
                if !after.forwards {
                    news = StepNews::default();
                }
                state = after;
            }
            if asks || !goes_on {
                break;
            }
        }
        Ok(TryBehaviorResponse {
            steps,
            todos: TodoView::of(&self.todos).render(TODO_TOKENS),
            unused_answers: u32::try_from(answers.len()).unwrap_or(u32::MAX),
        })
    }

    async fn compose(
        &self,
        behavior: &Behavior,
        state: &BehaviorState,
        news: &StepNews,
    ) -> Result<Composed, Error> {
        let view = TodoView::of(&self.todos);
        let todo = state.behavior.params().get("todo").and_then(|code| view.details(code));
        let next_todo = view.next_ready().and_then(|code| view.details(code));
        let todos = [view.render(TODO_TOKENS)];
        let buckets = [
            Bucket { kind: BucketKind::AgentMemory, items: &self.request.memories },
            Bucket { kind: BucketKind::WorkspaceTodo, items: &todos },
        ];
        let mut events = news.events.clone();
        if !state.observation.is_empty() {
            events.push(format!("about the step before: {}", state.observation));
        }
        let now = Timestamp::now().to_string();
        let position = StepPosition { name: &state.behavior, step: state.step };
        let input = BehaviorInput {
            messages: &news.messages,
            events: &events,
            todo: todo.as_deref(),
            next_todo: next_todo.as_deref(),
            last_step: Some(&*state.last_step).filter(|text| !text.is_empty()),
            continues: state.continues || !news.messages.is_empty() || !events.is_empty(),
            buckets: &buckets,
            ..BehaviorInput::at(position, &now)
        };
        render::compose_step(self.state, (self.tenant, &self.agent), behavior, &input).await
    }

    /// Asks the agent's model through a runner.
    async fn ask(&self, behavior: &Behavior, mut chat: Chat) -> Result<Answer, Error> {
        if behavior.limits.max_tool_rounds == 0 {
            chat.tools.clear();
        }
        let models = &behavior.models;
        let question = ModelQuestion {
            tenant: self.tenant,
            agent: self.agent.id,
            models: models.preferred.iter().chain(&models.fallbacks).cloned().collect(),
            chat,
            temperature: models.temperature,
            max_output: Some(behavior.limits.max_completion_tokens),
            deadline: behavior.limits.deadline.min(MAX_MODEL_TIME),
        };
        let pool = runner_pool(self.state, self.tenant).await?;
        let answer = self.state.bus.ask_model(&pool, &question).await.map_err(Error::NoRunner)?;
        Ok(match answer {
            ModelAnswer::Replied { reply, micros } => Ok((*reply, micros)),
            ModelAnswer::Failed { error } => Err(error),
        })
    }

    /// Reads an answer and applies its todo operations. Returns the state after the step, if the
    /// answer is a result.
    fn judge(
        &mut self,
        behavior: &Behavior,
        state: &BehaviorState,
        answer: Answer,
        step: &mut TriedStep,
    ) -> Option<BehaviorState> {
        let (reply, micros) = match answer {
            Ok(answered) => answered,
            Err(error) => {
                (step.error, step.next) = (error, "fail".to_owned());
                return None;
            }
        };
        let Reply { text, calls, usage, model, .. } = reply;
        step.cost_micros = micros;
        step.usage = Some(convert::usage(usage)).filter(|_| !model.is_empty());
        (step.answer, step.model) = (text, model);
        if !calls.is_empty() {
            let calls = calls.into_iter();
            step.calls =
                calls.map(|call| TriedCall { tool: call.tool, input: call.input }).collect();
            "calls".clone_into(&mut step.next);
            return None;
        }
        let result = match read_result(behavior, &step.answer) {
            Ok(result) => result,
            Err(error) => {
                (step.error, step.next) = (error, "correct".to_owned());
                return None;
            }
        };
        step.result = serde_json::to_string(&result).unwrap_or_default();
        let refused = self.apply_todos(behavior, &result, step);
        let Transition { state: mut after, action } =
            self.advance(behavior, (state, usage), &result);
        after.observation.insert_str(0, &refused);
        word(action).clone_into(&mut step.next);
        step.next_behavior = after.behavior.to_string();
        step.next_step = after.step;
        step.observation.clone_from(&after.observation);
        step.summary.clone_from(&after.last_step);
        Some(after)
    }

    /// Applies a result's todo operations. Returns what the next step is told of refused ones.
    fn apply_todos(
        &mut self,
        behavior: &Behavior,
        result: &StepResult,
        step: &mut TriedStep,
    ) -> String {
        let name = self.agent.name.to_string();
        let (kind, role) = (ActorKind::RootAgent, Some(behavior.role));
        let actor = Actor { kind, name, role, has_outside_text: false };
        let (at, mut told) = (Timestamp::now(), String::new());
        for (number, operation) in (1..).zip(&result.todo_delta) {
            let applied = self.todos.apply(&actor, operation, at);
            let error = applied.err().map(|error| error.to_string()).unwrap_or_default();
            if !error.is_empty() {
                told =
                    format!("operation {number} of `todo_delta` was not applied: {error}\n{told}");
            }
            let operation = serde_json::to_string(operation).unwrap_or_default();
            step.todo_operations.push(TriedOperation { operation, error });
        }
        told
    }

    fn advance(
        &self,
        behavior: &Behavior,
        (state, usage): (&BehaviorState, Usage),
        result: &StepResult,
    ) -> Transition {
        let outcomes = result.actions.iter().map(|action| ActionOutcome {
            tool: action.tool.clone(),
            ok: true,
            output: NOT_CALLED.to_owned(),
        });
        let outcomes: Vec<ActionOutcome> = outcomes.collect();
        let position = StepPosition { name: &state.behavior, step: state.step };
        let finished = FinishedStep { position, usage, result, outcomes: &outcomes };
        let summary = step_summary(behavior, &finished);
        let default = self.set.default_name().parse().unwrap_or_else(|_| state.behavior.clone());
        let exists = |name: &BehaviorName| self.set.find(name).is_some();
        let rules = BehaviorRules {
            step_limit: behavior.step_limit,
            fallback: behavior.fallback.as_deref(),
            default: &default,
            exists: &exists,
        };
        let mut transition = advance(state, &rules, next_behavior(result), summary);
        let routes = behavior.role == holdfast_types::BehaviorRole::Route;
        transition.state.forwards = routes && transition.action == NextAction::Continue;
        transition
    }
}

const fn word(action: NextAction) -> &'static str {
    match action {
        NextAction::Continue => "step",
        NextAction::Wait(WaitKind::Anything) => "wait",
        NextAction::Wait(WaitKind::Message) => "wait_for_message",
        NextAction::Wait(WaitKind::Event) => "wait_for_event",
        NextAction::End => "end",
    }
}
