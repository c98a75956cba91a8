//! Options of an agent for channels.

use std::collections::{BTreeMap, HashMap};

use holdfast_proto::gateway::v1 as pb;
use holdfast_types::{BlockSettings, ChannelOptions, QueueMode, QueueSettings};

use super::super::{parse_word, parse_word_or_default, word_of};
use crate::Error;

pub(super) fn to_proto(
    channels: BTreeMap<String, ChannelOptions>,
) -> HashMap<String, pb::ChannelOptions> {
    let options = |options: ChannelOptions| pb::ChannelOptions {
        queue: (!options.queue.is_default()).then(|| queue_of(options.queue)),
        blocks: options.blocks.map(blocks_of),
        voice_replies: options.voice_replies.as_ref().map(word_of).unwrap_or_default(),
    };
    channels.into_iter().map(|(key, value)| (key, options(value))).collect()
}

pub(super) fn from_proto(
    channels: HashMap<String, pb::ChannelOptions>,
) -> Result<BTreeMap<String, ChannelOptions>, Error> {
    let mut read = BTreeMap::new();
    for (key, pb::ChannelOptions { queue, blocks, voice_replies }) in channels {
        let options = ChannelOptions {
            queue: queue.map(queue_settings).transpose()?.unwrap_or_default(),
            blocks: blocks.map(block_settings).transpose()?,
            voice_replies: match voice_replies.as_str() {
                "" => None,
                word => Some(parse_word("channels.voice_replies", word, "never or to_voice")?),
            },
        };
        read.insert(key, options);
    }
    Ok(read)
}

/// Reads a queue mode by any of its names.
pub(super) fn queue_mode(field: &'static str, word: &str) -> Result<QueueMode, Error> {
    word.parse().map_err(|_| Error::UnknownValue {
        field,
        given: word.chars().take(80).collect(),
        wanted: "steer, followup, collect, interrupt, steer_backlog or queue",
    })
}

fn queue_of(queue: QueueSettings) -> pb::QueueOptions {
    pb::QueueOptions {
        mode: queue.mode.map(|mode| mode.as_str().to_owned()).unwrap_or_default(),
        debounce_ms: queue.debounce_ms,
        cap: queue.cap,
        drop: queue.drop.map(|policy| policy.as_str().to_owned()).unwrap_or_default(),
    }
}

fn queue_settings(queue: pb::QueueOptions) -> Result<QueueSettings, Error> {
    Ok(QueueSettings {
        mode: match queue.mode.as_str() {
            "" => None,
            word => Some(queue_mode("channels.queue.mode", word)?),
        },
        debounce_ms: queue.debounce_ms,
        cap: queue.cap,
        drop: match queue.drop.as_str() {
            "" => None,
            word => Some(parse_word("channels.queue.drop", word, "old, new or summarize")?),
        },
    })
}

fn blocks_of(blocks: BlockSettings) -> pb::BlockOptions {
    pb::BlockOptions {
        by: word_of(&blocks.by),
        min_chars: blocks.min_chars,
        max_chars: blocks.max_chars,
        min_delay_ms: Some(blocks.delay_ms[0]),
        max_delay_ms: Some(blocks.delay_ms[1]),
    }
}

fn block_settings(blocks: pb::BlockOptions) -> Result<BlockSettings, Error> {
    let usual = BlockSettings::default();
    let or = |given, usual| if given == 0 { usual } else { given };
    Ok(BlockSettings {
        by: parse_word_or_default(
            "channels.blocks.by",
            &blocks.by,
            "length, paragraph or sentence",
        )?,
        min_chars: or(blocks.min_chars, usual.min_chars),
        max_chars: or(blocks.max_chars, usual.max_chars),
        delay_ms: [
            blocks.min_delay_ms.unwrap_or(usual.delay_ms[0]),
            blocks.max_delay_ms.unwrap_or(usual.delay_ms[1]),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_for_channels_come_back_as_they_were_given() {
        let queue = pb::QueueOptions { mode: "queue".into(), cap: Some(3), ..Default::default() };
        let blocks = Some(pb::BlockOptions { by: "sentence".into(), ..Default::default() });
        let given = HashMap::from([
            ("*".to_owned(), pb::ChannelOptions { queue: Some(queue), ..Default::default() }),
            (
                "telegram".to_owned(),
                pb::ChannelOptions {
                    blocks,
                    voice_replies: "to_voice".into(),
                    ..Default::default()
                },
            ),
        ]);

        let shown = to_proto(from_proto(given).unwrap());

        let queue = shown["*"].queue.clone().unwrap();
        assert_eq!((queue.mode.as_str(), queue.cap, queue.drop.as_str()), ("steer", Some(3), ""));
        let blocks = shown["telegram"].blocks.clone().unwrap();
        assert_eq!(
            (blocks.by.as_str(), blocks.min_chars, blocks.max_chars),
            ("sentence", 800, 1_200)
        );
        assert_eq!((blocks.min_delay_ms, blocks.max_delay_ms), (Some(800), Some(1_200)));
        assert_eq!((shown["*"].blocks.is_none(), shown["telegram"].queue.is_none()), (true, true));
        assert_eq!(shown["telegram"].voice_replies, "to_voice");
        let loud = pb::ChannelOptions { voice_replies: "loud".into(), ..Default::default() };
        assert!(from_proto([("*".to_owned(), loud)].into()).is_err());
        let wrong = pb::QueueOptions { mode: "later".into(), ..Default::default() };
        let wrong = pb::ChannelOptions { queue: Some(wrong), ..Default::default() };
        assert!(from_proto([("*".to_owned(), wrong)].into()).is_err());
    }
}
