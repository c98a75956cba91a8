//! `commands.list`: the commands that the mesh answers itself.

use serde_json::{Value, json};

use super::{super::call::Call, Method, READ, Reply, method, sessions::NoParams};

pub const METHODS: &[Method] = &[method!(
    "commands.list",
    READ,
    list,
    ["sessionKey", "agentId", "provider", "scope", "includeArgs",]
)];

/// Commands: name, what it does, category, whether it takes a text.
const COMMANDS: &[(&str, &str, &str, bool)] = &[
    ("help", "Lists the commands.", "status", false),
    ("status", "Shows the session's state.", "status", false),
    ("stop", "Ends the running turn.", "session", false),
    ("new", "Starts the conversation anew.", "session", false),
    ("pause", "Pauses the session.", "session", false),
    ("resume", "Resumes the session.", "session", false),
    ("model", "Shows or sets the session's model.", "options", true),
    ("think", "Shows or sets how much the model thinks.", "options", true),
    ("verbose", "Shows or sets how much is told about tool calls.", "options", true),
    ("reasoning", "Shows or hides the model's thinking.", "options", true),
    ("elevated", "Shows or sets whether commands need approval.", "options", true),
    ("timezone", "Shows or sets your time zone.", "options", true),
    ("compact", "Summarises the conversation now.", "session", true),
    ("chain", "Lists the chains, or starts one.", "tools", true),
    ("approve", "Approves a tool call.", "management", true),
    ("deny", "Denies a tool call.", "management", true),
    ("list", "Lists agents, models, channels or skills.", "status", true),
];

async fn list(_: Call, NoParams {}: NoParams) -> Reply {
    Ok(json!({ "commands": entries() }))
}

/// The commands, as clients complete them.
pub fn entries() -> Vec<Value> {
    let entry = |&(name, description, category, accepts): &(&str, &str, &str, bool)| {
        json!({
            "name": name,
            "textAliases": [format!("/{name}")],
            "description": description,
            "category": category,
            "source": "native",
            "scope": "both",
            "acceptsArgs": accepts,
        })
    };
    COMMANDS.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use holdfast_types::Command;

    use super::*;

    #[test]
    fn each_listed_command_is_one() {
        for (name, ..) in COMMANDS {
            assert!(Command::parse(&format!("/{name}")).is_some(), "{name}");
        }
    }
}
