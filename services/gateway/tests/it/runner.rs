//! Test runner without a model: the message determines what it does.
//!
//! | a message begins with | the runner |
//! |---|---|
//! | `hold` | answers once [`Runner::release`] is called |
//! | `think` | thinks aloud before it answers |
//! | `tool` | says something, calls a tool, answers in its second step |
//! | `steps` | says `let me see`, calls a tool, says `it is `, and `noon` once released |
//! | `same` | loses the first step half-way, and says the same again |
//! | `other` | loses it, and says something else |
//! | `fail` | ends without an answer; `fail <class>` for this reason, with the failed request of a provider |
//! | `die` | gives the message up |
//! | `quiet` | answers, and publishes nothing over NATS |
//! | `linger` | is heard by the turn's second step, which tells the answer; ends once released |
//! | `ask` | asks for an approval, and answers after the decision |
//! | `call` | says something, and calls each tool that the client gives |
//! | results of these calls | answers with them |
//! | `options` | answers with what the client asks of the model |
//! | `cut` | answers, and says that the answer is cut off; `cut by a filter` says by what |
//! | `history` | answers with all that it has heard |
//! | anything else | answers with `echo: ` and the message |

use std::{future::pending, sync::Arc, time::Duration};

use holdfast_bus::{
    Bus, Delta, DeltaBody, McpOmittedTool, McpProbe, McpProbeResult, McpProbeTool, PromptAnswer,
    PromptQuestion, RenderedMessage, RenderedPrompt, StepProgress,
};
use holdfast_session::{
    ApprovalBatch, ApprovalFilter, Claim, Completion, Error, InboxMessage, LoadedSession,
    NewApproval, NewDelivery, Sessions, StepWrite, TurnOutcome,
};
use holdfast_types::{
    ApprovalId, Body, ClientTool, DeliveryId, Entry, Handover, MessageFilter, ProviderFailure,
    QueueMode, RunId, RunnerId, StopReason, ToolCall, Usage, Wait,
};
use jiff::Timestamp;
use tokio::{
    sync::{Notify, Semaphore},
    time::sleep,
};
use tokio_util::task::AbortOnDropHandle;

/// Polling interval for sessions of which no wake-up arrived.
const POLL: Duration = Duration::from_secs(1);

/// Time for the gateway to subscribe to the deltas of a session that was claimed without a wake-up.
const SUBSCRIBE_TIME: Duration = Duration::from_millis(300);

fn usage() -> Usage {
    Usage { input: 5, cached: 2, output: 3, ..Usage::default() }
}

/// Claims sessions and answers until dropped.
pub struct Runner {
    held: Arc<Semaphore>,
    _claims: AbortOnDropHandle<()>,
    _probes: AbortOnDropHandle<()>,
    _prompts: AbortOnDropHandle<()>,
}

/// Reports one tool for each MCP server, named after the server, and one that is left out.
async fn probes(bus: Bus) {
    let Ok(mut probes) = bus.mcp_probes("").await else { return };
    while let Some((probe, asker)) = probes.next::<McpProbe>().await {
        let tool = McpProbeTool { name: probe.server, ..McpProbeTool::default() };
        let omitted = McpOmittedTool {
            name: "large".to_owned(),
            reason: "its schema is too large".to_owned(),
        };
        let result = McpProbeResult { tools: vec![tool], omitted: vec![omitted], error: None };
        asker.answer(&result).await;
    }
}

/// Answers each question for a prompt with the place of the reply.
async fn prompts(bus: Bus) {
    let Ok(mut questions) = PromptQuestion::of_pool(&bus, "").await else { return };
    while let Some((question, asker)) = questions.next::<PromptQuestion>().await {
        let call = ToolCall { id: "c".into(), tool: "look".into(), input: "{}".into() };
        let asked = RenderedMessage {
            role: "assistant".to_owned(),
            calls: vec![call],
            ..RenderedMessage::default()
        };
        let prompt = RenderedPrompt {
            stable: format!("before {}", question.seq),
            messages: vec![asked],
            missing: vec!["memories".to_owned()],
            ..RenderedPrompt::default()
        };
        asker.answer(&PromptAnswer::Rendered { prompt: Box::new(prompt) }).await;
    }
}

impl Runner {
    pub fn start(sessions: Sessions, bus: Bus) -> Self {
        let held = Arc::new(Semaphore::new(0));
        let probes = AbortOnDropHandle::new(tokio::spawn(probes(bus.clone())));
        let prompts = AbortOnDropHandle::new(tokio::spawn(prompts(bus.clone())));
        let work = Work {
            sessions,
            bus,
            held: Arc::clone(&held),
            ended: Arc::default(),
            id: RunnerId::generate(),
        };
        let claims = AbortOnDropHandle::new(tokio::spawn(work.claim()));
        Self { held, _claims: claims, _probes: probes, _prompts: prompts }
    }

    /// Releases a number of messages that begin with `hold`.
    pub fn release(&self, held: usize) {
        self.held.add_permits(held);
    }
}

#[derive(Clone)]
struct Work {
    sessions: Sessions,
    bus: Bus,
    held: Arc<Semaphore>,
    /// Wakes the runner: a session may be ready again.
    ended: Arc<Notify>,
    id: RunnerId,
}

impl Work {
    /// Claims on wake-ups, as real runners do: the gateway sends them after it has subscribed to
    /// the deltas, so that none is lost.
    async fn claim(self) {
        let mut wakes = self.bus.run_wakes("").await.ok();
        let mut was_woken = false;
        loop {
            for claim in self.sessions.claim(self.id, 16).await.unwrap_or_default() {
                let work = self.clone();
                tokio::spawn(async move {
                    if !was_woken {
                        sleep(SUBSCRIBE_TIME).await;
                    }
                    if let Err(error) = work.run(claim).await {
                        // At the end of a test the database is dropped while the runner works.
                        assert!(!error.is_fenced(), "{error}");
                    }
                    work.ended.notify_one();
                });
            }
            let woken = async {
                let wake = match &mut wakes {
                    Some(wakes) => wakes.next().await,
                    None => None,
                };
                if wake.is_none() {
                    let () = pending().await;
                }
            };
            was_woken = tokio::select! {
                () = woken => true,
                () = self.ended.notified() => false,
                () = sleep(POLL) => false,
            };
        }
    }

    async fn run(&self, claim: Claim) -> Result<(), Error> {
        let mut loaded = self.sessions.load(&claim, 1000).await?;
        let Some(head) = loaded.waiting.iter().find(|row| !row.body.silent).cloned() else {
            return self.sessions.yield_session(&claim, Wait::Anything).await.map(drop);
        };
        let run = RunId::from(head.message);
        let mut told = Told { work: self, claim: &claim, run, n: 0 };
        let quiet = head.body.text.starts_with("quiet");
        if !quiet {
            told.tell(0, DeltaBody::Started);
        }
        if head.body.text.starts_with("hold") {
            self.held.acquire().await.expect("it is never closed").forget();
            // Reads messages that arrived meanwhile.
            loaded = self.sessions.load(&claim, 1000).await?;
        }
        let seen = seen(&loaded, &head);
        if head.body.text.starts_with("ask") && !self.is_decided(&claim, run).await? {
            return self.ask(&mut told, &loaded, &seen).await;
        }
        let last = seen.iter().rev().find(|row| !row.body.silent).map(|row| &row.body);
        if let Some(options) = last.and_then(|body| body.answer_options.as_ref())
            && last.is_some_and(|body| body.text.starts_with("call"))
            && !options.tools.is_empty()
        {
            return self.hand_over(&mut told, &seen, &options.tools.clone()).await;
        }
        let (step, outcome, text) = self.think(&mut told, &loaded, &seen, quiet).await?;
        if seen.iter().any(|row| row.body.text.starts_with("linger")) {
            self.held.acquire().await.expect("it is never closed").forget();
        }
        self.finish(&mut told, &seen, (step, outcome, text), quiet).await
    }

    async fn is_decided(&self, claim: &Claim, run: RunId) -> Result<bool, Error> {
        let session = Some(claim.session);
        let filter = ApprovalFilter { session, limit: 50, ..ApprovalFilter::default() };
        let found = self.sessions.approvals().list(claim.tenant, filter).await?;
        Ok(found.iter().any(|one| one.run == run))
    }

    async fn ask(
        &self,
        told: &mut Told<'_>,
        loaded: &LoadedSession,
        seen: &[InboxMessage],
    ) -> Result<(), Error> {
        let text = seen.last().map(|row| row.body.text.clone()).unwrap_or_default();
        let approval = ApprovalId::generate();
        let new = NewApproval {
            id: approval,
            step: 0,
            call: "call_1".to_owned(),
            tool: "launch".to_owned(),
            subject: text.clone(),
            summary: text.clone(),
            pattern: None,
            timeout: Duration::from_secs(60),
            request: None,
            asked_in: None,
        };
        let ask = ApprovalBatch {
            run: told.run,
            at: loaded.next_entry,
            newest: None,
            entries: Vec::new(),
            seen: seen.iter().map(|row| row.seq).collect(),
            deliveries: Vec::new(),
            approvals: vec![new],
        };
        self.sessions.approvals().ask(told.claim, ask).await?;
        let tool = "launch".to_owned();
        told.tell(
            1,
            DeltaBody::ApprovalRequested {
                approval,
                tool,
                summary: text.clone(),
                subject: text,
                pattern: String::new(),
                left_ms: 60_000,
            },
        );
        Ok(())
    }

    /// Returns the answer and the number of its step.
    async fn think(
        &self,
        told: &mut Told<'_>,
        loaded: &LoadedSession,
        seen: &[InboxMessage],
        quiet: bool,
    ) -> Result<(u32, TurnOutcome, String), Error> {
        let last = seen.iter().rev().find(|row| !row.body.silent);
        let said = last.map(|row| row.body.text.clone()).unwrap_or_default();
        let mut answer = format!("echo: {said}");
        let results = seen.iter().flat_map(|row| &row.body.results);
        let results: Vec<String> =
            results.map(|result| format!("{}={}", result.call, result.output)).collect();
        if !results.is_empty() && said.is_empty() {
            answer = format!("results: {}", results.join(", "));
        }
        if said.starts_with("steps") {
            return self.take_two_steps(told, seen).await;
        }
        let mut step = 0;
        match said.split_whitespace().next().unwrap_or_default() {
            "die" => return Ok((0, TurnOutcome::Dead, "it always would".to_owned())),
            "fail" => return Ok((0, TurnOutcome::Failed, "it would not work".to_owned())),
            "options" => {
                let options = last.and_then(|row| row.body.answer_options.clone());
                answer = serde_json::to_string(&options).unwrap_or_default();
            }
            "history" => answer = history(loaded, seen),
            // A follower may have queried the journal about the first step already.
            "linger" => step = 1,
            "canvas" => told.tell(0, DeltaBody::Canvas { surfaces: vec!["plan".to_owned()] }),
            "progress" => told.tell(0, DeltaBody::StepProgress(progress())),
            "think" => told.tell(0, DeltaBody::Thought { text: "hm".to_owned() }),
            "same" => told.say(0, "echo: "),
            "other" => told.say(0, "something else "),
            "tool" => {
                told.say(0, "let me see");
                let call = "call_1".to_owned();
                told.tell(0, DeltaBody::ToolStarted { call: call.clone(), tool: "look".into() });
                told.tell(0, DeltaBody::ToolEnded { call, failed: false });
                step = 1;
            }
            _ => {}
        }
        let seqs = seen.iter().map(|row| row.seq).collect();
        let append = StepWrite { run: Some(told.run), seen: seqs, ..StepWrite::default() };
        self.sessions.append(told.claim, append).await?;
        if ["same", "other"].iter().any(|word| said.starts_with(word)) {
            told.tell(0, DeltaBody::StepRestarted);
        }
        if !quiet {
            for word in answer.split_inclusive(' ') {
                told.say(step, word);
            }
        }
        Ok((step, TurnOutcome::Completed, answer))
    }

    /// Two steps, of which the journal has the first once the second begins.
    async fn take_two_steps(
        &self,
        told: &mut Told<'_>,
        seen: &[InboxMessage],
    ) -> Result<(u32, TurnOutcome, String), Error> {
        let call =
            ToolCall { id: "call_1".to_owned(), tool: "look".to_owned(), input: "{}".to_owned() };
        told.say(0, "let me ");
        told.say(0, "see");
        let mut entries: Vec<Entry> =
            seen.iter().map(|row| Entry::Heard { seq: row.seq, body: row.body.clone() }).collect();
        entries.push(Entry::Thought {
            text: "let me see".to_owned(),
            calls: vec![call.clone()],
            usage: usage(),
            model: "test:echo".to_owned(),
            carry: None,
            record: None,
        });
        let seqs = seen.iter().map(|row| row.seq).collect();
        let append = StepWrite { run: Some(told.run), seen: seqs, entries, ..StepWrite::default() };
        self.sessions.append(told.claim, append).await?;
        told.tell(0, DeltaBody::ToolStarted { call: call.id.clone(), tool: call.tool });
        told.tell(0, DeltaBody::ToolEnded { call: call.id, failed: false });
        told.say(1, "it is ");
        self.held.acquire().await.expect("it is never closed").forget();
        told.say(1, "noon");
        Ok((1, TurnOutcome::Completed, "it is noon".to_owned()))
    }

    /// Calls each of the client's tools; the first word after `call` is the deadline in
    /// milliseconds, if it is a number.
    async fn hand_over(
        &self,
        told: &mut Told<'_>,
        seen: &[InboxMessage],
        tools: &[ClientTool],
    ) -> Result<(), Error> {
        let mut entries: Vec<Entry> =
            seen.iter().map(|row| Entry::Heard { seq: row.seq, body: row.body.clone() }).collect();
        let words = seen.last().map(|row| row.body.text.clone()).unwrap_or_default();
        let left = words.split(' ').nth(1).and_then(|word| word.parse::<i64>().ok());
        let call = |(n, tool): (usize, &ClientTool)| ToolCall {
            id: format!("c{n}"),
            tool: tool.name.clone(),
            input: format!(r#"{{"n":{n}}}"#),
        };
        let calls: Vec<ToolCall> = tools.iter().enumerate().map(call).collect();
        let until = Timestamp::now().as_millisecond() + left.unwrap_or(60_000);
        let text = "let me see".to_owned();
        let handover = Handover::new(told.run, text.clone(), &calls, until);
        let model = "test:echo".to_owned();
        entries.push(Entry::Thought {
            text: text.clone(),
            calls,
            usage: usage(),
            model: model.clone(),
            carry: None,
            record: None,
        });
        entries.push(handover.entry());
        let seqs: Vec<i64> = seen.iter().map(|row| row.seq).collect();
        let completion = Completion {
            run: told.run,
            at: None,
            newest: None,
            reply: Some(entries.len() - 1),
            entries,
            done: seqs.clone(),
            outcome: TurnOutcome::Completed,
            reason: None,
            deliveries: Vec::new(),
            usage: usage(),
            model: model.clone(),
            steps: 1,
            tools: Vec::new(),
            started_at: Timestamp::now(),
            wait: Wait::Message {
                filter: MessageFilter::default(),
                deadline_ms: Some(60_000),
                note: String::new(),
            },
            last_target: None,
            effects: None,
        };
        told.say(0, "let me ");
        self.sessions.complete(told.claim, completion).await?;
        let (outcome, calls) = (holdfast_bus::Outcome::Completed, handover.calls);
        let done =
            DeltaBody::Done { seqs, text, outcome, reason: None, usage: usage(), model, calls };
        told.tell(0, done);
        Ok(())
    }

    async fn finish(
        &self,
        told: &mut Told<'_>,
        seen: &[InboxMessage],
        (step, outcome, text): (u32, TurnOutcome, String),
        quiet: bool,
    ) -> Result<(), Error> {
        // These have written their messages with their first step.
        let heard = seen.iter().filter(|row| !row.body.text.starts_with("steps"));
        let mut entries: Vec<Entry> =
            heard.map(|row| Entry::Heard { seq: row.seq, body: row.body.clone() }).collect();
        entries.push(Entry::Thought {
            text: text.clone(),
            calls: Vec::new(),
            usage: usage(),
            model: "test:echo".to_owned(),
            carry: None,
            record: None,
        });
        let seqs: Vec<i64> = seen.iter().map(|row| row.seq).collect();
        // `fail` may be followed by the class of the failure.
        let class = seen.last().and_then(|row| row.body.text.strip_prefix("fail "));
        let cut = match seen.last().map(|row| row.body.text.as_str()) {
            Some("cut by a filter") => StopReason::Filtered,
            Some(text) if text.starts_with("cut") => StopReason::MaxTokens,
            Some(_) | None => StopReason::End,
        };
        let reason = match outcome {
            TurnOutcome::Completed => cut.early_end().map(str::to_owned),
            _ => Some(class.unwrap_or("test").to_owned()),
        };
        if class.is_some() {
            entries.pop();
            entries.push(Entry::failed(text.clone(), vec![provider_failure()]));
        }
        let target = seen.iter().rev().find_map(|row| row.target.clone());
        let delivery = |target| NewDelivery {
            target,
            text: text.clone(),
            act: None,
            id: DeliveryId::generate(),
            delay: Duration::ZERO,
        };
        let deliveries = target.map(delivery).into_iter().collect();
        let completion = Completion {
            run: told.run,
            at: None,
            newest: None,
            reply: Some(entries.len() - 1),
            entries,
            done: seqs.clone(),
            outcome,
            reason: reason.clone(),
            deliveries,
            usage: usage(),
            model: "test:echo".to_owned(),
            // As a runner counts: a step with calls is two.
            steps: i32::try_from(step).unwrap_or_default() * 2 + 1,
            tools: Vec::new(),
            started_at: Timestamp::now(),
            wait: Wait::Anything,
            last_target: None,
            effects: None,
        };
        self.sessions.complete(told.claim, completion).await?;
        if !quiet {
            let outcome = match outcome {
                TurnOutcome::Failed => holdfast_bus::Outcome::Failed,
                TurnOutcome::Dead => holdfast_bus::Outcome::Dead,
                _ => holdfast_bus::Outcome::Completed,
            };
            let model = "test:echo".to_owned();
            let calls = Vec::new();
            let done =
                DeltaBody::Done { seqs, text, outcome, reason, usage: usage(), model, calls };
            told.tell(step, done);
        }
        Ok(())
    }
}

/// Failed request of a turn that fails for a reason.
pub fn provider_failure() -> ProviderFailure {
    ProviderFailure {
        model: "test:echo".into(),
        class: "bad_request".into(),
        status: Some(400),
        code: "bad_field".into(),
        text: "field X is wrong".into(),
        attempts: 1,
        repair: String::new(),
    }
}

/// Messages that a turn reads, according to their queue modes.
fn seen(loaded: &LoadedSession, head: &InboxMessage) -> Vec<InboxMessage> {
    let alone = head.mode == QueueMode::Followup;
    let taken = loaded.waiting.iter().filter(|row| row.seq <= head.seq || !alone);
    taken.cloned().collect()
}

fn history(loaded: &LoadedSession, seen: &[InboxMessage]) -> String {
    let before = loaded.entries.iter().filter_map(|(_, _, entry)| match entry {
        Entry::Heard { body, .. } => Some(line(body)),
        Entry::Thought { text, .. } => Some(format!("assistant={text}")),
        _ => None,
    });
    let now = seen.iter().map(|row| line(&row.body));
    before.chain(now).collect::<Vec<_>>().join("; ")
}

fn line(body: &Body) -> String {
    let calls = body.calls.iter().map(|call| format!("[{} {}]", call.id, call.tool));
    let results = body.results.iter().map(|one| format!("[{} {}]", one.call, one.output));
    let more: String = calls.chain(results).collect();
    format!("{}={}{more}", body.role.as_deref().unwrap_or("user"), body.text)
}

struct Told<'w> {
    work: &'w Work,
    claim: &'w Claim,
    run: RunId,
    n: u32,
}

impl Told<'_> {
    fn say(&mut self, step: u32, text: &str) {
        self.tell(step, DeltaBody::Text { text: text.to_owned() });
    }

    fn tell(&mut self, step: u32, body: DeltaBody) {
        let delta = Delta { run: self.run, epoch: self.claim.epoch, step, n: self.n, body };
        self.n += u32::from(!matches!(delta.body, DeltaBody::StepProgress(_)));
        self.work.bus.publish_delta(self.claim.tenant, self.claim.session, &delta);
    }
}

/// What is told of a step for a message that begins with `progress`.
pub fn progress() -> StepProgress {
    StepProgress {
        behavior: "DO".to_owned(),
        step: 2,
        todo: "T001".to_owned(),
        todos_done: 1,
        todos: 3,
        cost_micros: 20_000,
    }
}
