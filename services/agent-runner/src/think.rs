//! Model requests of a turn, and the events that end them early.

use std::{convert::Infallible, env, sync::Arc};

use holdfast_agent::{
    PromptInput, build_on,
    compact::{OverflowMeasures, Reason},
    prompt::{Channel, MEMORY_LIMIT, PromptMode, PromptSettings, Runtime, TurnContext},
    recently_used_tools,
    subagent::SubagentTask,
};
use holdfast_directory::channel;
use holdfast_llm::{Model as _, OnDelta, Request, ThinkingForm};
use holdfast_session::CompletionResult;
use holdfast_types::{
    ContextOptions, Entry, PromptStrategy, Reasoning, Reply, SessionKind, Thinking,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    agents::AgentSnapshot, error::Error, failpoints, intake::Intake, quotes, replies::Failure,
    skills::InvokedSkill, turn::Turn, turn::count_thoughts,
};

/// Outcome of a model request.
enum ModelOutcome {
    Replied(Box<Reply>),
    Failed(holdfast_llm::Error),
    /// The text for the user.
    Spent(String),
    /// New input or a cancellation must be handled first.
    Interrupted,
}

/// Whether a tool only describes other tools.
pub(crate) fn is_tool_lookup(tool: &str) -> bool {
    matches!(tool, "tool_search" | "tool_describe")
}

/// The agent's files, as its tools name the folder.
const WORKSPACE_PATH: &str = "/workspace";

impl Turn<'_> {
    /// Asks the model and stores its answer. Returns `Some` if that ends the turn.
    pub(crate) async fn think_and_release(
        &mut self,
        brief: &AgentSnapshot,
        with_tools: bool,
    ) -> Result<Option<CompletionResult>, Error> {
        if self.is_flushing() {
            let flushed = self.run_flush(brief).await;
            self.release_reservation().await;
            return flushed.map(|()| None);
        }
        let thought = self.run_think_step(brief, with_tools).await;
        // Only after the usage is stored.
        self.release_reservation().await;
        thought
    }

    async fn run_think_step(
        &mut self,
        brief: &AgentSnapshot,
        with_tools: bool,
    ) -> Result<Option<CompletionResult>, Error> {
        self.stream.begin_step(count_thoughts(self.journal.turn()));
        if let Some(why) = self.spent_budget(brief).await? {
            return self.finish_with_failure(&Failure::BudgetSpent(&why)).await.map(Some);
        }
        if with_tools && self.begin_flush(brief, Reason::Proactive).await? {
            return Ok(None);
        }
        self.recommend_skills(brief).await?;
        self.compact_if_needed(brief).await?;
        let mut tried = OverflowMeasures::default();
        if std::mem::take(&mut self.is_too_long) {
            self.recover_from_overflow(brief, &mut tried).await?;
        }
        let mut asked = self.ask_model(brief, with_tools).await?;
        // The provider may count more tokens than we do.
        while let ModelOutcome::Failed(holdfast_llm::Error::ContextOverflow) = asked {
            if with_tools && self.begin_flush(brief, Reason::Overflow).await? {
                self.is_too_long = true;
                return Ok(None);
            }
            if !self.recover_from_overflow(brief, &mut tried).await? {
                break;
            }
            asked = self.ask_model(brief, with_tools).await?;
        }
        let reply = match asked {
            ModelOutcome::Replied(reply) => *reply,
            ModelOutcome::Interrupted => {
                self.charge_read();
                return self.reload_inbox().await.map(|()| None);
            }
            ModelOutcome::Spent(why) => {
                return self.finish_with_failure(&Failure::BudgetSpent(&why)).await.map(Some);
            }
            ModelOutcome::Failed(error) => {
                return self.finish_with_failure(&Failure::Model(&error)).await.map(Some);
            }
        };
        let Reply { text, thinking, mut calls, usage, model, carry, .. } = reply;
        self.send_reasoning(&thinking);
        self.reasoning = self.sends_thinking().then_some(thinking);
        if !with_tools && !text.trim().is_empty() {
            // The model was told to answer and did; its calls were not offered.
            calls.clear();
        }
        let asks = !calls.is_empty();
        // The provider needs it only together with the results of calls.
        let carry = carry.filter(|_| asks);
        let (text, quote) = match asks {
            true => (text, None),
            false => quotes::extract_quote(&text),
        };
        self.quote = quote;
        let thought = Entry::Thought { text, calls, usage, model, carry };
        if !asks {
            if let Some(beat) = self.heartbeat().cloned() {
                return self.finish_heartbeat(beat, thought).await.map(Some);
            }
            self.synthesize_answer(brief, &thought).await?;
            return self.finish_with_answer(thought).await.map(Some);
        }
        self.append(vec![thought]).await?;
        Ok(None)
    }

    async fn ask_model(
        &mut self,
        brief: &AgentSnapshot,
        with_tools: bool,
    ) -> Result<ModelOutcome, Error> {
        self.ensure_owned().await?;
        failpoints::point("runner.before_model").await;
        self.load_images().await?;
        self.await_prefetch().await;
        let mut request = self.model_request(brief, with_tools);
        if let Some(why) = self.reserve(brief, &mut request).await? {
            return Ok(ModelOutcome::Spent(why));
        }
        let model = brief.chain.for_conversation(self.settings.profile.clone());
        let cancelled = CancellationToken::new();
        let began = Instant::now();
        self.stream.set_reasoning(self.effective_reasoning());
        let stream = &self.stream;
        let mut take = |delta| stream.on_model_delta(delta);
        let on_delta: OnDelta<'_> = &mut take;
        // A branch that ends early drops the request, which aborts it.
        let asked = tokio::select! {
            answer = model.reply(&request, on_delta, &cancelled) => match answer {
                Ok(reply) => Ok(ModelOutcome::Replied(Box::new(reply))),
                Err(error) => Ok(ModelOutcome::Failed(error)),
            },
            unwanted = self.until_interrupted() => unwanted.map(|()| ModelOutcome::Interrupted),
            never = self.stream.send_pending() => match never {},
        };
        self.stream.flush();
        let took = began.elapsed();
        metrics::histogram!("holdfast_runner_model_duration_seconds").record(took.as_secs_f64());
        self.timing.model += took;
        self.store_key(model.used_key()).await?;
        failpoints::point("runner.after_model").await;
        asked
    }

    /// Stores the key that answered, if there are several, so that the conversation keeps it.
    async fn store_key(&mut self, used: Option<String>) -> Result<(), Error> {
        if used.is_none() || used == self.settings.profile {
            return Ok(());
        }
        self.settings.profile = used;
        Ok(self.worker.sessions.set_settings(&self.hold.claim, &self.settings).await?)
    }

    pub(crate) fn model_request(&self, brief: &AgentSnapshot, with_tools: bool) -> Request {
        let (mut tools, mut more) = (Vec::new(), Vec::new());
        if with_tools {
            let (registry, allowed) = (self.tools.registry(), self.allowed_tools(brief));
            // Tools that somebody named explicitly are all shown; otherwise the model sees a
            // selection.
            let named = brief.tools.as_ref().or(brief.context.include_tools.as_ref());
            tools = match named.or(self.routed_tools()) {
                Some(_) => registry.specs(),
                None => {
                    let sought = recently_used_tools(self.journal.entries());
                    let sought: Vec<&str> = sought.iter().map(String::as_str).collect();
                    let offer = registry.offered(&allowed, &sought);
                    more = offer.searchable;
                    offer.tools
                }
            };
            tools.retain(|tool| is_tool_lookup(&tool.name) || allowed.allows(&tool.name));
        }
        let place = self.conversation_target();
        let (now, zone) = self.local_time(brief);
        let audience = self.audience(brief);
        let (dials, thinking) = (self.dials(), self.thinking_level());
        let marks = brief.card.thinking.by == ThinkingForm::Marks && thinking != Thinking::Off;
        let skills = self.prompt_skills(brief, (&tools, &more));
        let setting = PromptSettings {
            instructions: &brief.instructions,
            zone: &zone,
            tools: &tools,
            more_tools: &more,
            skills: &skills,
            files: &brief.files,
            workspace: Some(WORKSPACE_PATH),
            mode: prompt_mode(self.kind, brief.context.strategy),
            memory: brief.context.include_memory,
            marks_reasoning: marks,
            heartbeat_prompt: brief.heartbeat_prompt.as_deref(),
            ..PromptSettings::of(brief.name.as_str(), self.kind, audience)
        };
        let channel = place.as_ref().map(|place| Channel {
            name: &place.channel,
            actions: &[],
            capabilities: channel::capabilities(&place.channel),
        });
        let model = brief.model_id.to_string();
        let runtime = Some(Runtime {
            host: "runner",
            os: env::consts::OS,
            arch: env::consts::ARCH,
            version: env!("CARGO_PKG_VERSION"),
            model: &model,
            thinking: thinking.as_str(),
            elevated: dials.elevated.map(|_| self.effective_elevated().as_str()),
        });
        let runtime = runtime.filter(|_| includes_runtime(&brief.context));
        let requester = self.task.as_ref().map(|task| task.parent.to_string());
        let task = self.task.as_ref().map(|task| SubagentTask {
            task: Some(&task.task),
            label: Some(&task.label),
            requester: requester.as_deref(),
            session: &self.key,
        });
        let recommended = self.recommended.as_deref().unwrap_or_default();
        let recommended: Vec<&str> = recommended.iter().map(String::as_str).collect();
        let stable = self.worker.prompts.stable_part(brief.version, &setting);
        let input = PromptInput {
            setting,
            moment: TurnContext {
                channel,
                runtime,
                task,
                called: self.invoked_skill.as_ref().map(InvokedSkill::for_prompt),
                skills: &recommended,
                routed: self.routing_choice.as_ref().map(|choice| choice.prompt.as_str()),
                pictures: &self.pictures,
                memories: &self.prefetch.memories,
                notes: &brief.notes,
                memory_limit: MEMORY_LIMIT.min(self.context_tokens / 10),
                ..TurnContext::at(&now)
            },
            journal: self.journal.entries(),
            context_limit: self.context_tokens,
        };
        let chat = build_on(stable, input);
        let timeout = Instant::now() + self.worker.config.model_timeout;
        Request {
            cache_key: Some(brief.agent.to_string()),
            card: Some(Arc::clone(&brief.card)),
            thinking,
            shows_thinking: self.effective_reasoning() != Reasoning::Off || self.sends_thinking(),
            ..Request::new(brief.model_id.clone(), chat, timeout.min(self.deadline))
        }
    }

    /// Completes when the answer is not wanted any more: cancelled or interrupted. Fails if the
    /// session is lost or must be released.
    pub(crate) async fn until_interrupted(&self) -> Result<(), Error> {
        tokio::select! {
            () = self.hold.lost.cancelled() => Err(Error::Lost),
            () = self.worker.giving_up.cancelled() => Err(Error::ReleaseRequested),
            () = self.until_signalled() => Ok(()),
        }
    }

    async fn until_signalled(&self) {
        let mut signal = self.hold.subscribe();
        let (mut next_in, mut pokes) = (self.next_in, self.hints);
        loop {
            let now = *signal.borrow_and_update();
            if now.cancel_upto > self.cancel_upto {
                return;
            }
            if now.next_in > next_in || now.hints > pokes {
                (next_in, pokes) = (now.next_in.max(next_in), now.hints);
                if self.is_interrupted().await {
                    return;
                }
            }
            if signal.changed().await.is_err() {
                // The sender is part of the lease, so this cannot happen.
                let _: Infallible = std::future::pending().await;
            }
        }
    }

    /// Whether new messages end the turn. On failure the turn goes on.
    async fn is_interrupted(&self) -> bool {
        let Ok(loaded) = self.worker.sessions.load(&self.hold.claim, 0).await else {
            return false;
        };
        let upto = loaded.cancel_upto.max(self.cancel_upto);
        match crate::intake::decide_intake(&loaded.waiting, &self.heard_seqs(), true, upto) {
            Intake::Cancelled(_) | Intake::Interrupted(_) => true,
            Intake::Hear(_) => false,
        }
    }
}

/// Extent of the prompt (spec CTX-001).
const fn prompt_mode(kind: SessionKind, strategy: PromptStrategy) -> PromptMode {
    match strategy {
        PromptStrategy::Lite => PromptMode::Lite,
        PromptStrategy::Full | PromptStrategy::Custom => PromptMode::of(kind),
    }
}

/// Whether the prompt describes the runtime (spec CTX-002).
fn includes_runtime(options: &ContextOptions) -> bool {
    options.include_runtime.unwrap_or(options.strategy != PromptStrategy::Lite)
}
