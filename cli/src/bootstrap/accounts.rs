//! Channel accounts whose tokens are in the environment.

use anyhow::Context as _;
use holdfast_directory::{Actor, Directory, NewAccount, channel};
use holdfast_types::TenantId;
use serde_json::{Value, json};

/// Name of the accounts; another account of the tenant is never changed.
const NAME: &str = "environment";

/// Channels, with the variables of the bot's token and of the people who may write to it.
const VARIABLES: [(&str, &str, &str); 2] = [
    (channel::TELEGRAM, "TELEGRAM_BOT_TOKEN", "TELEGRAM_ALLOW"),
    (channel::DISCORD, "DISCORD_BOT_TOKEN", "DISCORD_ALLOW"),
];

/// Creates or changes the accounts whose tokens `read` finds. An account whose variable was removed
/// stays: it is disabled or removed by command.
///
/// # Errors
///
/// If a token cannot be one of its platform, or the database does not answer.
pub(super) async fn set_up(
    directory: &Directory,
    tenant: TenantId,
    read: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<()> {
    for (channel, token_variable, allow_variable) in VARIABLES {
        let read = |name| read(name).filter(|value| !value.is_empty());
        let Some(token) = read(token_variable) else { continue };
        let accounts = directory.accounts().list(tenant, Some(channel)).await?;
        let found = accounts.into_iter().find(|account| account.name == NAME);
        let mut settings =
            found.as_ref().map_or_else(|| json!({"allow": []}), |found| found.settings.clone());
        if let Some(allow) = read(allow_variable) {
            settings["allow"] = senders(&allow);
        }
        let account = NewAccount {
            channel: channel.to_owned(),
            name: NAME.to_owned(),
            enabled: found.as_ref().is_none_or(|found| found.enabled),
            settings,
            secrets: Some(json!({"token": token})),
        };
        let done = match found {
            Some(found) => {
                directory.accounts().update(tenant, Actor::Operator, found.id, account).await
            }
            None => directory.accounts().create(tenant, Actor::Operator, account).await,
        };
        done.with_context(|| format!("the channel account of {token_variable} cannot be set up"))?;
    }
    Ok(())
}

/// A comma-separated list of senders.
fn senders(list: &str) -> Value {
    list.split(',').map(str::trim).filter(|sender| !sender.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_are_separated_by_commas() {
        assert_eq!(senders(" @anna, 42,,"), json!(["@anna", "42"]));
        assert_eq!(senders(" "), json!([]));
    }
}
