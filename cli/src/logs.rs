//! `holdfast logs`: the log files of `up`, merged by time.
//!
//! `up --split` writes one file for each service, `up --detach` one for all. A line without a time
//! of its own, such as of a panic, belongs to the line before it.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom},
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    error::Error,
    screen::{Screen, plain},
    state_dir::StateDir,
};

const LEVELS: [&str; 5] = ["trace", "debug", "info", "warn", "error"];
/// Interval at which `--follow` looks for new lines.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum part of a file that is read at once, in bytes; earlier lines are not shown.
const MAX_READ_BYTES: u64 = 64 * 1024 * 1024;

#[derive(Debug, Args)]
pub struct LogArgs {
    /// Keep showing new lines until Ctrl-C
    #[arg(long, short)]
    follow: bool,
    /// Show only this service, for example `gateway` or `agent-runner-2`; may be repeated
    #[arg(long, short)]
    service: Vec<String>,
    /// Show only lines since then: `10m`, `2h`, or a time such as `2026-01-31T07:00:00Z`
    #[arg(long, value_parser = since)]
    since: Option<Timestamp>,
    /// Show only lines of this level and those that are more severe
    #[arg(long, value_parser = LEVELS)]
    level: Option<String>,
    /// Show at most so many lines of the past
    #[arg(long, default_value_t = 500)]
    lines: usize,
}

/// Runs `holdfast logs`.
///
/// # Errors
///
/// If there are no logs here, or no such service.
pub async fn run(args: LogArgs, home: &StateDir, screen: &Screen) -> Result<(), Error> {
    let filter = Filter {
        services: args.service,
        since: args.since,
        level: args.level.as_deref().and_then(severity),
    };
    let mut files = BTreeMap::new();
    find(home, &mut files)?;
    if files.is_empty() {
        return Err(Error::NotFound(nothing_here(home)));
    }
    filter.check(&files)?;
    let mut lines = read(&mut files, &filter)?;
    lines.sort_by_key(|line| line.at);
    let skipped = lines.len().saturating_sub(args.lines);
    show(&lines[skipped..], screen)?;
    if !args.follow {
        return Ok(());
    }
    loop {
        sleep(FOLLOW_INTERVAL).await;
        find(home, &mut files)?;
        let mut lines = read(&mut files, &filter)?;
        lines.sort_by_key(|line| line.at);
        show(&lines, screen)?;
    }
}

fn nothing_here(home: &StateDir) -> String {
    format!(
        "there are no logs in `{}`: `holdfast up` writes them with --detach or --split, and \
         otherwise to its terminal. In a cluster: `kubectl -n NAMESPACE logs -f --since=10m \
         -l app.kubernetes.io/name=holdfast,app.kubernetes.io/component=gateway` (or agent-runner, \
         channel-bridge, scheduler, memory, secrets, operator)",
        home.logs().display()
    )
}

/// Time of an option: a duration before now, or a time.
fn since(text: &str) -> Result<Timestamp, String> {
    if let Ok(ago) = text.parse::<SignedDuration>() {
        let at = Timestamp::now().checked_sub(ago.abs());
        return at.map_err(|_| "so long ago that no clock has it".to_owned());
    }
    text.parse().map_err(|_| "write `10m`, `2h`, or a time as `2026-01-31T07:00:00Z`".to_owned())
}

fn severity(level: &str) -> Option<usize> {
    LEVELS.iter().position(|known| known.eq_ignore_ascii_case(level))
}

/// A log file, and how far it is read.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    read: u64,
    /// End of the file without a newline: the beginning of the next line.
    rest: Vec<u8>,
    /// The last line that began with a time.
    last: Option<Head>,
}

/// Beginning of a line: what the line says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Head {
    at: Timestamp,
    level: usize,
    /// Module that wrote it.
    target: String,
}

#[derive(Debug, PartialEq, Eq)]
struct Line {
    service: String,
    at: Option<Timestamp>,
    level: Option<usize>,
    text: String,
}

#[derive(Debug)]
struct Filter {
    services: Vec<String>,
    since: Option<Timestamp>,
    level: Option<usize>,
}

impl Filter {
    /// Refuses a service that no file and no module belongs to.
    fn check(&self, files: &BTreeMap<String, LogFile>) -> Result<(), Error> {
        const SERVICES: [&str; 5] =
            ["gateway", "agent-runner", "channel-bridge", "scheduler", "memory-service"];
        for wanted in &self.services {
            let is_known = files.keys().any(|file| is_of(file, wanted))
                || (files.contains_key("up") && SERVICES.contains(&wanted.as_str()));
            if !is_known {
                let known: Vec<&str> = files.keys().map(String::as_str).collect();
                return Err(Error::NotFound(format!(
                    "there is no log of `{wanted}`: there are {}",
                    known.join(", ")
                )));
            }
        }
        Ok(())
    }

    fn takes(&self, service: &str, head: Option<&Head>) -> bool {
        let of_service = self.services.is_empty()
            || self.services.iter().any(|wanted| {
                is_of(service, wanted)
                    || (service == "up" && head.is_some_and(|head| is_of_module(head, wanted)))
            });
        let Some(head) = head else { return of_service && self.level.is_none() };
        of_service
            && self.since.is_none_or(|since| head.at >= since)
            && self.level.is_none_or(|level| head.level >= level)
    }
}

/// Whether a file is a service's: `gateway` names `gateway-1` and `gateway-2`.
fn is_of(file: &str, service: &str) -> bool {
    file == service
        || file
            .strip_prefix(service)
            .and_then(|rest| rest.strip_prefix('-'))
            .is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Whether a line of the common file was written by a service's own code.
fn is_of_module(head: &Head, service: &str) -> bool {
    let module = service.trim_end_matches("-service").replace('-', "_");
    head.target == module || head.target.starts_with(&format!("{module}::"))
}

/// Adds the files that are not known yet.
fn find(home: &StateDir, files: &mut BTreeMap<String, LogFile>) -> Result<(), Error> {
    let Ok(listed) = fs::read_dir(home.logs()) else { return Ok(()) };
    for entry in listed {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let Some(name) = name.as_deref().and_then(|name| name.strip_suffix(".log")) else {
            continue;
        };
        let new = || LogFile { path: path.clone(), read: 0, rest: Vec::new(), last: None };
        files.entry(name.to_owned()).or_insert_with(new);
    }
    Ok(())
}

fn read(files: &mut BTreeMap<String, LogFile>, filter: &Filter) -> Result<Vec<Line>, Error> {
    let mut lines = Vec::new();
    for (service, file) in files {
        for text in file.new_lines()? {
            let text = without_colors(&text);
            if let Some(head) = head(&text) {
                file.last = Some(head);
            }
            let head = file.last.as_ref();
            if filter.takes(service, head) {
                lines.push(Line {
                    service: service.clone(),
                    at: head.map(|head| head.at),
                    level: head.map(|head| head.level),
                    text,
                });
            }
        }
    }
    Ok(lines)
}

impl LogFile {
    /// Returns the lines that were written since the last call.
    fn new_lines(&mut self) -> Result<Vec<String>, Error> {
        // `up` deletes a log that has become too large, and begins it anew.
        let Ok(mut file) = File::open(&self.path) else { return Ok(Vec::new()) };
        let length = file.metadata()?.len();
        if length < self.read {
            (self.read, self.last) = (0, None);
            self.rest.clear();
        }
        let from = self.read.max(length.saturating_sub(MAX_READ_BYTES));
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = std::mem::take(&mut self.rest);
        let count = file.take(MAX_READ_BYTES).read_to_end(&mut bytes)?;
        self.read = from + count as u64;
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.rest = bytes.split_off(end);
        Ok(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
    }
}

/// Reads the beginning of a line, in text or in JSON.
fn head(text: &str) -> Option<Head> {
    if text.starts_with('{') {
        let line: Value = serde_json::from_str(text).ok()?;
        return Some(Head {
            at: line["timestamp"].as_str()?.parse().ok()?,
            level: severity(line["level"].as_str()?)?,
            target: line["target"].as_str().unwrap_or_default().to_owned(),
        });
    }
    let mut words = text.split_whitespace();
    let at = words.next()?.parse().ok()?;
    let level = severity(words.next()?)?;
    // Spans stand between the level and the module: `run{session=…}: agent_runner::turn: …`.
    let target = words.filter_map(|word| word.strip_suffix(':')).find(|word| !word.ends_with('}'));
    Some(Head { at, level, target: target.unwrap_or_default().to_owned() })
}

/// Removes the color codes of a process that was started at a terminal.
fn without_colors(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        clean.push_str(part.split_once('m').map_or("", |(_, rest)| rest));
    }
    plain(&clean)
}

fn show(lines: &[Line], screen: &Screen) -> Result<(), Error> {
    if screen.is_json() {
        for line in lines {
            let at = line.at.map(|at| at.to_string());
            let level = line.level.map(|level| LEVELS[level]);
            let text = &line.text;
            let line = json!({"service": line.service, "at": at, "level": level, "text": text});
            screen.print(&format!("{line}\n"))?;
        }
        return Ok(());
    }
    let width = lines.iter().map(|line| line.service.len()).max().unwrap_or(0);
    let mut text = String::new();
    for line in lines {
        text.push_str(&format!("{:width$}  {}\n", line.service, line.text));
    }
    screen.print(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "2026-11-26T03:00:00.123456Z  INFO gateway::app: serves at=127.0.0.1:1";
    const RUNNER: &str =
        "2026-11-26T03:00:01Z ERROR run{session=ses_1}: agent_runner::turn: it failed";

    #[test]
    fn a_line_says_when_how_bad_and_who() {
        let info = head(INFO).unwrap();
        assert_eq!((info.level, info.target.as_str()), (2, "gateway::app"));
        assert_eq!(head(RUNNER).unwrap().target, "agent_runner::turn");
        let json = r#"{"timestamp":"2026-11-26T03:00:02Z","level":"WARN","target":"scheduler"}"#;
        assert_eq!(head(json).unwrap().level, 3);
        assert_eq!(head("thread 'main' panicked at src/main.rs"), None);
        assert_eq!(without_colors("\x1b[2m2026\x1b[0m \x1b[31mERROR\x1b[0m x"), "2026 ERROR x");
    }

    #[test]
    fn lines_are_chosen_by_service_time_and_level() {
        let filter = |services: &[&str], level| Filter {
            services: services.iter().map(|&name| name.to_owned()).collect(),
            since: None,
            level,
        };
        let (info, error) = (head(INFO), head(RUNNER));

        assert!(filter(&["gateway"], None).takes("gateway-2", info.as_ref()));
        assert!(!filter(&["gateway"], None).takes("gateway-x", info.as_ref()));
        assert!(filter(&["gateway"], None).takes("up", info.as_ref()));
        assert!(!filter(&["gateway"], None).takes("up", error.as_ref()));
        assert!(filter(&["agent-runner"], None).takes("up", error.as_ref()));
        assert!(!filter(&[], Some(3)).takes("up", info.as_ref()));
        assert!(filter(&[], Some(3)).takes("up", error.as_ref()));
        let late = Filter { since: error.as_ref().map(|head| head.at), ..filter(&[], None) };
        assert!(!late.takes("up", info.as_ref()) && late.takes("up", error.as_ref()));
    }

    #[test]
    fn a_time_is_given_as_a_duration_or_as_itself() {
        let ago = Timestamp::now().duration_since(since("10m").unwrap());

        assert!((599..=601).contains(&ago.as_secs()), "{ago}");
        assert!(since("2026-01-31T07:00:00Z").is_ok() && since("yesterday").is_err());
    }
}
