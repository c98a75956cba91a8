//! State that this process holds for conversations: background commands, browser windows, MCP
//! servers that run as processes. It is recorded in the database, so that the next turn of such a
//! conversation is claimed by this runner, and told if the state was lost.
//!
//! What is held is asked of those that hold it: after each round of calls that may begin or end
//! something, and at each renewal. The database is written only when it has changed.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::join_all;
use holdfast_browser::Browser;
use holdfast_sandbox::Owner;
use holdfast_session::{HeldItem, HeldKind, Sessions};
use holdfast_types::{AgentId, RunnerId, SessionId, TenantId};
use tracing::{debug, info};

use crate::tools::{mcp::Mcp, shell::Shell};

#[derive(Debug)]
pub(crate) struct HeldState {
    sessions: Sessions,
    runner: RunnerId,
    mcp: Arc<Mcp>,
    shell: Option<Shell>,
    windows: Option<Browser>,
    /// What is recorded for each session, and its agent.
    recorded: Mutex<HashMap<Owner, (AgentId, BTreeSet<HeldItem>)>>,
}

impl HeldState {
    pub(crate) fn new(
        (sessions, runner): (Sessions, RunnerId),
        mcp: Arc<Mcp>,
        shell: Option<Shell>,
        windows: Option<Browser>,
    ) -> Self {
        Self { sessions, runner, mcp, shell, windows, recorded: Mutex::default() }
    }

    fn recorded(&self) -> MutexGuard<'_, HashMap<Owner, (AgentId, BTreeSet<HeldItem>)>> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this process holds for a session now.
    async fn items(&self, owner: Owner) -> BTreeSet<HeldItem> {
        let mut items = BTreeSet::new();
        if let Some(shell) = &self.shell {
            items.extend(shell.running_commands(owner).into_iter().map(|(id, title)| HeldItem {
                kind: HeldKind::Command,
                name: id.to_string(),
                title,
            }));
        }
        if let Some(windows) = &self.windows
            && windows.has_window(owner.session.as_uuid()).await
        {
            items.insert(unnamed(HeldKind::Browser, "window"));
        }
        let servers = self.mcp.processes_of(owner.tenant, owner.session).into_iter();
        items.extend(servers.map(|name| unnamed(HeldKind::McpServer, &name)));
        items
    }

    /// Ends what another runner has told to be lost.
    async fn end(&self, (tenant, session): (TenantId, SessionId), kind: HeldKind, name: &str) {
        let owner = Owner { tenant, session };
        let is_held = self.recorded().get_mut(&owner).is_some_and(|(_, items)| {
            let before = items.len();
            items.retain(|item| item.kind != kind || item.name != name);
            items.len() < before
        });
        if !is_held {
            return;
        }
        info!(tenant.id = %tenant, session.id = %session, "ending what another runner told lost");
        match (kind, &self.shell, &self.windows) {
            (HeldKind::Command, Some(shell), _) => shell.stop_lost(owner, name).await,
            (HeldKind::Browser, _, Some(windows)) => windows.close(session.as_uuid()).await,
            (HeldKind::McpServer, ..) => self.mcp.leave_process(tenant, session, name).await,
            (HeldKind::Command | HeldKind::Browser, ..) => {}
        }
    }

    /// Notes that this runner is recorded as the holder of a session. If it holds nothing, the next
    /// renewal corrects that.
    pub(crate) fn note_holder(&self, owner: Owner, agent: AgentId) {
        self.recorded().entry(owner).or_insert_with(|| (agent, BTreeSet::new()));
    }

    /// Records what this process holds for a session, if that has changed. A failure is made up for
    /// by the next renewal.
    pub(crate) async fn record(&self, owner: Owner, agent: AgentId) {
        let items = self.items(owner).await;
        let is_known = match self.recorded().get(&owner) {
            // Nothing is recorded, and yet this runner may be the holder.
            Some((_, recorded)) => !items.is_empty() && *recorded == items,
            None => items.is_empty(),
        };
        if is_known {
            return;
        }
        let written = self.write(owner, agent, &items).await;
        let mut recorded = self.recorded();
        match written {
            Ok(()) if items.is_empty() => drop(recorded.remove(&owner)),
            Ok(()) => drop(recorded.insert(owner, (agent, items))),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                debug!(error, "what is held for a session was not recorded");
                recorded.entry(owner).or_insert_with(|| (agent, BTreeSet::new()));
            }
        }
    }

    async fn write(
        &self,
        owner: Owner,
        agent: AgentId,
        items: &BTreeSet<HeldItem>,
    ) -> Result<(), holdfast_session::Error> {
        if self.recorded().is_empty() {
            // It was not renewed while it held nothing.
            self.sessions.renew_runner(self.runner).await?;
        }
        let items: Vec<HeldItem> = items.iter().cloned().collect();
        let whose = (owner.tenant, owner.session);
        self.sessions.record_held(whose, agent, self.runner, &items).await
    }

    /// Renews this runner if it holds anything or has a pool, ends what others have told to be lost, and
    /// records what has ended.
    pub(crate) async fn renew(&self) -> Result<(), holdfast_session::Error> {
        let count = self.recorded().len();
        metrics::gauge!("holdfast_runner_sessions_with_state")
            .set(f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
        if count == 0 && !self.sessions.is_of_runner_pool() {
            return Ok(());
        }
        let lost = self.sessions.renew_runner(self.runner).await?;
        let ending = lost
            .iter()
            .map(|(tenant, session, kind, name)| self.end((*tenant, *session), *kind, name));
        join_all(ending).await;
        let held: Vec<(Owner, AgentId)> =
            self.recorded().iter().map(|(owner, (agent, _))| (*owner, *agent)).collect();
        for (owner, agent) in held {
            self.record(owner, agent).await;
        }
        Ok(())
    }
}

fn unnamed(kind: HeldKind, name: &str) -> HeldItem {
    HeldItem { kind, name: name.to_owned(), title: String::new() }
}

/// Whether a call of this tool may begin or end something that this process holds.
pub(crate) fn may_change_held(tool: &str) -> bool {
    matches!(tool, "exec" | "process" | "browser") || tool.starts_with("mcp_")
}
