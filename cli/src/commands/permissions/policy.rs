//! `holdfast policy`.

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{CheckPolicyRequest, GetPolicyRequest, Policy, PutPolicyRequest};
use serde_json::{Value, json};

use super::super::option_values;
use crate::{client::Client, error::Error, screen::Screen, view::time};

#[derive(Debug, Subcommand)]
pub enum Policies {
    /// Show the tool policy of an agent or the tenant
    Get {
        #[command(flatten)]
        of: PolicyOwner,
    },
    /// Replace the tool policy of an agent or the tenant
    Put {
        #[command(flatten)]
        of: PolicyOwner,
        /// The policy as JSON: `@file`, `-` for stdin, or the text itself
        document: String,
        /// Version on which the change is based, as `get` shows it; refused if a newer one exists
        #[arg(long)]
        base: Option<i64>,
    },
    /// Check a policy for mistakes without storing it
    Check {
        #[command(flatten)]
        of: PolicyOwner,
        /// The policy as JSON: `@file`, `-` for stdin, or the text itself
        document: String,
    },
}

/// The agent whose policy is meant
#[derive(Debug, Args)]
pub struct PolicyOwner {
    /// Name or id of the agent [default: the tenant's own policy, which applies to all its agents]
    #[arg(long, default_value = "", hide_default_value = true)]
    agent: String,
}

impl Policies {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::Get { of } => {
                let request = client.request(GetPolicyRequest { agent: of.agent });
                let found = client.answer(client.policies().get_policy(request).await)?.policy;
                let found = found.unwrap_or_default();
                if screen.is_json() {
                    return screen.one(&[], &view(&found)?);
                }
                screen.note(&format!("version {}", found.version))?;
                screen.print(&format!("{:#}\n", document(&found)?))
            }
            Self::Put { of, document, base } => {
                let document = option_values::json(&document)?.to_string();
                let request = PutPolicyRequest { agent: of.agent, document, base_version: base };
                let request = client.request(request);
                let put = client.answer(client.policies().put_policy(request).await)?;
                let policy = put.policy.unwrap_or_default();
                screen.warn(&put.warnings)?;
                let version = policy.version;
                let thing = json!({"version": version, "warnings": put.warnings});
                screen.done(&format!("stored as version {version}"), &thing)
            }
            Self::Check { of, document } => {
                let document = option_values::json(&document)?.to_string();
                let request = client.request(CheckPolicyRequest { agent: of.agent, document });
                let checked = client.answer(client.policies().check_policy(request).await)?;
                screen.warn(&checked.warnings)?;
                let sentence = match checked.warnings.len() {
                    0 => "it can be stored",
                    _ => "it can be stored, and says what was probably not meant",
                };
                screen.done(sentence, &json!({"warnings": checked.warnings}))
            }
        }
    }
}

fn view(policy: &Policy) -> Result<Value, Error> {
    Ok(json!({
        "version": policy.version,
        "updated_at": time(policy.updated_at.as_ref()),
        "policy": document(policy)?,
    }))
}

fn document(policy: &Policy) -> Result<Value, Error> {
    option_values::json(&policy.document)
}
