//! `holdfast approvals`.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    Approval, ApprovalRule, Decision, ForgetApprovalRuleRequest, GetApprovalRequest,
    ListApprovalRulesRequest, ListApprovalsRequest, ResolveApprovalRequest,
};
use serde_json::{Value, json};

use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 6] = ["slug", "state", "agent", "tool", "summary", "expires_at"];
const RULE_COLUMNS: [&str; 5] = ["id", "agent", "tool", "pattern", "last_used_at"];

#[derive(Debug, Subcommand)]
pub enum Approvals {
    /// List approvals, pending and decided, newest first
    List {
        /// Show only approvals in this state
        #[arg(long, default_value = "", hide_default_value = true,
              value_parser = ["", "pending", "allowed_once", "allowed_always", "denied", "expired"],
              hide_possible_values = true)]
        state: String,
        /// Show only approvals of this session
        #[arg(long, default_value = "", hide_default_value = true)]
        session: String,
        /// Maximum number of approvals to list
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// Show one approval with the complete call
    Show {
        /// Id of the approval, or its last eight characters
        approval: String,
    },
    /// Allow a tool call that waits for approval
    Allow {
        /// Id of the approval, or its last eight characters
        approval: String,
        /// Also allow similar calls from now on, without approval
        #[arg(long)]
        always: bool,
    },
    /// Deny a tool call that waits for approval
    Deny {
        /// Id of the approval, or its last eight characters
        approval: String,
        /// Why, in words that the model reads as the result of its call
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
    },
    /// List the rules that `--always` created
    Rules {
        /// Show only rules of this agent
        #[arg(long, default_value = "", hide_default_value = true)]
        agent: String,
    },
    /// Delete a rule that `--always` created
    Forget {
        /// Id of the rule, as `rules` shows it
        rule: String,
    },
}

impl Approvals {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List { state, session, limit } => {
                let request = ListApprovalsRequest {
                    state,
                    session_id: session,
                    limit,
                    ..Default::default()
                };
                let request = client.request(request);
                let found = client.answer(client.approvals().list_approvals(request).await)?;
                screen.list(&COLUMNS, found.approvals.iter().map(view).collect())
            }
            Self::Show { approval } => {
                let request = client.request(GetApprovalRequest { approval });
                let found = client.answer(client.approvals().get_approval(request).await)?;
                screen.one(&COLUMNS, &view(&found.approval.unwrap_or_default()))
            }
            Self::Allow { approval, always } => {
                let decision = if always { Decision::AllowAlways } else { Decision::AllowOnce };
                resolve(client, screen, (approval, decision, String::new())).await
            }
            Self::Deny { approval, reason } => {
                resolve(client, screen, (approval, Decision::Deny, reason)).await
            }
            Self::Rules { agent } => {
                let request = client.request(ListApprovalRulesRequest { agent });
                let found = client.answer(client.approvals().list_approval_rules(request).await)?;
                screen.list(&RULE_COLUMNS, found.rules.iter().map(rule).collect())
            }
            Self::Forget { rule } => {
                let request = client.request(ForgetApprovalRuleRequest { id: rule.clone() });
                client.answer(client.approvals().forget_approval_rule(request).await)?;
                screen.done("forgotten", &json!({"forgotten": rule}))
            }
        }
    }
}

async fn resolve(
    client: &Client,
    screen: &Screen,
    (approval, decision, reason): (String, Decision, String),
) -> Result<(), Error> {
    let request = ResolveApprovalRequest { approval, decision: decision.into(), reason };
    let request = client.request(request);
    let resolved = client.answer(client.approvals().resolve_approval(request).await)?;
    let approval = resolved.approval.unwrap_or_default();
    let state = approval.state.replace('_', " ");
    let sentence = match resolved.duplicate {
        true => format!("it was {state} already: {}", approval.summary),
        false => format!("{state}: {}", approval.summary),
    };
    screen.done(&sentence, &view(&approval))
}

fn view(approval: &Approval) -> Value {
    json!({
        "id": approval.id,
        "slug": approval.slug,
        "state": approval.state,
        "agent": approval.agent,
        "session_id": approval.session_id,
        "run_id": approval.run_id,
        "tool": approval.tool,
        "summary": approval.summary,
        "subject": approval.subject,
        "pattern": approval.pattern,
        "decided_by": approval.decided_by,
        "reason": approval.reason,
        "asked_at": time(approval.asked_at.as_ref()),
        "expires_at": time(approval.expires_at.as_ref()),
        "decided_at": time(approval.decided_at.as_ref()),
    })
}

fn rule(rule: &ApprovalRule) -> Value {
    json!({
        "id": rule.id,
        "agent": rule.agent,
        "tool": rule.tool,
        "pattern": rule.pattern,
        "summary": rule.summary,
        "created_by": rule.created_by,
        "created_at": time(rule.created_at.as_ref()),
        "last_used_at": time(rule.last_used_at.as_ref()),
        "last_used": rule.last_used,
    })
}
