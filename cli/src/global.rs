//! Options of every command.

use std::path::PathBuf;

use clap::Args;

use crate::{
    screen::{Color, Format},
    state_dir,
};

/// Options that every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub struct Global {
    /// The gateway's gRPC address [default: that of the folder's `holdfast up`, or
    /// http://127.0.0.1:18790 where no folder has one]
    // Not `--url`: a subcommand with an option of that name would take it over, and the API key
    // would be sent to the subcommand's address.
    #[arg(long, global = true, env = "HOLDFAST_URL", value_name = "URL")]
    pub gateway: Option<String>,

    /// The API key [default: what `.holdfast/dev.key` holds, here or in a directory above; it is sent
    /// to the `holdfast up` of that directory alone]
    #[arg(long, global = true, env = "HOLDFAST_API_KEY", hide_env_values = true)]
    pub key: Option<String>,

    /// File with the certificates (PEM) of the authorities by which a gateway at `https://` is
    /// verified [default: those of this machine]
    #[arg(long, global = true, env = "HOLDFAST_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,

    /// Where `up` keeps everything: secrets, the development key, logs, the backends' data
    /// [default: .holdfast]
    #[arg(long, global = true, env = "HOLDFAST_DIR")]
    pub dir: Option<PathBuf>,

    /// How to print: for people or for programs
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    pub output: Format,

    /// When to use colors; `NO_COLOR` in the environment switches off `auto`
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
}

impl Global {
    /// The directory for what makes one.
    pub fn dir_or_here(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(|| PathBuf::from(state_dir::DEFAULT_DIR_NAME))
    }

    /// The directory for what looks for one, here or above.
    pub fn dir_or_found(&self) -> PathBuf {
        self.dir
            .clone()
            .or_else(state_dir::find)
            .unwrap_or_else(|| PathBuf::from(state_dir::DEFAULT_DIR_NAME))
    }
}
