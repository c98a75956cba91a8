//! Trace of a run: its journal entries as steps, each a model call with the tool calls that it asked
//! for.

use std::collections::HashMap;

use holdfast_grpc::Caller;
use holdfast_proto::gateway::v1::{self as pb, GetRunTraceRequest, GetRunTraceResponse};
use holdfast_session::{
    DeliveryFilter, EntryView, Subagent, SubagentFilter, SubagentOutcome, ToolCallView,
};
use holdfast_types::{Entry, ModelRecord, RunId, SessionId, TenantId, ToolCall};
use jiff::{SignedDuration, Timestamp};

use super::super::{convert, failures, find_run, paging};
use crate::{
    Error,
    control::{State, page_size, timestamp, word_of},
};

const DEFAULT_STEPS: u32 = 100;
const MAX_STEPS: u32 = 500;

/// Entries that one page reads: a step has a few calls, with up to three entries each.
const MAX_ENTRIES: i64 = 4_000;

/// Tool calls, subagents and deliveries of a page.
const MAX_TOOL_CALLS: i64 = 1_000;
const MAX_LISTED: i64 = 200;

/// Length to which inputs and outputs are cut, in characters.
const MAX_SHOWN_CHARS: usize = 20_000;

/// Entry and step of a run at which a page begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct PageStart {
    /// Only entries after this one.
    after: i64,
    /// Number of the first step.
    step: u32,
}

pub(super) async fn read(
    state: &State,
    caller: &Caller,
    request: GetRunTraceRequest,
) -> Result<GetRunTraceResponse, Error> {
    let tenant = caller.tenant;
    let id: RunId = request.run_id.parse()?;
    let most = page_size(request.limit, DEFAULT_STEPS, MAX_STEPS)?;
    let start = paging::parse_token(request.page_token, parse_start)?;
    let names = state.agent_names(tenant).await?;
    let (run, entries) = find_run(state, tenant, id, &names).await?;
    let run = failures::with_failures(run, &entries, caller);
    let views = state.sessions.views();
    let session: SessionId = run.session_id.parse()?;

    let first = start.unwrap_or_default();
    let entries = views.run_entries(tenant, (session, id), first.after, MAX_ENTRIES).await?;
    let is_cut = i64::try_from(entries.len()).is_ok_and(|read| read == MAX_ENTRIES);
    let calls = views.tool_calls(tenant, session, Some(id), MAX_TOOL_CALLS).await?;

    let mut steps = Steps::new(first, calls);
    for entry in entries {
        steps.add(entry);
    }
    let (page, next) = steps.page(usize::try_from(most).unwrap_or(usize::MAX), is_cut);
    let mut response = GetRunTraceResponse {
        next_page_token: next.map(token).unwrap_or_default(),
        messages: page.messages,
        steps: page.steps,
        ..GetRunTraceResponse::default()
    };
    if start.is_none() {
        response.subagents = subagents_of(state, tenant, session, &run).await?;
        response.deliveries = deliveries_of(state, tenant, (session, id)).await?;
    }
    response.run = Some(run);
    Ok(response)
}

fn token(start: PageStart) -> String {
    format!("{}-{}", start.after, start.step)
}

fn parse_start(token: &str) -> Option<PageStart> {
    let (after, step) = token.split_once('-')?;
    Some(PageStart { after: after.parse().ok()?, step: step.parse().ok()? })
}

/// A step, and the entry before it.
struct Step {
    after: i64,
    step: pb::TraceStep,
    /// The model's calls that have no result yet.
    open: Vec<(String, usize)>,
}

#[derive(Default)]
struct Page {
    messages: Vec<pb::Entry>,
    steps: Vec<pb::TraceStep>,
}

/// Steps that are read so far.
struct Steps {
    messages: Vec<pb::Entry>,
    steps: Vec<Step>,
    next_number: u32,
    last_seq: i64,
    /// By id and time of request: ids may repeat in later replies.
    calls: HashMap<(String, Timestamp), ToolCallView>,
}

impl Steps {
    fn new(first: PageStart, calls: Vec<ToolCallView>) -> Self {
        let calls = calls.into_iter().map(|call| ((call.id.clone(), call.requested_at), call));
        Self {
            messages: Vec::new(),
            steps: Vec::new(),
            next_number: first.step,
            last_seq: first.after,
            calls: calls.collect(),
        }
    }

    fn add(&mut self, view: EntryView) {
        let seq = view.seq;
        match &view.entry {
            Entry::Heard { .. } if self.steps.is_empty() => {
                self.messages.push(convert::entry(view))
            }
            Entry::Thought { .. } => self.begin(view),
            Entry::Called { call, effect } => {
                if let Some(shown) = self.open_call(call) {
                    shown.effect = word_of(effect);
                }
            }
            Entry::Returned { call, output, .. } => {
                if let Some(shown) = self.open_call(call) {
                    let (text, is_cut) = cut(output);
                    shown.output = text;
                    shown.is_cut |= is_cut;
                }
                self.close_call(call);
            }
            Entry::Heard { .. } | Entry::Noted { .. } => {
                let note = convert::entry(view);
                self.step().notes.push(note);
            }
        }
        self.last_seq = seq;
    }

    /// Begins a step with a reply.
    fn begin(&mut self, view: EntryView) {
        let (seq, at) = (view.seq, view.created_at);
        let Entry::Thought { text, calls, usage, model, record, .. } = view.entry else { return };
        let model = (!model.is_empty())
            .then(|| model_call(seq, &model, convert::usage(usage), record.as_deref(), at));
        let shown: Vec<_> = calls.iter().map(|call| self.tool_call(call, (at, view.run))).collect();
        let open = calls.into_iter().enumerate().map(|(at, call)| (call.id, at)).collect();
        let number = self.next_number;
        self.next_number += 1;
        let step = pb::TraceStep { number, model, text, calls: shown, notes: Vec::new() };
        self.steps.push(Step { after: self.last_seq, step, open });
    }

    /// The step that entries other than replies belong to; a turn without a model has one, too.
    fn step(&mut self) -> &mut pb::TraceStep {
        if self.steps.is_empty() {
            let step = pb::TraceStep { number: self.next_number, ..pb::TraceStep::default() };
            self.next_number += 1;
            self.steps.push(Step { after: self.last_seq, step, open: Vec::new() });
        }
        let last = self.steps.len() - 1;
        &mut self.steps[last].step
    }

    fn tool_call(&self, call: &ToolCall, (at, run): (Timestamp, RunId)) -> pb::TraceToolCall {
        let (input, is_cut) = cut(&call.input);
        let known = self.calls.get(&(call.id.clone(), at)).cloned().map(convert::tool_call);
        // Beyond the limit of calls that are read.
        let unknown = || pb::ToolCall {
            id: call.id.clone(),
            run_id: run.to_string(),
            tool: call.tool.clone(),
            requested_at: Some(timestamp(at)),
            ..pb::ToolCall::default()
        };
        pb::TraceToolCall {
            call: Some(known.unwrap_or_else(unknown)),
            input,
            output: String::new(),
            is_cut,
            effect: String::new(),
        }
    }

    /// The call of the newest step with this id that has no result yet.
    fn open_call(&mut self, id: &str) -> Option<&mut pb::TraceToolCall> {
        let step = self.steps.last_mut()?;
        let (_, at) = step.open.iter().find(|(open, _)| open == id)?;
        step.step.calls.get_mut(*at)
    }

    fn close_call(&mut self, id: &str) {
        if let Some(step) = self.steps.last_mut()
            && let Some(at) = step.open.iter().position(|(open, _)| open == id)
        {
            step.open.remove(at);
        }
    }

    /// The first `most` steps, and where the next page begins. If the entries were cut, the last step
    /// is read again, unless it is the only one.
    fn page(mut self, most: usize, is_cut: bool) -> (Page, Option<PageStart>) {
        let whole = match is_cut {
            true => self.steps.len().saturating_sub(1).max(1),
            false => self.steps.len(),
        };
        let shown = whole.min(most);
        let next = match self.steps.get(shown) {
            Some(step) => Some(PageStart { after: step.after, step: step.step.number }),
            None if is_cut => Some(PageStart { after: self.last_seq, step: self.next_number }),
            None => None,
        };
        self.steps.truncate(shown);
        let steps = self.steps.into_iter().map(|step| step.step).collect();
        (Page { messages: self.messages, steps }, next)
    }
}

fn model_call(
    seq: i64,
    model: &str,
    usage: pb::Usage,
    record: Option<&ModelRecord>,
    stored_at: Timestamp,
) -> pb::ModelCall {
    let provider = model.split_once(':').map_or(model, |(provider, _)| provider).to_owned();
    let shown = pb::ModelCall {
        seq,
        model: model.to_owned(),
        provider,
        usage: Some(usage),
        ..pb::ModelCall::default()
    };
    let Some(record) = record else { return shown };
    let began = Timestamp::from_millisecond(record.started_at_ms).unwrap_or(stored_at);
    let took = SignedDuration::from_millis(i64::try_from(record.took_ms).unwrap_or(i64::MAX));
    pb::ModelCall {
        attempts: record.attempts,
        failed: record.failed.clone(),
        cost_micros: record.cost_micros,
        started_at: Some(timestamp(began)),
        ended_at: began.checked_add(took).ok().map(timestamp),
        first_piece_ms: record.first_piece_ms,
        duration_ms: record.took_ms,
        runner_id: record.runner.map(|runner| runner.to_string()).unwrap_or_default(),
        trace_id: record.trace.clone(),
        stop: record.stop.clone(),
        ..shown
    }
}

/// The beginning of a text, and whether it is longer.
fn cut(text: &str) -> (String, bool) {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => (text[..end].to_owned(), true),
        None => (text.to_owned(), false),
    }
}

/// Subagents that the session started while the run ran.
async fn subagents_of(
    state: &State,
    tenant: TenantId,
    session: SessionId,
    run: &pb::Run,
) -> Result<Vec<pb::TraceSubagent>, Error> {
    let filter = SubagentFilter { parent: Some(session), open: false, most: MAX_LISTED };
    let all = state.sessions.subagents().list(tenant, &filter).await?;
    let key = |at: &prost_types::Timestamp| (at.seconds, at.nanos);
    let (from, to) = (run.started_at.as_ref().map(key), run.finished_at.as_ref().map(key));
    let is_of_run = |one: &Subagent| {
        let at = Some(key(&timestamp(one.started_at)));
        at >= from && (to.is_none() || at <= to)
    };
    let started: Vec<Subagent> = all.into_iter().filter(is_of_run).collect();
    let ids: Vec<SessionId> = started.iter().map(|one| one.session).collect();
    let runs: HashMap<SessionId, RunId> =
        state.sessions.views().last_runs(tenant, &ids).await?.into_iter().collect();
    let shown = |one: Subagent| {
        let took = SignedDuration::try_from(one.took).unwrap_or_default();
        let ended = one.outcome.and_then(|_| one.started_at.checked_add(took).ok());
        pb::TraceSubagent {
            session_id: one.session.to_string(),
            label: one.label,
            status: one.outcome.map_or("running", SubagentOutcome::as_str).to_owned(),
            run_id: runs.get(&one.session).map(ToString::to_string).unwrap_or_default(),
            started_at: Some(timestamp(one.started_at)),
            finished_at: ended.map(timestamp),
            tokens: one.tokens,
        }
    };
    Ok(started.into_iter().map(shown).collect())
}

async fn deliveries_of(
    state: &State,
    tenant: TenantId,
    (session, run): (SessionId, RunId),
) -> Result<Vec<pb::TraceDelivery>, Error> {
    let filter = DeliveryFilter {
        session: Some(session),
        run: Some(run),
        limit: MAX_LISTED,
        ..DeliveryFilter::default()
    };
    let found = state.sessions.deliveries().list(tenant, filter).await?;
    let shown = found.into_iter().rev().map(|one| pb::TraceDelivery {
        id: one.id.to_string(),
        channel: one.channel,
        state: one.state,
        reason: one.reason.unwrap_or_default(),
    });
    Ok(shown.collect())
}
