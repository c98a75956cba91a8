//! `holdfast config`: settings of agents and policies, each under a path.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    DescribeSettingsRequest, GetSettingsRequest, SetSettingRequest, Setting,
};
use serde_json::{Value, json};

use crate::{
    client::{Client, settings},
    commands::option_values,
    error::Error,
    screen::Screen,
};

const COLUMNS: [&str; 3] = ["path", "value", "version"];
const DESCRIPTION_COLUMNS: [&str; 3] = ["path", "description", "schema"];

#[derive(Debug, Subcommand)]
pub enum Config {
    /// Show settings with their versions
    Get {
        /// Path, or the beginning of paths, such as `agents.main` [default: all]
        #[arg(default_value = "", hide_default_value = true)]
        path: String,
    },
    /// Change one setting
    Set {
        /// Path, such as `agents.main.model`
        path: String,
        /// The value: JSON, a text, `@file`, or `-` for stdin; `null` is the default
        value: String,
        /// Refuse the change if the setting has another version by now
        #[arg(long, value_name = "VERSION")]
        base: Option<i64>,
    },
    /// List which settings there are, and what their values may be
    Describe {
        /// Path, or the beginning of paths [default: all]
        #[arg(default_value = "", hide_default_value = true)]
        path: String,
    },
}

impl Config {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::Get { path } => {
                let request = client.request(GetSettingsRequest { path });
                let found = client.answer(settings(client).get_settings(request).await)?;
                screen.list(&COLUMNS, found.settings.iter().map(view).collect())
            }
            Self::Set { path, value, base } => {
                let value = option_values::text(&value)?;
                // What is no JSON is a text.
                let value: Value = serde_json::from_str(&value).unwrap_or(Value::String(value));
                let wanted =
                    SetSettingRequest { path, value: value.to_string(), base_version: base };
                let request = client.request(wanted);
                let set = client.answer(settings(client).set_setting(request).await)?;
                screen.warn(&set.warnings)?;
                screen.one(&COLUMNS, &view(&set.setting.unwrap_or_default()))
            }
            Self::Describe { path } => {
                let request = client.request(DescribeSettingsRequest { path });
                let found = client.answer(settings(client).describe_settings(request).await)?;
                let rows = found.settings.iter().map(|one| {
                    json!({
                        "path": one.path,
                        "description": one.description,
                        "schema": parsed(&one.schema),
                    })
                });
                screen.list(&DESCRIPTION_COLUMNS, rows.collect())
            }
        }
    }
}

fn view(setting: &Setting) -> Value {
    json!({
        "path": setting.path,
        "value": parsed(&setting.value),
        "version": setting.version,
    })
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Null)
}
