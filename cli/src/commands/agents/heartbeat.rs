//! Heartbeat options of `holdfast agents create` and `update`.

use clap::Args;
use holdfast_proto::gateway::v1::{ActiveHours, Agent};

use super::super::option_values;
use crate::error::Error;

/// Heartbeat settings; options that are not given stay unchanged
#[derive(Debug, Default, Args)]
pub struct Heartbeat {
    /// Whether the agent regularly checks by its HEARTBEAT.md whether anything needs doing
    #[arg(long, value_parser = ["on", "off"])]
    heartbeat: Option<String>,
    /// Interval of the heartbeat: a number and s, m or h
    #[arg(long)]
    heartbeat_every: Option<String>,
    /// Hours in which it is active: `08:00-22:00` in the user's time zone,
    /// `08:00-22:00@Europe/Oslo`, or `always`
    #[arg(long)]
    heartbeat_hours: Option<String>,
    /// Prompt of the heartbeat, with `{content}` for the file: text, `@file`, or `-` for stdin;
    /// empty for the default
    #[arg(long)]
    heartbeat_prompt: Option<String>,
    /// Target of its news: the channel last used, or the main session's
    #[arg(long, value_parser = ["last", "main"])]
    heartbeat_target: Option<String>,
    /// Model of the heartbeat, as `provider:id`; empty for the agent's
    #[arg(long)]
    heartbeat_model: Option<String>,
    /// Maximum number of characters besides HEARTBEAT_OK that still count as no news
    #[arg(long)]
    heartbeat_ack_max_chars: Option<u32>,
    /// Session of the heartbeat: `main` or a key; empty for its own session
    #[arg(long)]
    heartbeat_session: Option<String>,
    /// Whether the model's reasoning is sent with the news
    #[arg(long, value_parser = ["yes", "no"])]
    heartbeat_reasoning: Option<String>,
}

impl Heartbeat {
    pub fn apply(self, agent: &mut Agent) -> Result<(), Error> {
        let mut settings = agent.heartbeat.take().unwrap_or_default();
        if let Some(word) = self.heartbeat {
            settings.enabled = Some(word == "on");
        }
        if let Some(prompt) = self.heartbeat_prompt {
            settings.prompt = option_values::text(&prompt)?;
        }
        for (field, said) in [
            (&mut settings.every, self.heartbeat_every),
            (&mut settings.target, self.heartbeat_target),
            (&mut settings.model, self.heartbeat_model),
            (&mut settings.session, self.heartbeat_session),
        ] {
            if let Some(said) = said {
                *field = said;
            }
        }
        if self.heartbeat_ack_max_chars.is_some() {
            settings.ack_max_chars = self.heartbeat_ack_max_chars;
        }
        if let Some(said) = self.heartbeat_hours {
            settings.active_hours = hours(&said)?;
        }
        if let Some(word) = self.heartbeat_reasoning {
            settings.include_reasoning = word == "yes";
        }
        if settings != Default::default() {
            agent.heartbeat = Some(settings);
        }
        Ok(())
    }
}

fn hours(said: &str) -> Result<Option<ActiveHours>, Error> {
    if said == "always" {
        return Ok(None);
    }
    let (window, zone) = said.split_once('@').unwrap_or((said, "user"));
    let (start, end) = window.split_once('-').ok_or_else(|| {
        Error::Usage(format!("`{said}` are no hours: write `08:00-22:00`, or `always`"))
    })?;
    let text = |text: &str| text.trim().to_owned();
    Ok(Some(ActiveHours { start: text(start), end: text(end), time_zone: text(zone) }))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        heartbeat: Heartbeat,
    }

    fn apply(agent: &mut Agent, line: &[&str]) -> Result<(), Error> {
        Line::parse_from([&["x"], line].concat()).heartbeat.apply(agent)
    }

    #[test]
    fn what_is_said_of_a_heartbeat_is_set_and_the_rest_stays() {
        let mut agent = Agent::default();
        apply(&mut agent, &[]).unwrap();
        assert_eq!(agent.heartbeat, None);

        let line = ["--heartbeat-every", "1h", "--heartbeat-hours", "22:00-06:00@Europe/Oslo"];
        apply(&mut agent, &line).unwrap();
        apply(&mut agent, &["--heartbeat", "off"]).unwrap();

        let set = agent.heartbeat.clone().unwrap();
        let hours = set.active_hours.unwrap();
        assert_eq!((set.enabled, set.every.as_str()), (Some(false), "1h"));
        assert_eq!((hours.start.as_str(), hours.end.as_str()), ("22:00", "06:00"));
        assert_eq!(hours.time_zone, "Europe/Oslo");

        apply(&mut agent, &["--heartbeat-hours", "always"]).unwrap();
        assert_eq!(agent.heartbeat.unwrap().active_hours, None);
        assert!(apply(&mut Agent::default(), &["--heartbeat-hours", "day"]).is_err());
    }
}
