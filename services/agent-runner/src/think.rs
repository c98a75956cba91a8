//! Model requests of a turn, and the events that end them early.

use std::{convert::Infallible, env, sync::Arc};

use holdfast_agent::{
    PromptInput, build_on,
    compact::{Overflow, Reason},
    prompt::{Channel, MEMORY_LIMIT, Moment, PromptMode, Runtime, Setting},
    sought,
    subagent::SubagentTask,
};
use holdfast_directory::channel;
use holdfast_llm::{By, Model as _, OnDelta, Request};
use holdfast_session::Completed;
use holdfast_types::{ContextOptions, Entry, Reasoning, Reply, SessionKind, Strategy, Thinking};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    agents::Brief, error::Error, fail, intake::Intake, quoting, reply::Failure, skills::Called,
    turn::Turn, turn::thoughts,
};

/// Outcome of a model request.
enum Asked {
    Replied(Box<Reply>),
    Failed(holdfast_llm::Error),
    /// The text for the user.
    Spent(String),
    /// New input or a cancellation must be handled first.
    Unwanted,
}

/// Whether a tool only describes other tools.
pub(crate) fn is_meta(tool: &str) -> bool {
    matches!(tool, "tool_search" | "tool_describe")
}

/// The agent's files, as its tools name the folder.
const WORKSPACE: &str = "/workspace";

impl Turn<'_> {
    /// Asks the model and stores its answer. Returns `Some` if that ends the turn.
    pub(crate) async fn think(
        &mut self,
        brief: &Brief,
        with_tools: bool,
    ) -> Result<Option<Completed>, Error> {
        if self.is_flushing() {
            let flushed = self.flush(brief).await;
            self.give_back().await;
            return flushed.map(|()| None);
        }
        let thought = self.think_through(brief, with_tools).await;
        // Only after the usage is stored.
        self.give_back().await;
        thought
    }

    async fn think_through(
        &mut self,
        brief: &Brief,
        with_tools: bool,
    ) -> Result<Option<Completed>, Error> {
        self.stream.step(thoughts(self.journal.turn()));
        if let Some(why) = self.is_spent(brief).await? {
            return self.fail(&Failure::Spent(&why)).await.map(Some);
        }
        if with_tools && self.begin_flush(brief, Reason::Proactive).await? {
            return Ok(None);
        }
        self.recommend(brief).await?;
        self.make_room(brief).await?;
        let mut tried = Overflow::default();
        if std::mem::take(&mut self.is_refused) {
            self.remedy(brief, &mut tried).await?;
        }
        let mut asked = self.ask(brief, with_tools).await?;
        // The provider may count more tokens than we do.
        while let Asked::Failed(holdfast_llm::Error::ContextOverflow) = asked {
            if with_tools && self.begin_flush(brief, Reason::Overflow).await? {
                self.is_refused = true;
                return Ok(None);
            }
            if !self.remedy(brief, &mut tried).await? {
                break;
            }
            asked = self.ask(brief, with_tools).await?;
        }
        let reply = match asked {
            Asked::Replied(reply) => *reply,
            Asked::Unwanted => {
                self.charge_read();
                return self.refresh().await.map(|()| None);
            }
            Asked::Spent(why) => return self.fail(&Failure::Spent(&why)).await.map(Some),
            Asked::Failed(error) => return self.fail(&Failure::Model(&error)).await.map(Some),
        };
        let Reply { text, thinking, mut calls, usage, model, carry, .. } = reply;
        self.tell_thinking(&thinking);
        self.mulled = self.sends_thinking().then_some(thinking);
        if !with_tools && !text.trim().is_empty() {
            // The model was told to answer and did; its calls were not offered.
            calls.clear();
        }
        let asks = !calls.is_empty();
        // The provider needs it only together with the results of calls.
        let carry = carry.filter(|_| asks);
        let (text, quote) = match asks {
            true => (text, None),
            false => quoting::split(&text),
        };
        self.quote = quote;
        let thought = Entry::Thought { text, calls, usage, model, carry };
        if !asks {
            if let Some(beat) = self.beat().cloned() {
                return self.answer_beat(beat, thought).await.map(Some);
            }
            self.read_aloud(brief, &thought).await?;
            return self.answer(thought).await.map(Some);
        }
        self.append(vec![thought]).await?;
        Ok(None)
    }

    async fn ask(&mut self, brief: &Brief, with_tools: bool) -> Result<Asked, Error> {
        self.before_effect().await?;
        fail::point("runner.before_model").await;
        self.load_pictures().await?;
        self.finish_recall().await;
        let mut request = self.request(brief, with_tools);
        if let Some(why) = self.reserve(brief, &mut request).await? {
            return Ok(Asked::Spent(why));
        }
        let model = brief.chain.asking(self.settings.profile.clone());
        let cancelled = CancellationToken::new();
        let began = Instant::now();
        self.stream.show(self.reasoning());
        let stream = &self.stream;
        let mut take = |delta| stream.take(delta);
        let on_delta: OnDelta<'_> = &mut take;
        // A branch that ends early drops the request, which aborts it.
        let asked = tokio::select! {
            answer = model.reply(&request, on_delta, &cancelled) => match answer {
                Ok(reply) => Ok(Asked::Replied(Box::new(reply))),
                Err(error) => Ok(Asked::Failed(error)),
            },
            unwanted = self.until_unwanted() => unwanted.map(|()| Asked::Unwanted),
            never = self.stream.pump() => match never {},
        };
        self.stream.flush();
        let took = began.elapsed();
        metrics::histogram!("holdfast_runner_model_duration_seconds").record(took.as_secs_f64());
        self.clock.model += took;
        self.keep_key(model.used()).await?;
        fail::point("runner.after_model").await;
        asked
    }

    /// Stores the key that answered, if there are several, so that the conversation keeps it.
    async fn keep_key(&mut self, used: Option<String>) -> Result<(), Error> {
        if used.is_none() || used == self.settings.profile {
            return Ok(());
        }
        self.settings.profile = used;
        Ok(self.worker.sessions.set_settings(&self.hold.claim, &self.settings).await?)
    }

    pub(crate) fn request(&self, brief: &Brief, with_tools: bool) -> Request {
        let (mut tools, mut more) = (Vec::new(), Vec::new());
        if with_tools {
            let (registry, allowed) = (self.tools.registry(), self.allowed(brief));
            // Tools that somebody named explicitly are all shown; otherwise the model sees a
            // selection.
            let named = brief.tools.as_ref().or(brief.context.include_tools.as_ref());
            tools = match named.or(self.routed_tools()) {
                Some(_) => registry.specs(),
                None => {
                    let sought = sought(self.journal.entries());
                    let sought: Vec<&str> = sought.iter().map(String::as_str).collect();
                    let offer = registry.offered(&allowed, &sought);
                    more = offer.more;
                    offer.tools
                }
            };
            tools.retain(|tool| is_meta(&tool.name) || allowed.allows(&tool.name));
        }
        let place = self.hold.desk().place.clone();
        let (now, zone) = self.clock_of(brief);
        let audience = self.audience(brief);
        let (dials, thinking) = (self.dials(), self.thinking());
        let marks = brief.card.thinking.by == By::Marks && thinking != Thinking::Off;
        let skills = self.skills(brief, (&tools, &more));
        let setting = Setting {
            instructions: &brief.instructions,
            zone: &zone,
            tools: &tools,
            more_tools: &more,
            skills: &skills,
            files: &brief.files,
            workspace: Some(WORKSPACE),
            mode: mode(self.kind, brief.context.strategy),
            memory: brief.context.include_memory,
            marks_reasoning: marks,
            heartbeat_prompt: brief.heartbeat_prompt.as_deref(),
            ..Setting::of(brief.name.as_str(), self.kind, audience)
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
            elevated: dials.elevated.map(|_| self.elevated().as_str()),
        });
        let runtime = runtime.filter(|_| tells_runtime(&brief.context));
        let requester = self.task.as_ref().map(|task| task.parent.to_string());
        let task = self.task.as_ref().map(|task| SubagentTask {
            task: Some(&task.task),
            label: Some(&task.label),
            requester: requester.as_deref(),
            session: &self.key,
        });
        let recommended = self.recommended.as_deref().unwrap_or_default();
        let recommended: Vec<&str> = recommended.iter().map(String::as_str).collect();
        let stable = self.worker.prompts.stable(brief.version, &setting);
        let input = PromptInput {
            setting,
            moment: Moment {
                channel,
                runtime,
                task,
                called: self.called.as_ref().map(Called::as_told),
                skills: &recommended,
                routed: self.routed.as_ref().map(|choice| choice.prompt.as_str()),
                pictures: &self.pictures,
                memories: &self.recall.memories,
                notes: &brief.notes,
                memory_limit: MEMORY_LIMIT.min(self.context_tokens / 10),
                ..Moment::at(&now)
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
            shows_thinking: self.reasoning() != Reasoning::Off || self.sends_thinking(),
            ..Request::new(brief.model_id.clone(), chat, timeout.min(self.deadline))
        }
    }

    /// Completes when the answer is not wanted any more: cancelled or interrupted. Fails if the
    /// session is lost or must be released.
    pub(crate) async fn until_unwanted(&self) -> Result<(), Error> {
        tokio::select! {
            () = self.hold.lost.cancelled() => Err(Error::Lost),
            () = self.worker.giving_up.cancelled() => Err(Error::AskedBack),
            () = self.until_told() => Ok(()),
        }
    }

    async fn until_told(&self) {
        let mut signal = self.hold.signal();
        let (mut next_in, mut pokes) = (self.next_in, self.pokes);
        loop {
            let now = *signal.borrow_and_update();
            if now.cancel_upto > self.cancel_upto {
                return;
            }
            if now.next_in > next_in || now.pokes > pokes {
                (next_in, pokes) = (now.next_in.max(next_in), now.pokes);
                if self.is_unwanted().await {
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
    async fn is_unwanted(&self) -> bool {
        let Ok(loaded) = self.worker.sessions.load(&self.hold.claim, 0).await else {
            return false;
        };
        let upto = loaded.cancel_upto.max(self.cancel_upto);
        match crate::intake::intake(&loaded.waiting, &self.heard(), true, upto) {
            Intake::Cancelled(_) | Intake::Interrupted(_) => true,
            Intake::Hear(_) => false,
        }
    }
}

/// Extent of the prompt (spec CTX-001).
const fn mode(kind: SessionKind, strategy: Strategy) -> PromptMode {
    match strategy {
        Strategy::Lite => PromptMode::Lite,
        Strategy::Full | Strategy::Custom => PromptMode::of(kind),
    }
}

/// Whether the prompt describes the runtime (spec CTX-002).
fn tells_runtime(options: &ContextOptions) -> bool {
    options.include_runtime.unwrap_or(options.strategy != Strategy::Lite)
}
