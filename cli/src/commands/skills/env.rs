//! `holdfast skills env`: secrets that the commands of skills are given.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    ListSkillEnvRequest, PutSkillEnvRequest, RemoveSkillEnvRequest, SkillVariable,
};
use serde_json::{Value, json};

use super::super::{given, view::time};
use crate::{client::Client, error::Error, screen::Screen};

const COLUMNS: [&str; 3] = ["skill", "name", "updated_at"];

#[derive(Debug, Subcommand)]
pub enum Env {
    /// List which are set; nobody is shown what they are
    List,
    /// Set one; what it was is forgotten
    Set {
        /// The skill's name
        skill: String,
        /// The variable, as in its `requires.env`
        name: String,
        /// What it is: `@file`, or `-` for stdin
        #[arg(long, env = "HOLDFAST_SKILL_SECRET", hide_env_values = true, default_value = "-")]
        value: String,
    },
    /// Forget one
    Rm {
        /// The skill's name
        skill: String,
        /// The variable
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
                let value = given::secret(&value)?;
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
