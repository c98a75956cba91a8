//! Options of an agent for channels, as JSON: `{"telegram": {"queue": {…}, "blocks": {…}}}`.

use std::collections::HashMap;

use holdfast_proto::gateway::v1::{self as pb, Agent};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::option_values;
use crate::error::Error;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    queue: Option<Queue>,
    blocks: Option<Blocks>,
    #[serde(default)]
    voice_replies: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Queue {
    #[serde(default)]
    mode: String,
    debounce_ms: Option<u32>,
    cap: Option<u32>,
    #[serde(default)]
    drop: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Blocks {
    #[serde(default)]
    by: String,
    #[serde(default)]
    min_chars: u32,
    #[serde(default)]
    max_chars: u32,
    delay_ms: Option<[u32; 2]>,
}

/// Applies the option `--channels`, which may name a file.
pub(super) fn apply(agent: &mut Agent, channels: Option<String>) -> Result<(), Error> {
    if let Some(channels) = channels {
        agent.channels = parse(&option_values::text(&channels)?)?;
    }
    Ok(())
}

/// Reads the value of `--channels`.
fn parse(text: &str) -> Result<HashMap<String, pb::ChannelOptions>, Error> {
    let options: HashMap<String, Options> = serde_json::from_str(text).map_err(|error| {
        Error::Usage(format!(
            "`--channels` cannot be read: {error}. Write an object of channels, as \
             {{\"telegram\": {{\"queue\": {{\"mode\": \"collect\"}}, \"blocks\": {{}}}}}}"
        ))
    })?;
    Ok(options.into_iter().map(|(key, options)| (key, to_proto(options))).collect())
}

fn to_proto(options: Options) -> pb::ChannelOptions {
    let queue =
        |Queue { mode, debounce_ms, cap, drop }| pb::QueueOptions { mode, debounce_ms, cap, drop };
    let blocks = |Blocks { by, min_chars, max_chars, delay_ms }| pb::BlockOptions {
        by,
        min_chars,
        max_chars,
        min_delay_ms: delay_ms.map(|[shortest, _]| shortest),
        max_delay_ms: delay_ms.map(|[_, longest]| longest),
    };
    pb::ChannelOptions {
        queue: options.queue.map(queue),
        blocks: options.blocks.map(blocks),
        voice_replies: options.voice_replies,
    }
}

/// Shows the options in the form in which they are read.
pub(super) fn view(agent: &Agent) -> Value {
    let mut channels = Map::new();
    for (key, options) in &agent.channels {
        let mut shown = Map::new();
        if let Some(queue) = &options.queue {
            let mut fields = Map::new();
            for (name, word) in [("mode", &queue.mode), ("drop", &queue.drop)] {
                if !word.is_empty() {
                    fields.insert(name.to_owned(), json!(word));
                }
            }
            for (name, number) in [("debounce_ms", queue.debounce_ms), ("cap", queue.cap)] {
                if let Some(number) = number {
                    fields.insert(name.to_owned(), json!(number));
                }
            }
            shown.insert("queue".to_owned(), fields.into());
        }
        if let Some(blocks) = &options.blocks {
            let delay = [blocks.min_delay_ms.unwrap_or(800), blocks.max_delay_ms.unwrap_or(1_200)];
            let fields = json!({
                "by": blocks.by,
                "min_chars": blocks.min_chars,
                "max_chars": blocks.max_chars,
                "delay_ms": delay,
            });
            shown.insert("blocks".to_owned(), fields);
        }
        if !options.voice_replies.is_empty() {
            shown.insert("voice_replies".to_owned(), json!(options.voice_replies));
        }
        channels.insert(key.clone(), shown.into());
    }
    channels.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_shown_as_they_are_written() {
        let text = r#"{"*": {"queue": {"mode": "collect", "cap": 5}},
            "telegram/work": {"blocks": {"by": "sentence", "min_chars": 1, "max_chars": 9, "delay_ms": [1, 2]}},
            "matrix": {"voice_replies": "to_voice"}}"#;

        let agent = Agent { channels: parse(text).unwrap(), ..Agent::default() };

        assert_eq!(view(&agent), serde_json::from_str::<Value>(text).unwrap());
        assert!(parse(r#"{"*": {"cap": 5}}"#).is_err());
    }
}
