//! Decision whether a call needs an approval, from its tool and the policy.

use holdfast_agent::{
    is_allowed,
    policy::{Decision, Place},
};
use holdfast_session::subject_hash;
use holdfast_tools::{Approval, ToolError};
use holdfast_types::ToolCall;
use serde_json::Value;
use tokio::time::{Duration, timeout};

use super::{remembered, request};
use crate::{agents::Brief, error::Error, turn::Turn};

/// Time limit for a tool to decide whether a call needs an approval.
const PATIENCE: Duration = Duration::from_secs(30);

/// Limit on the text that is approved, in bytes: nobody can check a longer one.
const MOST_SUBJECT: usize = 64 * 1024;

pub(super) enum Judged {
    Free,
    Wanted(Wanted),
    /// The call may not be made; the text is for the model.
    Refused(String),
}

pub(super) struct Wanted {
    pub(super) tool: String,
    /// Exact text of what is approved.
    pub(super) subject: String,
    /// The subject in one line.
    pub(super) summary: String,
    /// Pattern that "always" would allow.
    pub(super) pattern: Option<String>,
}

impl Turn<'_> {
    /// Decides whether a call needs an approval and whether it has one.
    pub(super) async fn judged(&self, brief: &Brief, call: &ToolCall) -> Result<Judged, Error> {
        let Some(known) = self.tools.known(&call.tool) else { return Ok(Judged::Free) };
        let wanted = match self.said(brief, call, known).await? {
            Approval::Never => return Ok(Judged::Free),
            Approval::Deny(why) => return Ok(Judged::Refused(why)),
            Approval::Ask { subject, .. } if subject.len() > MOST_SUBJECT => {
                return Ok(Judged::Refused(request::too_long(subject.len(), MOST_SUBJECT)));
            }
            Approval::Ask { subject, summary, pattern } => Wanted {
                tool: known.to_owned(),
                subject,
                summary: request::line(&summary),
                pattern: pattern.filter(|pattern| pattern.len() <= request::MOST_PATTERN),
            },
        };
        if is_allowed(self.journal.entries(), &call.id) {
            let (claim, step) = (&self.hold.claim, self.step());
            let approved = self.worker.sessions.approved(claim, self.run, step, &call.id).await?;
            let same = approved.as_deref() == Some(subject_hash(&wanted.subject).as_slice());
            return Ok(match same {
                true => Judged::Free,
                false => Judged::Refused(request::CHANGED.to_owned()),
            });
        }
        Ok(match self.is_remembered(brief, call, &wanted).await? {
            true => Judged::Free,
            false => Judged::Wanted(wanted),
        })
    }

    /// Returns the stricter of the tool's own requirement and the policy's.
    async fn said(&self, brief: &Brief, call: &ToolCall, known: &str) -> Result<Approval, Error> {
        let registry = self.tools.registry();
        let context = self.context(brief, call);
        let asked = registry.approval(&context, &call.tool, &call.input);
        let said = match timeout(PATIENCE, asked).await {
            Ok(Ok(said)) => said,
            // The call itself fails in the same way and reports the error.
            Ok(Err(ToolError::Tell(_))) => return Ok(Approval::Never),
            Ok(Err(ToolError::Broken(source))) => {
                return Err(Error::Tool { name: known.to_owned(), source });
            }
            Err(_) => {
                return Ok(Approval::Deny(
                    "whether this call may be made could not be found out in time: try again"
                        .to_owned(),
                ));
            }
        };
        // Tools that run commands ask the policy themselves, with more detail. Email needs an
        // approval to be sent, not to be drafted.
        if said != Approval::Never || matches!(known, "exec" | "process" | "email") {
            return Ok(said);
        }
        let Ok(input) = serde_json::from_str::<Value>(&call.input) else { return Ok(said) };
        Ok(match self.decide(brief, call) {
            Decision::Allow => Approval::Never,
            Decision::Deny { layer: Place::Action | Place::Exec, rule } => {
                Approval::Deny(format!("not done: {rule}"))
            }
            // The call itself reports that the tool is not available.
            Decision::Deny { .. } => Approval::Never,
            Decision::NeedApproval { reason } => Approval::Ask {
                subject: format!("{known} {input}"),
                summary: request::of_input(known, &input, reason),
                pattern: None,
            },
        })
    }

    /// Whether an "always" rule covers the call. Records the use of the rule.
    async fn is_remembered(
        &self,
        brief: &Brief,
        call: &ToolCall,
        wanted: &Wanted,
    ) -> Result<bool, Error> {
        let (tenant, sessions) = (self.hold.claim.tenant, &self.worker.sessions);
        let rules = sessions.approval_rules(tenant, Some(brief.agent), Some(&wanted.tool)).await?;
        if rules.is_empty() {
            return Ok(false);
        }
        let input = serde_json::from_str(&call.input).unwrap_or(Value::Null);
        let wanted_call = remembered::Wanted {
            tool: &wanted.tool,
            input: &input,
            subject: &wanted.subject,
            pattern: wanted.pattern.as_deref(),
        };
        let Some(used) = remembered::covered(&wanted_call, &rules) else { return Ok(false) };
        sessions.use_approval_rules(tenant, &used, &wanted.summary).await?;
        Ok(true)
    }
}
