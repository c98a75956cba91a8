//! `holdfast routing explain`: where a message would go, and what decides it.

use clap::Args;
use holdfast_proto::gateway::v1::{ExplainRequest, ListRulesRequest, Rule};
use serde_json::json;

use super::{model_route, rules};
use crate::{client::Client, error::Error, screen::Screen};

const COLUMNS: [&str; 7] =
    ["agent", "session_key", "main_session_key", "matched_by", "rule", "by_model", "also"];

#[derive(Debug, Args)]
pub struct Explain {
    /// Text of the message
    #[arg(default_value = "", hide_default_value = true, conflicts_with = "named_text")]
    text: String,
    /// Text of the message, as an option
    #[arg(
        id = "named_text",
        long = "text",
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    named_text: String,
    /// Channel of the message
    #[arg(long)]
    channel: String,
    /// Name of the channel account
    #[arg(long, default_value = "default")]
    account: String,
    /// Kind of the peer: direct, group or channel
    #[arg(long, default_value = "direct")]
    peer_kind: String,
    /// The channel's id of the person or group [default: the sender]
    #[arg(long, default_value = "", hide_default_value = true)]
    peer: String,
    /// Kind of the peer's parent
    #[arg(long, default_value = "", hide_default_value = true)]
    parent_kind: String,
    /// The channel's id of the peer's parent
    #[arg(long, default_value = "", hide_default_value = true)]
    parent: String,
    /// The channel's id of the server (guild) that contains the group
    #[arg(long, default_value = "", hide_default_value = true)]
    guild: String,
    /// The channel's id of the team that contains the group
    #[arg(long, default_value = "", hide_default_value = true)]
    team: String,
    /// The channel's id of the sender [default: the peer]
    #[arg(long, visible_alias = "user")]
    sender: Option<String>,
    /// The channel's id of the thread or topic
    #[arg(long, default_value = "", hide_default_value = true)]
    thread: String,
}

impl Explain {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        let sender = self.sender.unwrap_or_else(|| self.peer.clone());
        let peer = if self.peer.is_empty() { sender.clone() } else { self.peer };
        if peer.is_empty() {
            return Err(Error::Usage("say who writes: --user or --peer, by its id".to_owned()));
        }
        let request = client.request(ExplainRequest {
            channel: self.channel,
            account: self.account,
            peer_kind: self.peer_kind,
            sender_id: sender,
            peer_id: peer,
            parent_peer_kind: self.parent_kind,
            parent_peer_id: self.parent,
            guild: self.guild,
            team: self.team,
            text: if self.text.is_empty() { self.named_text } else { self.text },
            thread: self.thread,
        });
        let told = client.answer(client.routing().explain(request).await)?;
        let rule = matched_rule(client, &told.matched_by).await?;
        screen.one(
            &COLUMNS,
            &json!({
                "agent": told.agent,
                "session_key": told.session_key,
                "main_session_key": told.main_session_key,
                "matched_by": told.matched_by,
                "rule": rule.as_ref().map(rules::view),
                "by_model": told.by_model.as_ref().map(model_route),
                "also": told.also,
            }),
        )
    }
}

/// Returns the rule that decided, if one did.
async fn matched_rule(client: &Client, matched_by: &str) -> Result<Option<Rule>, Error> {
    let Some(place) = matched_by.strip_prefix("rule.").and_then(|place| place.parse().ok()) else {
        return Ok(None);
    };
    let request = client.request(ListRulesRequest {});
    let listed = client.answer(client.routing().list_rules(request).await)?;
    let at: usize = place;
    Ok(at.checked_sub(1).and_then(|at| listed.rules.into_iter().nth(at)))
}
