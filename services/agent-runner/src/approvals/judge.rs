//! Which calls need a person's word: by what their tool says, and by the policy.

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

/// How long a tool may think about whether a person must be asked.
const PATIENCE: Duration = Duration::from_secs(30);

/// The most bytes of what is approved: what nobody could read, nobody should allow.
const MOST_SUBJECT: usize = 64 * 1024;

/// What is decided of a call before it is made.
pub(super) enum Judged {
    /// It may be made.
    Free,
    /// A person is to be asked first.
    Wanted(Wanted),
    /// It may not, and the model is told so.
    Refused(String),
}

/// What a person is asked.
pub(super) struct Wanted {
    /// The tool's own name.
    pub(super) tool: String,
    /// Exactly what is approved.
    pub(super) subject: String,
    /// The same in a line.
    pub(super) summary: String,
    /// What "always" would allow.
    pub(super) pattern: Option<String>,
}

impl Turn<'_> {
    /// Judges a call: whether it needs a word, and whether it has it.
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

    /// What the tool says of the call, and the policy; the stricter of both.
    async fn said(&self, brief: &Brief, call: &ToolCall, known: &str) -> Result<Approval, Error> {
        let registry = self.tools.registry();
        let context = self.context(brief, call);
        let asked = registry.approval(&context, &call.tool, &call.input);
        let said = match timeout(PATIENCE, asked).await {
            Ok(Ok(said)) => said,
            // The call itself fails in the same way, and tells.
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
        // What runs commands asks the policy itself, and knows more of them; mail is asked about
        // when it is sent, and not when it is drafted.
        if said != Approval::Never || matches!(known, "exec" | "process" | "email") {
            return Ok(said);
        }
        let Ok(input) = serde_json::from_str::<Value>(&call.input) else { return Ok(said) };
        Ok(match self.decide(brief, call) {
            Decision::Allow => Approval::Never,
            Decision::Deny { layer: Place::Action | Place::Exec, rule } => {
                Approval::Deny(format!("not done: {rule}"))
            }
            // Whose tool it is not is told when it is called.
            Decision::Deny { .. } => Approval::Never,
            Decision::NeedApproval { reason } => Approval::Ask {
                subject: format!("{known} {input}"),
                summary: request::of_input(known, &input, reason),
                pattern: None,
            },
        })
    }

    /// Whether "always" was said of calls like this one; then its use is noted.
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
