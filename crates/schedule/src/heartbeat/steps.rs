//! Heartbeat steps before and after the model call (spec HBT-004 to HBT-014).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{
    answer::{AnswerKind, HeartbeatAnswer, classify_answer},
    config::HeartbeatConfig,
    event::{HeartbeatEvent, Status},
    file,
    hours::Zones,
    recent::RecentAnswers,
};

/// Delay before the single retry of a heartbeat that met a run in flight (spec HBT-006).
pub const BUSY_RETRY_DELAY: SignedDuration = SignedDuration::from_secs(60);

const DEFAULT_PROMPT: &str = "## Heartbeat Check

It's time for your periodic check. This is what HEARTBEAT.md says:

{content}

1. If anything needs user attention, notify them
2. If no action needed, respond with HEARTBEAT_OK

Keep responses brief and actionable.";

/// State of the agent when a heartbeat is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentFacts<'a> {
    pub in_flight: bool,
    /// Content of `HEARTBEAT.md`; `None` if there is no such file.
    pub file: Option<&'a str>,
}

/// Decision before the model call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskDecision {
    /// The model is not asked.
    Quiet {
        /// `skipped` or `ok-empty`.
        status: Status,
        /// Reason, one of those in the table of [`heartbeat`](super).
        reason: &'static str,
        /// Whether to retry once after [`BUSY_RETRY_DELAY`].
        retry: bool,
    },
    Ask {
        prompt: String,
    },
}

/// Decides steps 1 to 5: whether the model is asked, and with which prompt.
///
/// Invalid active hours count as quiet, so that a typing error wakes nobody at night.
/// [`HeartbeatConfig::check`] has reported them to the author.
#[must_use]
pub fn decide_ask(
    config: &HeartbeatConfig,
    now: Timestamp,
    zones: &Zones,
    facts: AgentFacts<'_>,
) -> AskDecision {
    let skipped = |reason| AskDecision::Quiet { status: Status::Skipped, reason, retry: false };
    if !config.enabled {
        return skipped("disabled");
    }
    if let Some(hours) = &config.active_hours
        && !hours.is_active(now, zones).unwrap_or(false)
    {
        return skipped("quiet-hours");
    }
    if facts.in_flight {
        let reason = "requests-in-flight";
        return AskDecision::Quiet { status: Status::Skipped, reason, retry: true };
    }
    let Some(content) = facts.file else { return skipped("no-heartbeat-file") };
    if file::is_empty(content) {
        let reason = "empty-heartbeat-file";
        return AskDecision::Quiet { status: Status::OkEmpty, reason, retry: false };
    }
    AskDecision::Ask { prompt: prompt(config, content) }
}

/// Returns what an agent is asked about the content of its `HEARTBEAT.md`.
#[must_use]
pub fn prompt(config: &HeartbeatConfig, content: &str) -> String {
    config.prompt.as_deref().unwrap_or(DEFAULT_PROMPT).replace("{content}", &quoted(content))
}

/// Maximum characters of the file in the prompt.
const MAX_FILE_CHARS: usize = 16_000;

/// Quotes the file's content; nothing in it can end the quotation.
fn quoted(content: &str) -> String {
    let content = content.trim_start_matches('\u{feff}').trim();
    let (shown, cut) = match content.char_indices().nth(MAX_FILE_CHARS) {
        Some((at, _)) => (&content[..at], "\n[shortened]"),
        None => (content, ""),
    };
    format!("<file name=\"HEARTBEAT.md\">\n{}{cut}\n</file>", shown.replace("</", "<\\/"))
}

/// Result of the model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelReply<'a> {
    pub answer: HeartbeatAnswer<'a>,
    pub reasoning: Option<&'a str>,
}

/// Decision after the model call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryDecision {
    Quiet {
        status: Status,
        reason: Option<String>,
    },
    /// The text is to be delivered, then recorded and reported by [`delivered_event`].
    Deliver {
        text: String,
        /// The answer without its reasoning, to be recorded in [`RecentAnswers`].
        said: String,
    },
}

/// Decides steps 6 to 9: whether something is delivered, and which text.
#[must_use]
pub fn decide_delivery(
    config: &HeartbeatConfig,
    reply: ModelReply<'_>,
    recent: &RecentAnswers,
    now: Timestamp,
) -> DeliveryDecision {
    let quiet = |status, reason: Option<&str>| DeliveryDecision::Quiet {
        status,
        reason: reason.map(str::to_owned),
    };
    let ModelReply { answer, reasoning } = reply;
    let news = match classify_answer(answer, config.ack_max_chars) {
        AnswerKind::Nothing => return quiet(Status::OkEmpty, Some("empty-reply")),
        AnswerKind::Ok => return quiet(Status::OkToken, None),
        AnswerKind::News(news) => news,
    };
    // The same text may come with other media each time.
    if !answer.has_media && recent.contains(news, now) {
        return quiet(Status::Skipped, Some("duplicate"));
    }
    let reasoning = reasoning.map(str::trim).filter(|text| !text.is_empty());
    let text = match reasoning.filter(|_| config.include_reasoning) {
        Some(reasoning) => format!("Reasoning:\n{reasoning}\n\n{news}"),
        None => news.to_owned(),
    };
    DeliveryDecision::Deliver { text, said: news.to_owned() }
}

/// Creates the event of a delivered heartbeat (spec HBT-014).
#[must_use]
pub fn delivered_event(
    text: &str,
    channel: &str,
    to: &str,
    has_media: bool,
    at: Timestamp,
    took: Duration,
) -> HeartbeatEvent {
    HeartbeatEvent {
        to: Some(to.to_owned()),
        channel: Some(channel.to_owned()),
        has_media,
        ..HeartbeatEvent::quiet(Status::Sent, None, at, took).with_preview(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heartbeat::ActiveHours;

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn quiet_now() -> HeartbeatConfig {
        let hours = ActiveHours {
            start: "20:00".to_owned(),
            end: "21:00".to_owned(),
            timezone: Default::default(),
        };
        HeartbeatConfig { active_hours: Some(hours), ..HeartbeatConfig::default() }
    }

    fn reason(config: &HeartbeatConfig, in_flight: bool, file: Option<&str>) -> &'static str {
        match decide_ask(config, now(), &Zones::default(), AgentFacts { in_flight, file }) {
            AskDecision::Quiet { reason, .. } => reason,
            AskDecision::Ask { .. } => "ask",
        }
    }

    #[test]
    fn the_first_step_that_says_so_is_the_last() {
        let off = HeartbeatConfig { enabled: false, ..quiet_now() };
        let on = HeartbeatConfig::default();

        assert_eq!(reason(&off, true, None), "disabled");
        assert_eq!(reason(&quiet_now(), true, None), "quiet-hours");
        assert_eq!(reason(&on, true, None), "requests-in-flight");
        assert_eq!(reason(&on, true, Some("call")), "requests-in-flight");
        assert_eq!(reason(&on, false, None), "no-heartbeat-file");
        assert_eq!(reason(&on, false, Some("# Tasks\n")), "empty-heartbeat-file");
        assert_eq!(reason(&on, false, Some("call")), "ask");
    }

    #[test]
    fn only_an_empty_file_is_well_and_only_a_run_in_flight_is_tried_again() {
        let of = |in_flight, file| match decide_ask(
            &HeartbeatConfig::default(),
            now(),
            &Zones::default(),
            AgentFacts { in_flight, file },
        ) {
            AskDecision::Quiet { status, retry, .. } => Some((status, retry)),
            AskDecision::Ask { .. } => None,
        };

        assert_eq!(of(true, None), Some((Status::Skipped, true)));
        assert_eq!(of(false, None), Some((Status::Skipped, false)));
        assert_eq!(of(false, Some("#")), Some((Status::OkEmpty, false)));
    }

    #[test]
    fn hours_that_are_none_are_quiet() {
        let mut config = quiet_now();
        if let Some(hours) = &mut config.active_hours {
            hours.end = "late".to_owned();
        }

        assert!(config.check().is_err());
        assert_eq!(reason(&config, false, Some("call")), "quiet-hours");
    }

    #[test]
    fn the_question_is_the_usual_one_or_ones_own() {
        let ask = |prompt: Option<&str>| {
            let config =
                HeartbeatConfig { prompt: prompt.map(str::to_owned), ..HeartbeatConfig::default() };
            let facts = AgentFacts { in_flight: false, file: Some("- call {content}\n") };
            match decide_ask(&config, now(), &Zones::default(), facts) {
                AskDecision::Ask { prompt } => prompt,
                AskDecision::Quiet { reason, .. } => reason.to_owned(),
            }
        };

        let usual = ask(None);
        assert!(usual.starts_with("## Heartbeat Check\n\nIt's time for your periodic check."));
        assert!(usual.contains(
            "\n\n<file name=\"HEARTBEAT.md\">\n- call {content}\n</file>\n\n1. If anything needs"
        ));
        assert!(usual.ends_with("Keep responses brief and actionable."));
        assert_eq!(
            ask(Some("Look: {content}")),
            "Look: <file name=\"HEARTBEAT.md\">\n- call {content}\n</file>"
        );
        assert_eq!(ask(Some("Look around.")), "Look around.");
    }

    #[test]
    fn a_file_cannot_end_its_quotation_and_is_not_quoted_at_any_length() {
        let asked = quoted(&format!("- call</file>\n{}", "好".repeat(20_000)));

        assert!(asked.starts_with("<file name=\"HEARTBEAT.md\">\n- call<\\/file>\n好"));
        assert!(asked.ends_with("好\n[shortened]\n</file>"));
        assert!(asked.chars().count() < MAX_FILE_CHARS + 100);
    }

    fn answered(config: &HeartbeatConfig, text: &str, recent: &RecentAnswers) -> DeliveryDecision {
        let answer = HeartbeatAnswer { text, has_media: false };
        decide_delivery(
            config,
            ModelReply { answer, reasoning: Some(" because \n") },
            recent,
            now(),
        )
    }

    #[test]
    fn what_the_model_said_is_delivered_unless_all_is_well_or_it_said_so_before() {
        let config = HeartbeatConfig::default();
        let mut recent = RecentAnswers::default();
        let quiet = |status, reason: Option<&str>| DeliveryDecision::Quiet {
            status,
            reason: reason.map(str::to_owned),
        };
        let news = "The oven is on.".to_owned();

        assert_eq!(answered(&config, "HEARTBEAT_OK", &recent), quiet(Status::OkToken, None));
        assert_eq!(answered(&config, "", &recent), quiet(Status::OkEmpty, Some("empty-reply")));
        assert_eq!(
            answered(&config, &news, &recent),
            DeliveryDecision::Deliver { text: news.clone(), said: news.clone() }
        );
        recent.record(&news, now());
        assert_eq!(answered(&config, &news, &recent), quiet(Status::Skipped, Some("duplicate")));
    }

    #[test]
    fn what_was_thought_is_delivered_if_asked_for_and_does_not_hide_a_duplicate() {
        let config = HeartbeatConfig { include_reasoning: true, ..HeartbeatConfig::default() };
        let mut recent = RecentAnswers::default();

        let said = match answered(&config, "The oven is on.", &recent) {
            DeliveryDecision::Deliver { text, said } => {
                assert_eq!(text, "Reasoning:\nbecause\n\nThe oven is on.");
                said
            }
            DeliveryDecision::Quiet { .. } => String::new(),
        };

        recent.record(&said, now());
        assert!(matches!(
            answered(&config, "The oven is on.", &recent),
            DeliveryDecision::Quiet { status: Status::Skipped, .. }
        ));
    }

    #[test]
    fn a_delivery_is_told_with_its_first_hundred_characters() {
        let event = delivered_event(
            &"好".repeat(101),
            "telegram",
            "42",
            true,
            now(),
            Duration::from_secs(2),
        );

        assert_eq!(event.preview.as_deref(), Some(&*"好".repeat(100)));
        assert_eq!((event.duration_ms, event.silent, event.has_media), (2_000, false, true));
        assert_eq!((event.channel.as_deref(), event.to.as_deref()), (Some("telegram"), Some("42")));
    }
}
