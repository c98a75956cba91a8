//! Words that match a channel (CTX-010).

use std::collections::BTreeMap;

/// Score for an unknown channel.
pub const UNKNOWN_CHANNEL: f64 = 0.3;

/// Default words of channels: names and features, in the languages of their users.
const DEFAULT_CHANNEL_WORDS: [(&str, &[&str]); 6] = [
    (
        "telegram",
        &["telegram", "sticker", "poll", "inline", "电报", "電報", "テレグラム", "텔레그램"],
    ),
    (
        "wecom",
        &[
            "wecom",
            "wechat",
            "approval",
            "meeting",
            "企业微信",
            "企業微信",
            "微信",
            "审批",
            "審批",
            "会议",
            "會議",
        ],
    ),
    ("slack", &["slack", "huddle", "workflow", "emoji", "スラック", "슬랙"]),
    ("discord", &["discord", "server", "voice", "reaction", "ディスコード", "디스코드"]),
    ("feishu", &["feishu", "lark", "doc", "bitable", "飞书", "飛書", "多维表格", "云文档"]),
    ("dingtalk", &["dingtalk", "ding", "approval", "钉钉", "釘釘", "审批", "考勤"]),
];

/// Words that indicate that a skill matches a channel, by the channel's kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channels(BTreeMap<String, Vec<String>>);

impl Default for Channels {
    fn default() -> Self {
        Self(
            DEFAULT_CHANNEL_WORDS
                .into_iter()
                .map(|(channel, words)| entry(channel, words))
                .collect(),
        )
    }
}

impl Channels {
    /// Adds or replaces the words of a channel.
    #[must_use]
    pub fn with(mut self, channel: &str, words: &[impl AsRef<str>]) -> Self {
        let (channel, words) = entry(channel, words);
        self.0.insert(channel, words);
        self
    }

    /// Returns 1 if a text has one of the channel's words, 0 if none, 0.3 for an unknown channel.
    /// `text` is in lower case.
    pub(super) fn score(&self, channel: &str, text: &str) -> f64 {
        match self.0.get(&channel.to_lowercase()) {
            None => UNKNOWN_CHANNEL,
            Some(words) if words.iter().any(|word| has_word(text, word)) => 1.0,
            Some(_) => 0.0,
        }
    }
}

fn entry(channel: &str, words: &[impl AsRef<str>]) -> (String, Vec<String>) {
    (channel.to_lowercase(), words.iter().map(|word| word.as_ref().to_lowercase()).collect())
}

/// Whether a text has a word as a whole: `ding` is not in `reading`. A plural counts, and a word
/// that is not ASCII may be part of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    if word.is_empty() {
        return false;
    }
    let is_gap = |c: Option<char>| !c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.match_indices(word).any(|(at, found)| {
        let after = &text[at + found.len()..];
        !word.is_ascii()
            || (is_gap(text[..at].chars().next_back())
                && is_gap(after.strip_prefix('s').unwrap_or(after).chars().next()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_known_channel_goes_with_its_words_and_names() {
        let channels = Channels::default();
        for (channel, text, score) in [
            ("telegram", "send stickers and polls", 1.0),
            ("telegram", "manage the office plants", 0.0),
            ("wecom", "企业微信会议助手", 1.0),
            ("wecom", "approval flows", 1.0),
            ("slack", "start a huddle", 1.0),
            ("discord", "voice rooms", 1.0),
            ("feishu", "写飞书多维表格", 1.0),
            ("dingtalk", "钉钉审批", 1.0),
            ("DingTalk", "send a ding", 1.0),
            ("matrix", "anything", UNKNOWN_CHANNEL),
        ] {
            assert!((channels.score(channel, text) - score).abs() < 1e-9, "{channel}: {text}");
        }
    }

    #[test]
    fn a_word_inside_another_is_not_that_word() {
        let channels = Channels::default();

        assert!(channels.score("dingtalk", "reading list").abs() < 1e-9);
        assert!(channels.score("feishu", "find a doctor").abs() < 1e-9);
        assert!((channels.score("feishu", "shared docs") - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_table_can_be_added_to_and_overruled() {
        let channels = Channels::default().with("Matrix", &["Room"]).with("slack", &[""; 0]);

        assert!((channels.score("matrix", "a room") - 1.0).abs() < 1e-9);
        assert!(channels.score("slack", "slack").abs() < 1e-9);
    }
}
