//! The command line described by itself: shell completions, man pages, docs/cli.md.

use std::{fmt::Write as _, fs, path::PathBuf};

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;
use serde_json::json;

use crate::{error::Error, screen::Screen};

#[derive(Debug, Args)]
pub struct CompletionArgs {
    /// Shell that the completions are for
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Directory for the pages; created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Prints the completions of a shell.
///
/// # Errors
///
/// If the output is closed.
pub fn completions(
    args: &CompletionArgs,
    mut command: Command,
    screen: &Screen,
) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "holdfast", &mut script);
    screen.print(&String::from_utf8_lossy(&script))
}

/// Writes a man page for each command.
///
/// # Errors
///
/// If the directory cannot be written.
pub fn man(args: &ManArgs, command: Command, screen: &Screen) -> Result<(), Error> {
    let cannot_write = || format!("cannot write man pages to `{}`", args.folder.display());
    fs::create_dir_all(&args.folder).with_context(cannot_write)?;
    clap_mangen::generate_to(command, &args.folder).with_context(cannot_write)?;
    let pages = fs::read_dir(&args.folder).with_context(cannot_write)?.count();
    screen.done(
        &format!("{pages} pages are in {}", args.folder.display()),
        &json!({"dir": args.folder, "pages": pages}),
    )
}

const HEAD: &str = "\
# Commands

This page is the output of the hidden command `reference`; a test compares them. The option `--help` says more about each command. What every command takes:

";

/// Returns docs/cli.md.
pub fn markdown(mut command: Command) -> String {
    command.build();
    let mut text = HEAD.to_owned();
    text.push_str("| option | meaning |\n|---|---|\n");
    for option in command.get_arguments().filter(|option| option.is_global_set()) {
        row(&mut text, option);
    }
    for part in visible(&command) {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n## {}\n\n{}\n", part.get_name(), about(part));
        describe(&mut text, part, &format!("holdfast {}", part.get_name()));
    }
    text
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|part| !part.is_hide_set() && part.get_name() != "help")
}

fn describe(text: &mut String, command: &Command, path: &str) {
    if visible(command).next().is_none() {
        let aliases: Vec<_> = command.get_visible_aliases().collect();
        if !aliases.is_empty() {
            let _ = write!(text, "\nAlso: `{}`.\n", aliases.join("`, `"));
        }
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").trim();
        let _ = write!(text, "\n```text\n{usage}\n```\n");
        let own = |option: &&clap::Arg| {
            !option.is_global_set()
                && !option.is_hide_set()
                && !matches!(option.get_id().as_str(), "help" | "version")
        };
        if command.get_arguments().any(|option| own(&option)) {
            text.push_str("\n| argument | meaning |\n|---|---|\n");
            for option in command.get_arguments().filter(own) {
                row(text, option);
            }
        }
        return;
    }
    for part in visible(command) {
        let path = format!("{path} {}", part.get_name());
        let _ = write!(text, "\n### {path}\n\n{}\n", about(part));
        describe(text, part, &path);
    }
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

fn row(text: &mut String, option: &clap::Arg) {
    let help = option.get_help().map(ToString::to_string).unwrap_or_default();
    let name = option.to_string();
    // A bar would end the cell.
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    let _ = writeln!(text, "| `{}` | {} |", cell(&name), cell(&help));
}
