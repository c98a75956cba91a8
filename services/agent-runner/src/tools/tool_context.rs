//! Context of a tool call: the state of its turn that tools may read, and the effects that they
//! leave for the turn.
//!
//! The context is made for each call and travels with it, so that tools need neither the turn nor
//! the leases of the process. The turn takes the effects after the call has ended, also when it has
//! failed, and stores, charges or shows them with the call's result.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use holdfast_agent::{bootstrap::Audience, file_view::FileView};
use holdfast_session::NewDelivery;
use holdfast_skills::SkillSet;
use holdfast_tools::{Call, HostContext};
use holdfast_types::{AgentId, BehaviorRole, ConnectionKind, Directives, SessionKind, Target};
use holdfast_workspace::ChangeStep;

use crate::{
    agents::skills::Secrets,
    tools::{
        files::FileScope, memory_subject::MemorySubject, schedules::Requester,
        shell::CommandPolicy, tool_usage::ToolUsage,
    },
};

/// State of the turn when a call is made.
#[derive(Debug)]
pub(crate) struct ToolContext {
    pub(crate) kind: SessionKind,
    pub(crate) audience: Audience,
    /// Session key.
    pub(crate) key: String,
    /// Target of the conversation, if it is on a channel.
    pub(crate) target: Option<Target>,
    /// The platform's id of the message that the turn is about.
    pub(crate) platform_message: Option<String>,
    /// Model of the turn.
    pub(crate) model: String,
    pub(crate) command_policy: CommandPolicy,
    pub(crate) reply_settings: Directives,
    /// Names and kinds of the connections that may be used.
    pub(crate) connections: Vec<(String, ConnectionKind)>,
    /// Subject of the memory tools.
    pub(crate) memory_subject: MemorySubject,
    /// Files that the conversation sees.
    pub(crate) file_view: FileView,
    /// Files that the tools may access, of those that the conversation sees.
    pub(crate) scope: FileScope,
    /// The step only reads files: what a command writes is not kept.
    pub(crate) is_read_only: bool,
    pub(crate) skills: Arc<SkillSet>,
    /// Secrets for the commands of the agent's skills.
    pub(crate) secrets: Arc<Secrets>,
    /// Whether the conversation has read text from outside.
    pub(crate) has_read_outside_text: bool,
    /// The call is part of a memory flush, which asks nobody.
    pub(crate) is_flushing: bool,
    /// The copy of the requester's workspace that a subagent works on, if it has one.
    pub(crate) workspace_branch: Option<AgentId>,
    /// Folder of the session's local workspace, in which commands begin.
    pub(crate) workdir: Option<String>,
    /// Lists that narrow the turn's tools besides the agent's; a subagent inherits them.
    pub(crate) narrowed: Vec<Vec<String>>,
    /// Requester of jobs and reminders.
    pub(crate) requester: Requester,
    /// Step of the behaviour that makes the call; `None` if the agent has no behaviours.
    pub(crate) step: Option<BehaviorStep>,
    pub(crate) effects: Mutex<CallEffects>,
}

/// Step of a behaviour.
#[derive(Debug, Clone)]
pub(crate) struct BehaviorStep {
    /// Name of the behaviour with its parameters.
    pub(crate) behavior: String,
    pub(crate) step: u32,
    pub(crate) role: BehaviorRole,
    /// Code of the current todo.
    pub(crate) todo: Option<String>,
}

/// What a call leaves for its turn.
#[derive(Debug, Default)]
pub(crate) struct CallEffects {
    /// Messages to store with the call's result.
    pub(crate) deliveries: Vec<NewDelivery>,
    /// Usage to charge with the call's result.
    pub(crate) usage: Vec<ToolUsage>,
    /// Canvas surfaces that changed.
    pub(crate) changed_surfaces: Vec<String>,
    /// The call read text from outside that its result does not fence.
    pub(crate) has_read_outside_text: bool,
    /// A file of the agent's prompt changed.
    pub(crate) is_snapshot_outdated: bool,
}

impl ToolContext {
    /// Context of a call that a turn of this runner makes.
    pub(crate) fn of(call: &Call) -> anyhow::Result<&Self> {
        call.host.get().context("the call was not made by a turn of this runner")
    }

    /// Step that makes the call, for the history of files.
    pub(crate) fn change_step(&self, call: &Call) -> Option<ChangeStep> {
        self.step.as_ref().map(|step| ChangeStep {
            session: call.session,
            behavior: step.behavior.clone(),
            step: step.step,
            todo: step.todo.clone(),
        })
    }

    /// Whether a message to another conversation may repeat text from outside.
    pub(crate) fn repeats_outside_text(&self) -> bool {
        self.has_read_outside_text || self.kind == SessionKind::Subagent
    }

    /// Takes the effects of a call that has ended.
    pub(crate) fn take_effects(host: &HostContext) -> CallEffects {
        host.get::<Self>()
            .map(|context| std::mem::take(&mut *context.effects()))
            .unwrap_or_default()
    }

    /// Enqueues messages.
    pub(crate) fn enqueue(&self, deliveries: impl IntoIterator<Item = NewDelivery>) {
        self.effects().deliveries.extend(deliveries);
    }

    pub(crate) fn charge(&self, usage: ToolUsage) {
        self.effects().usage.push(usage);
    }

    pub(crate) fn redraw(&self, surfaces: impl IntoIterator<Item = String>) {
        self.effects().changed_surfaces.extend(surfaces);
    }

    /// Records that a file of the agent's prompt may have changed.
    pub(crate) fn invalidate_snapshot(&self) {
        self.effects().is_snapshot_outdated = true;
    }

    /// Records that the call has read text from outside.
    pub(crate) fn note_outside_text(&self) {
        self.effects().has_read_outside_text = true;
    }

    /// Whether the call has read text from outside.
    pub(crate) fn has_noted_outside_text(&self) -> bool {
        self.effects().has_read_outside_text
    }

    fn effects(&self) -> MutexGuard<'_, CallEffects> {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
