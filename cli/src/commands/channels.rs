//! `holdfast channels`.

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{
    Account, CreateAccountRequest, DeleteAccountRequest, ListAccountsRequest, SendTextRequest,
    UpdateAccountRequest,
};
use serde_json::{Value, json};

use super::option_values;
use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 6] = ["id", "channel", "name", "enabled", "status", "created_at"];

/// Columns of `status`.
const STATUS_COLUMNS: [&str; 7] =
    ["id", "channel", "name", "status", "detail", "since", "checked_at"];

#[derive(Debug, Subcommand)]
pub enum Channels {
    /// List the channel accounts of the tenant
    List {
        /// Show only accounts of this channel
        #[arg(long, default_value = "", hide_default_value = true)]
        channel: String,
    },
    /// Show whether the platforms accept the accounts, and why not
    Status {
        /// Id of one account; without it all are shown
        #[arg(default_value = "", hide_default_value = true)]
        id: String,
    },
    /// Connect an account: a bot, or a webhook
    Add {
        /// The channel, such as telegram; docs/channels.md lists them
        channel: String,
        /// Name of the account; bindings without an account mean `default`
        #[arg(long, default_value = "default")]
        name: String,
        #[command(flatten)]
        content: Content,
    },
    /// Change an account; options that are not given stay unchanged
    Update {
        /// Id of the account, as `list` shows it
        id: String,
        /// New name of the account
        #[arg(long)]
        name: Option<String>,
        /// Whether the account accepts messages: true or false
        #[arg(long)]
        enabled: Option<bool>,
        #[command(flatten)]
        content: Content,
    },
    /// Send a text to an address on a channel, outside of any conversation
    Send(Send),
    /// Remove a channel account by its id
    Remove {
        /// Id of the account, as `list` shows it
        id: String,
    },
}

/// A text for an address
#[derive(Debug, Args)]
pub struct Send {
    /// The channel, such as telegram
    #[arg(long)]
    channel: String,
    /// Name of the account that sends it
    #[arg(long, default_value = "default")]
    account: String,
    /// The address: the platform's id of the chat, as `holdfast deliveries list` shows it
    #[arg(long)]
    to: String,
    /// The topic or thread within the chat
    #[arg(long, default_value = "", hide_default_value = true)]
    thread: String,
    /// The text, `@file`, or `-` for stdin
    #[arg(long)]
    text: String,
    /// Makes a repeated command the same: with the same value the text is sent once
    #[arg(long, default_value = "", hide_default_value = true)]
    request_id: String,
}

/// Settings and secrets of an account
#[derive(Debug, Args)]
pub struct Content {
    /// Settings as JSON, `@file`, or `-` for stdin; docs/channels.md lists the fields
    #[arg(long)]
    settings: Option<String>,
    /// Senders that may write, by the channel's ids, separated by commas; `*` for everybody
    #[arg(long, value_delimiter = ',')]
    allow: Option<Vec<String>>,
    /// Secrets as JSON, `@file`, or `-` for stdin
    #[arg(long)]
    secrets: Option<String>,
    /// The bot's token, in place of --secrets: `@file`, `-` for stdin, or the token itself
    #[arg(long, conflicts_with_all = ["secrets", "secret"])]
    token: Option<String>,
    /// The webhook's signing secret, in place of --secrets: `@file`, `-` for stdin, or itself
    #[arg(long, conflicts_with = "secrets")]
    secret: Option<String>,
}

impl Channels {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List { channel } => {
                let accounts = list(client, channel).await?;
                screen.list(&COLUMNS, accounts.iter().map(view).collect())
            }
            Self::Status { id } => {
                let accounts = list(client, String::new()).await?;
                let shown: Vec<Value> = accounts
                    .iter()
                    .filter(|account| id.is_empty() || account.id == id)
                    .map(view)
                    .collect();
                if shown.is_empty() && !id.is_empty() {
                    return Err(no_account(&id));
                }
                screen.list(&STATUS_COLUMNS, shown)
            }
            Self::Add { channel, name, content } => {
                let settings = content.settings("")?.unwrap_or_default();
                let account =
                    Account { channel, name, enabled: true, settings, ..Account::default() };
                let secrets = content.secrets()?;
                let request =
                    client.request(CreateAccountRequest { account: Some(account), secrets });
                let made = client.answer(client.channels().create_account(request).await)?.account;
                screen.one(&COLUMNS, &view(&made.unwrap_or_default()))
            }
            Self::Update { id, name, enabled, content } => {
                let accounts = list(client, String::new()).await?;
                let found = accounts.into_iter().find(|account| account.id == id);
                let mut account = found.ok_or_else(|| no_account(&id))?;
                account.name = name.unwrap_or(account.name);
                account.enabled = enabled.unwrap_or(account.enabled);
                if let Some(settings) = content.settings(&account.settings)? {
                    account.settings = settings;
                }
                let secrets = content.secrets()?;
                let request =
                    client.request(UpdateAccountRequest { account: Some(account), secrets });
                let changed = client.channels().update_account(request).await;
                screen.one(&COLUMNS, &view(&client.answer(changed)?.account.unwrap_or_default()))
            }
            Self::Send(send) => send.run(client, screen).await,
            Self::Remove { id } => {
                let request = client.request(DeleteAccountRequest { id: id.clone() });
                client.answer(client.channels().delete_account(request).await)?;
                screen.done("removed", &json!({"removed": id}))
            }
        }
    }
}

impl Send {
    async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        let Self { channel, account, to: chat, thread, text, request_id } = self;
        let text = option_values::text(&text)?;
        let request = SendTextRequest { channel, account, chat, thread, text, request_id };
        let sent = client.channels().send_text(client.request(request)).await;
        let sent = client.answer(sent)?;
        screen.one(
            &["delivery", "duplicate"],
            &json!({"delivery": sent.delivery_id, "duplicate": sent.duplicate}),
        )
    }
}

fn no_account(id: &str) -> Error {
    Error::NotFound(format!(
        "there is no channel account `{id}`: `holdfast channels list` shows them"
    ))
}

async fn list(client: &Client, channel: String) -> Result<Vec<Account>, Error> {
    let request = client.request(ListAccountsRequest { channel });
    Ok(client.answer(client.channels().list_accounts(request).await)?.accounts)
}

impl Content {
    /// Returns the given settings merged over the existing ones; `None` if no option was given.
    fn settings(&self, there: &str) -> Result<Option<String>, Error> {
        let said = self.settings.as_deref().map(option_values::json).transpose()?;
        let Some(allow) = &self.allow else { return Ok(said.map(|said| said.to_string())) };
        let there = || serde_json::from_str(there).unwrap_or_else(|_| json!({}));
        let mut settings = said.unwrap_or_else(there);
        let Some(fields) = settings.as_object_mut() else {
            return Err(Error::Usage("--settings is a JSON object: {…}".to_owned()));
        };
        fields.insert("allow".to_owned(), json!(allow));
        Ok(Some(settings.to_string()))
    }

    /// Returns the secrets as JSON; empty if none are given.
    fn secrets(&self) -> Result<String, Error> {
        if let Some(token) = &self.token {
            return Ok(json!({"token": option_values::secret(token)?}).to_string());
        }
        if let Some(secret) = &self.secret {
            return Ok(json!({"secret": option_values::secret(secret)?}).to_string());
        }
        Ok(self
            .secrets
            .as_deref()
            .map(option_values::json)
            .transpose()?
            .map_or_else(String::new, |json| json.to_string()))
    }
}

fn view(account: &Account) -> Value {
    let settings: Value = serde_json::from_str(&account.settings).unwrap_or_default();
    let status = account.status.as_ref();
    // What was reported before an account was disabled says nothing about now.
    let state = match (account.enabled, status) {
        (false, _) => "disabled",
        (true, Some(status)) => &status.state,
        (true, None) => "not served yet",
    };
    let status = status.filter(|_| account.enabled);
    json!({
        "id": account.id,
        "channel": account.channel,
        "name": account.name,
        "enabled": account.enabled,
        "settings": settings,
        "status": state,
        "detail": status.map(|status| status.detail.as_str()).unwrap_or_default(),
        "since": time(status.and_then(|status| status.since.as_ref())),
        "checked_at": time(status.and_then(|status| status.checked_at.as_ref())),
        "created_at": time(account.created_at.as_ref()),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        content: Content,
    }

    fn content(line: &[&str]) -> Content {
        Line::parse_from(std::iter::once(&"x").chain(line)).content
    }

    #[test]
    fn a_token_and_a_secret_have_short_ways() {
        assert_eq!(content(&["--token", "1:a"]).secrets().unwrap(), r#"{"token":"1:a"}"#);
        assert_eq!(content(&["--secret", "s\n"]).secrets().unwrap(), r#"{"secret":"s"}"#);
        assert_eq!(content(&["--secrets", r#"{"a": 1}"#]).secrets().unwrap(), r#"{"a":1}"#);
        assert_eq!(content(&[]).secrets().unwrap(), "");
    }

    #[test]
    fn who_may_write_is_put_into_the_settings_that_are_there() {
        let there = r#"{"allow":["1"],"mode":"poll"}"#;

        let allowed = content(&["--allow", "2,@anna"]).settings(there).unwrap();

        assert_eq!(allowed.unwrap(), r#"{"allow":["2","@anna"],"mode":"poll"}"#);
        assert_eq!(content(&[]).settings(there).unwrap(), None);
        assert!(content(&["--allow", "2", "--settings", "[]"]).settings(there).is_err());
    }
}
