//! Menu of commands that Telegram shows (<https://core.telegram.org/bots/api#setmycommands>).

use serde_json::{Value, json};
use tracing::debug;

use super::Telegram;

/// Commands with their descriptions.
const COMMANDS: [(&str, &str); 9] = [
    ("help", "lists the commands"),
    ("status", "shows the state of the conversation"),
    ("new", "starts a new conversation"),
    ("stop", "ends the current turn"),
    ("compact", "summarises the conversation"),
    ("model", "shows or changes the model"),
    ("timezone", "shows or sets your time zone"),
    ("pause", "pauses the conversation"),
    ("resume", "resumes the conversation"),
];

impl Telegram {
    /// Registers the menu, in the background: a bot without one works too.
    pub(super) fn register_menu(&self) {
        let (bot, id) = (self.bot.clone(), self.account.id);
        tokio::spawn(async move {
            if let Err(error) = bot.execute("setMyCommands", &menu()).await {
                debug!(%error, account.id = %id, "the menu of commands was not registered");
            }
        });
    }
}

fn menu() -> Value {
    let entry = |(command, description): &(&str, &str)| json!({"command": command, "description": description});
    json!({"commands": COMMANDS.iter().map(entry).collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use holdfast_types::Command;

    use super::*;

    #[test]
    fn the_menu_has_commands_only() {
        for (command, description) in COMMANDS {
            assert!(Command::parse(&format!("/{command}")).is_some(), "{command}");
            assert!((3..=256).contains(&description.len()));
        }
    }
}
