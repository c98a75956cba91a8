//! Session protocol: keeps every accepted message until it is answered, cancelled, failed or given
//! up as a dead letter.
//!
//! Each verb is one transaction, and each is idempotent or fenced. `sweep`, `prune`, delivery
//! claims, and cascades of `pause` and `resume` are sequences of such transactions. The row of
//! `session_lease` is the session's lock: a transaction that changes a session locks this row
//! first, then its shard of the tenant's `tenant_flight`, and budgets last. Rows of other sessions
//! are locked only with `skip locked`; the exception is `renew`, which locks a runner's own
//! sessions in the order of their ids. Leases and deadlines use the database's clock only.
//!
//! | verb | who calls it | file |
//! |---|---|---|
//! | ingest | gateway | `protocol/ingest.rs` |
//! | ingest many, message outcomes, end overdue | scheduler | `protocol/batch.rs`, `message_outcomes.rs`, `protocol/overdue.rs` |
//! | claim, renew, release | agent-runner | `protocol/claim.rs` |
//! | state that a runner holds | agent-runner | `protocol/held_state.rs` |
//! | load, append, complete | agent-runner | `protocol/load.rs`, `protocol/append.rs`, `protocol/complete.rs` |
//! | sweep, prune, the duty to do them | agent-runner | `protocol/sweep.rs`, `upkeep/` |
//! | pause, resume, cancel | gateway | `protocol/pause.rs` |
//! | deliveries | channel-bridge, gateway | `delivery.rs` |
//! | pools of runners | agent-runner, gateway | `queues/runner_pools.rs` |
//! | log of events | agent-runner, gateway | `event_log.rs` |
//! | views, search, ledger of tool calls | gateway, tools | `view/`, `tool_calls.rs` |
//! | branch | gateway | `protocol/branch.rs` |
//! | memory extraction, index of conversation turns | agent-runner | `journal_readers.rs` |
//! | spending, usage | agent-runner, gateway | `usage.rs` |
//! | ask, resolve, settle | agent-runner, gateway | `approvals.rs` |
//! | state of behaviours | agent-runner | `protocol/behaviors.rs` |
//! | steps of behaviours, and their rollback | agent-runner, gateway | `protocol/rollback.rs` |
//! | dead letters, tenant shares, deletion | gateway | `dead_letters.rs`, `queues.rs`, `delete.rs` |
//!
//! ## What can go wrong
//!
//! A runner that was suspended for longer than its lease resumes as if it still owned the session.
//! Its next write finds another epoch under the row lock and fails with [`Error::Fenced`]. This
//! fence, not the lease's expiry, ensures that only one runner writes to a session.

mod approvals;
mod canvas;
mod dead_letters;
mod delete;
mod delivery;
mod erase;
mod error;
mod event_log;
mod heartbeats;
mod journal_cache;
mod journal_readers;
mod message_outcomes;
mod model;
mod protocol;
mod queues;
mod sessions;
mod settings;
mod subagents;
mod summary;
mod system_events;
mod tool_calls;
mod upkeep;
mod usage;
mod view;

pub use approvals::{
    Approval, ApprovalBatch, ApprovalFilter, ApprovalRule, Approvals, DecidedCall, DecisionResult,
    NewApproval, NewDecision, SettleResult, WaitingRun, subject_hash,
};
pub use canvas::{Canvas, MAX_SURFACES, NewSurface, Surface};
pub use dead_letters::{DeadLetterFilter, DeadLetters};
pub use delivery::operations::{DeliveryFilter, DeliveryStatus};
pub use delivery::outbound::{OutboundText, QueuedText};
pub use delivery::previews::{PreviewState, TakenPreview};
pub use delivery::progress::DeliveryProgress;
pub use delivery::{Deliveries, HANDOVER_TIMEOUT, SEND_LEASE, SendCapacity};
pub use erase::Erasure;
pub use error::Error;
pub use event_log::{
    EVENT_SCHEMAS, Event, EventCursor, EventData, EventField, EventFilter, EventGauges, EventLog,
    EventLogWriter, EventPage, EventSchema, EventText, HeldEvent, LogBounds, LoggedEvent, NewEvent,
    UnpublishedEvents, WebhookKey, WebhookProgress, WebhookResult,
};
pub use heartbeats::ChannelConversation;
pub use journal_readers::{EntryMark, JournalRange, JournalReader, MAX_EXTRACTION_TRIES};
pub use message_outcomes::MessageOutcome;
pub use model::{
    Acceptance, Claim, ClassSlots, Completion, CompletionResult, DeadLetter, Delivery,
    DeliveryView, EffectFuture, EntryView, FreeSlots, InboxMessage, InvalidPoolName, LoadedSession,
    MessageStatus, NewDelivery, NewMessage, PendingApproval, PendingEvent, RenewalResult,
    RenewedLease, RunView, RunnerPool, SendResult, SessionOwner, SessionView, StepEffects,
    StepSignals, StepWrite, SweepCounts, TenantCounts, TenantSlots, TurnClass, TurnOutcome,
};
pub use protocol::batch::MessageWithSettings;
pub use protocol::behaviors::{Behaviors, WorkSession, store_behavior, store_title, work_sessions};
pub use protocol::branch::{BranchResult, NewBranch};
pub use protocol::claim::NextReady;
pub use protocol::held_state::{HeldItem, HeldKind, LossReason, LostItem};
pub use protocol::import::ImportedEntry;
pub use protocol::overdue::OverdueResult;
pub use protocol::pause::{CancelResult, PauseResult, ResumeResult};
pub use protocol::rollback::{
    LockedStep, NewStep, StepId, StepRestoration, lock_last_step, restore_step, run_message,
    step_entries, step_input, store_step,
};
pub use protocol::sweep::{MAX_ATTEMPTS, SUSPECT_ATTEMPTS};
pub use protocol::workspaces::{WorkspaceBinding, bind_workspace};
pub use queues::mesh::{MeshCounts, WaitingSession};
pub use queues::runner_pools::{PoolGauges, RunnerPools, TenantPool};
pub use queues::self_improvements::{DueSelfImprovement, SelfImprovementCandidate};
pub use queues::waiting::WaitGroup;
pub use queues::{Gauges, Queues, ShareChanges, TenantShare};
pub use sessions::{CLAIM_LEASE, HOLDER_WAIT, Sessions};
pub use settings::{KeyChanges, Preferences, SessionChanges, Settings};
pub use subagents::chains::{CHAIN_EVENT, ChainRun, NewChainRun};
pub use subagents::family::{FamilyEvent, FamilyResult};
pub use subagents::{
    AnnouncementResult, ChainPosition, Cleanup, NewSubagent, SUBAGENT_EVENT, Subagent,
    SubagentAccess, SubagentFilter, SubagentOutcome, Subagents,
};
pub use summary::{NewSummary, SummaryResult};
pub use system_events::{MAX_EVENT_CHARS, MAX_PENDING_EVENTS, NewSystemEvent};
pub use tool_calls::{ToolCallState, ToolCallView};
pub use upkeep::{
    Upkeep,
    archive::Archive,
    partial::Partial,
    prune::{EPHEMERAL_LABEL, PruneCounts},
    retention::{Retention, RetentionDays},
};
pub use usage::{
    Charge, CommandsSpent, DirectRequest, ExportLine, Spending, UsageGroup, UsageLevels, UsageLine,
    UsageRecords, UsageSum, WriteCost,
};
pub use view::activity::{Activity, ActivityFilter, Doing, InboxCounts};
pub use view::responses::{RemovedResponse, Responses};
pub use view::runs::{OpenRun, RunFilter};
pub use view::search::{SearchCursor, TextHit, TextHits, TextSearch};
pub use view::{ListCursor, SessionCursor, SessionFilter, ShownState, Views};
