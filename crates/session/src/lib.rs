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
//! | ingest | gateway | `ingest.rs` |
//! | ingest many, message outcomes, end overdue | scheduler | `batch.rs`, `ends.rs`, `overdue.rs` |
//! | claim, renew, release | agent-runner | `claim.rs` |
//! | load, append, complete | agent-runner | `load.rs`, `append.rs`, `complete.rs` |
//! | sweep, prune | agent-runner | `sweep.rs`, `prune.rs` |
//! | pause, resume, cancel | gateway | `hold.rs` |
//! | deliveries | channel-bridge | `deliver.rs` |
//! | events | agent-runner | `relay.rs` |
//! | views | gateway, tools | `view.rs` |
//! | memory extraction | agent-runner | `extraction.rs` |
//! | index of conversation turns | agent-runner | `turn_index.rs` |
//! | spending, usage | agent-runner, gateway | `spending.rs` |
//! | ask, resolve, settle | agent-runner, gateway | `approvals.rs` |
//! | dead letters, tenant shares, deletion | gateway | `care.rs` |
//!
//! ## What can go wrong
//!
//! A runner that was suspended for longer than its lease resumes as if it still owned the session.
//! Its next write finds another epoch under the row lock and fails with [`Error::Fenced`]. This
//! fence, not the lease's expiry, ensures that only one runner writes to a session.

mod append;
mod approvals;
mod arrivals;
mod batch;
mod beats;
mod canvas;
mod care;
mod chains;
mod claim;
mod complete;
mod deliver;
mod ends;
mod error;
mod extraction;
mod hold;
mod ingest;
mod load;
mod model;
mod overdue;
mod prune;
mod relay;
mod sessions;
mod settings;
mod spending;
mod subagents;
mod summary;
mod sweep;
mod system_events;
mod tails;
mod turn_index;
mod view;
mod zones;

pub use approvals::{
    Approval, ApprovalFilter, Ask, NewApproval, Resolved, Rule, Settled, WaitingRun, Word,
    subject_hash,
};
pub use arrivals::Arrival;
pub use batch::Opening;
pub use beats::{Place, Sending};
pub use canvas::{MOST_SURFACE, MOST_SURFACES, NewSurface, Surface};
pub use care::Gauges;
pub use chains::{CHAIN_ENDED, ChainRun, NewChainRun};
pub use claim::LEASE;
pub use deliver::{HANDOVER, SENDING};
pub use ends::End;
pub use error::Error;
pub use extraction::{MOST_TRIES, Mark, Stretch};
pub use hold::{Held, Resumed};
pub use model::{
    Accepted, Answer, Append, Appended, Awaited, Claim, Completed, Completion, Counts, DeadLetter,
    Delivery, DeliveryView, EntryView, Loaded, NewDelivery, NewMessage, Outcome, Renewed, RunView,
    Running, Sent, SessionView, Swept, Waiting,
};
pub use overdue::Overdue;
pub use prune::{EPHEMERAL, Pruned, Retention};
pub use relay::Event;
pub use sessions::Sessions;
pub use spending::{Charge, Spending, Spent, UsageLine};
pub use subagents::{
    ANNOUNCED, Announced, ChainPlace, Cleanup, Given, NewSubagent, Subagent, SubagentFilter,
    SubagentOutcome,
};
pub use summary::{NewSummary, Summarised};
pub use sweep::{ATTEMPTS, SUSPECT};
pub use system_events::{LONGEST_EVENT, MOST_EVENTS, NewSystemEvent};
pub use turn_index::{UnindexedEntries, UnindexedEntry};
pub use view::SessionFilter;
