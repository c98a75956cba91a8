//! `holdfast skills env`: secrets that the commands of skills use.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    ListSkillEnvRequest, PutSkillEnvRequest, RemoveSkillEnvRequest, SkillVariable,
};
use serde_json::{Value, json};

use super::super::option_values;
use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 3] = ["skill", "name", "updated_at"];

#[derive(Debug, Subcommand)]
pub enum Env {
    /// List the names of the secrets, without values
    List,
    /// Set or replace a secret of a skill
    Set {
        /// Name of the skill that uses it
        skill: String,
        /// Name of the variable, as in the skill's `requires.env`
        name: String,
        /// Value of the secret: `@file`, or `-` for stdin
        #[arg(long, env = "HOLDFAST_SKILL_SECRET", hide_env_values = true, default_value = "-")]
        value: String,
    },
    /// Delete a secret of a skill
    Rm {
        /// Name of the skill that uses it
        skill: String,
        /// Name of the variable, as `list` shows it
        name: String,
    },
}

impl Env {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List => {
                let request = client.request(ListSkillEnvRequest {});
                let listed = client.answer(client.skills().list_skill_env(request).await)?;
                screen.list(&COLUMNS, listed.variables.iter().map(view).collect())
            }
            Self::Set { skill, name, value } => {
                let shown = json!({ "skill": skill, "name": name });
                let value = option_values::secret(&value)?;
                let request = client.request(PutSkillEnvRequest { skill, name, value });
                client.answer(client.skills().put_skill_env(request).await)?;
                screen.done("set", &shown)
            }
            Self::Rm { skill, name } => {
                let shown = json!({ "skill": skill, "name": name });
                let request = client.request(RemoveSkillEnvRequest { skill, name });
                client.answer(client.skills().remove_skill_env(request).await)?;
                screen.done("removed", &shown)
            }
        }
    }
}

fn view(variable: &SkillVariable) -> Value {
    json!({
        "skill": variable.skill,
        "name": variable.name,
        "updated_at": time(variable.updated_at.as_ref()),
    })
}
