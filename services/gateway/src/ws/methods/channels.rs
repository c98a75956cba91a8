//! `channels.*`: accounts on channels.

use holdfast_proto::gateway::v1::{self as pb, channels_server::Channels as _};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::{
        call::{Call, rpc},
        connection::now_ms,
        error::MethodError,
    },
    ADMIN, Method, READ, Reply, method,
};
use crate::control::accounts::Channels;

pub const METHODS: &[Method] = &[
    method!("channels.status", READ, channels, ["probe", "timeoutMs"]),
    method!("channels.start", ADMIN, start),
    method!("channels.stop", ADMIN, stop),
    method!("channels.logout", ADMIN, logout),
    method!("channels.pairing.list", READ, pairing),
];

async fn accounts(call: &Call, channel: String) -> Result<Vec<pb::Account>, MethodError> {
    let request = pb::ListAccountsRequest { channel };
    let handler = Channels(call.state().clone());
    Ok(rpc!(call, "Channels/ListAccounts", handler, list_accounts, request)?.accounts)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChannelParams {
    channel: Option<String>,
}

async fn channels(call: Call, params: ChannelParams) -> Reply {
    let listed = accounts(&call, params.channel.unwrap_or_default()).await?;
    let mut reply = json!({
        "ts": now_ms(),
        "channelOrder": [],
        "channelLabels": {},
        "channelMeta": [],
        "channels": {},
        "channelAccounts": {},
        "channelDefaultAccountId": {},
    });
    let mut order: Vec<&str> = Vec::new();
    for account in &listed {
        let (channel, name) = (account.channel.as_str(), account.name.as_str());
        let row = json!({
            "accountId": name,
            "name": name,
            "enabled": account.enabled,
            "configured": true,
            "linked": account.enabled,
            "running": account.enabled,
        });
        if !order.contains(&channel) {
            order.push(channel);
            reply["channelLabels"][channel] = channel.into();
            reply["channels"][channel] = json!({ "configured": true, "running": account.enabled, "enabled": account.enabled });
            reply["channelAccounts"][channel] = json!([]);
            reply["channelDefaultAccountId"][channel] = name.into();
            if let Value::Array(meta) = &mut reply["channelMeta"] {
                meta.push(json!({ "id": channel, "label": channel, "detailLabel": channel }));
            }
        }
        if let Value::Array(rows) = &mut reply["channelAccounts"][channel] {
            rows.push(row);
        }
    }
    reply["channelOrder"] = json!(order);
    Ok(reply)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AccountParams {
    channel: String,
    /// May be left out if the channel has one account.
    account_id: Option<String>,
}

/// Enables or disables an account. Its settings and secrets stay.
async fn set_enabled(
    call: &Call,
    params: AccountParams,
    enabled: bool,
) -> Result<pb::Account, MethodError> {
    let AccountParams { channel, account_id } = params;
    let mut known = accounts(call, channel.clone()).await?;
    if let Some(name) = &account_id {
        known.retain(|account| account.name == *name);
    }
    let shown: String = channel.chars().take(80).collect();
    let account = match known.as_slice() {
        [only] => only.clone(),
        [] => {
            return Err(MethodError::invalid(format!(
                "there is no such account on `{shown}`: `channels.status` has those there are"
            )));
        }
        several => {
            return Err(MethodError::invalid(format!(
                "`{shown}` has {} accounts: name one with `accountId`",
                several.len()
            )));
        }
    };
    let account = pb::Account { enabled, ..account };
    let request = pb::UpdateAccountRequest { account: Some(account), secrets: String::new() };
    let handler = Channels(call.state().clone());
    let updated = rpc!(call, "Channels/UpdateAccount", handler, update_account, request)?;
    Ok(updated.account.unwrap_or_default())
}

async fn start(call: Call, params: AccountParams) -> Reply {
    let account = set_enabled(&call, params, true).await?;
    Ok(json!({ "channel": account.channel, "accountId": account.name, "started": true }))
}

async fn stop(call: Call, params: AccountParams) -> Reply {
    let account = set_enabled(&call, params, false).await?;
    Ok(json!({ "channel": account.channel, "accountId": account.name, "stopped": true }))
}

/// The account receives and delivers nothing more. What it signs in with stays sealed, so that it can
/// be started again; `holdfast channels remove` deletes it.
async fn logout(call: Call, params: AccountParams) -> Reply {
    let account = set_enabled(&call, params, false).await?;
    Ok(json!({
        "channel": account.channel,
        "accountId": account.name,
        "loggedOut": true,
        "cleared": false,
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PairingParams {
    channel: Option<String>,
    account_id: Option<String>,
}

/// Accounts, and no requests: a stranger who writes is told their id, and is let in by the account's
/// settings.
async fn pairing(call: Call, params: PairingParams) -> Reply {
    let listed = accounts(&call, params.channel.unwrap_or_default()).await?;
    let is_wanted =
        |account: &&pb::Account| params.account_id.as_ref().is_none_or(|id| account.name == *id);
    let row = |account: &pb::Account| {
        json!({
            "channel": account.channel,
            "channelLabel": account.channel,
            "accountId": account.name,
            "accountLabel": account.name,
            "notifySupported": false,
        })
    };
    Ok(json!({
        "accounts": listed.iter().filter(is_wanted).map(row).collect::<Vec<_>>(),
        "requests": [],
        "commandOwnerConfigured": true,
        "limits": { "pendingPerAccount": 0, "ttlMs": 0 },
    }))
}
