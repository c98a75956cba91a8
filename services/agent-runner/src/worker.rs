//! Worker: state that all turns of this process share.

use std::sync::Arc;

use holdfast_bus::Bus;
use holdfast_directory::Directory;
use holdfast_lock::{Locks, SessionLocks};
use holdfast_schedule::store::{JobSigner, Jobs};
use holdfast_session::Sessions;
use holdfast_types::RunnerId;
use holdfast_work::Work;
use holdfast_workspace::Workspaces;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    agents::{
        budget::BudgetStore, preferences::PreferenceCache, prompts::PromptCache,
        selections::SelectionCache, snapshots::Agents,
    },
    config::RunnerConfig,
    held_state::HeldState,
    leases::Leases,
    queues::{ExtractionQueue, SummaryQueue},
    tools::{
        mcp::Mcp, media_providers::MediaProviders, memory::Memory, policies::Policies,
        shell::SandboxDescription, tool_set::ToolSet,
    },
    upkeep::UpkeepDuty,
};

#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) id: RunnerId,
    pub(crate) config: RunnerConfig,
    pub(crate) sessions: Sessions,
    /// Time zones that users have set.
    pub(crate) preferences: PreferenceCache,
    pub(crate) directory: Directory,
    pub(crate) jobs: Jobs,
    /// Keys with which the messages of jobs are verified.
    pub(crate) job_signer: JobSigner,
    pub(crate) work: Work,
    pub(crate) agents: Agents,
    pub(crate) workspaces: Workspaces,
    pub(crate) policies: Policies,
    pub(crate) media_providers: Arc<MediaProviders>,
    pub(crate) bus: Bus,
    pub(crate) locks: SessionLocks,
    pub(crate) redis_locks: Locks,
    pub(crate) summaries: SummaryQueue,
    pub(crate) prompts: PromptCache,
    pub(crate) selections: SelectionCache,
    /// Sandbox of commands; `None` if there are none, or none is isolated.
    pub(crate) sandbox: Option<SandboxDescription>,
    /// `None` if no memory service is configured.
    pub(crate) memory: Option<Arc<Memory>>,
    pub(crate) extractions: ExtractionQueue,
    /// Tools of every agent; a turn may have more.
    pub(crate) tools: Arc<ToolSet>,
    pub(crate) mcp: Arc<Mcp>,
    /// What this process holds for sessions.
    pub(crate) held: HeldState,
    pub(crate) leases: Arc<Leases>,
    /// Whether this process sweeps, measures and prunes for the installation.
    pub(crate) upkeep: UpkeepDuty,
    /// Notified when sessions may be ready.
    pub(crate) wake: Notify,
    /// Notified when events may have been stored.
    pub(crate) events: Notify,
    /// Notified when a subagent may have ended.
    pub(crate) ended: Notify,
    /// Cancelled when turns must end after their current step.
    pub(crate) draining: CancellationToken,
    /// Cancelled when turns must end at once.
    pub(crate) giving_up: CancellationToken,
}

impl Worker {
    pub(crate) fn budgets(&self) -> BudgetStore<'_> {
        BudgetStore { sessions: &self.sessions, locks: self.agents.locks() }
    }
}
