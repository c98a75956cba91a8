//! Formats of a transcription. Providers are asked for JSON, which says what they have counted; texts and
//! subtitles are made of it.

use std::fmt::Write as _;

use holdfast_llm::audio::Transcript;
use serde_json::{Value, json};

use crate::api_error::ApiError;

/// The field `response_format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TranscriptFormat {
    Json,
    Text,
    VerboseJson,
    Srt,
    Vtt,
}

/// Body of a response and its content type.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RenderedTranscript {
    pub(super) content_type: &'static str,
    pub(super) body: String,
}

impl TranscriptFormat {
    pub(super) fn parse(word: Option<&str>) -> Result<Self, ApiError> {
        Ok(match word.map(str::trim) {
            None | Some("" | "json") => Self::Json,
            Some("text") => Self::Text,
            Some("verbose_json") => Self::VerboseJson,
            Some("srt") => Self::Srt,
            Some("vtt") => Self::Vtt,
            Some(_) => {
                let message =
                    "`response_format` must be `json`, `text`, `verbose_json`, `srt` or `vtt`";
                return Err(ApiError::invalid_field("response_format", message));
            }
        })
    }

    /// Whether the format has times, which only models of Whisper name.
    pub(super) const fn has_times(self) -> bool {
        match self {
            Self::Json | Self::Text => false,
            Self::VerboseJson | Self::Srt | Self::Vtt => true,
        }
    }

    /// Writes a provider's answer in this format; `None` if it has no times and the format needs them.
    pub(super) fn render(
        self,
        answer: Value,
        transcript: &Transcript,
    ) -> Option<RenderedTranscript> {
        let (content_type, body) = match self {
            Self::Json => ("application/json", json_answer(&answer, transcript).to_string()),
            Self::Text => ("text/plain; charset=utf-8", format!("{}\n", transcript.text)),
            Self::VerboseJson => {
                answer["segments"].as_array()?;
                ("application/json", answer.to_string())
            }
            Self::Srt => ("application/x-subrip; charset=utf-8", subtitles(&answer, ',')?),
            Self::Vtt => {
                ("text/vtt; charset=utf-8", format!("WEBVTT\n\n{}", subtitles(&answer, '.')?))
            }
        };
        Some(RenderedTranscript { content_type, body })
    }
}

/// The text with what was counted, as OpenAI answers.
fn json_answer(answer: &Value, transcript: &Transcript) -> Value {
    let mut shown = json!({ "text": transcript.text });
    if answer["usage"].is_object() {
        shown["usage"] = answer["usage"].clone();
    } else if transcript.seconds > 0 {
        shown["usage"] = json!({ "type": "duration", "seconds": transcript.seconds });
    }
    shown
}

/// Subtitles of the segments. SRT numbers them, and has a comma in its times.
fn subtitles(answer: &Value, separator: char) -> Option<String> {
    let mut text = String::new();
    for (number, segment) in (1..).zip(answer["segments"].as_array()?) {
        let said = segment["text"].as_str()?.replace("-->", "->");
        let lines: Vec<&str> =
            said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if separator == ',' {
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "{number}");
        }
        let (from, to) = (segment["start"].as_f64()?, segment["end"].as_f64()?);
        let _ = write!(
            text,
            "{} --> {}\n{}\n\n",
            time(from, separator),
            time(to, separator),
            lines.join("\n")
        );
    }
    Some(text)
}

/// A time as `00:01:02.345`.
fn time(seconds: f64, separator: char) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let millis = (seconds.clamp(0.0, 1e9) * 1_000.0).round() as u64;
    let (seconds, millis) = (millis / 1_000, millis % 1_000);
    format!(
        "{:02}:{:02}:{:02}{separator}{millis:03}",
        seconds / 3_600,
        seconds / 60 % 60,
        seconds % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(format: TranscriptFormat, answer: &Value) -> Option<String> {
        let transcript = Transcript::read(answer.to_string().as_bytes()).unwrap();
        format.render(answer.clone(), &transcript).map(|rendered| rendered.body)
    }

    #[test]
    fn texts_and_subtitles_are_made_of_segments() {
        let answer = json!({"text": "good day", "duration": 3661.5, "segments": [
            {"start": 0.0, "end": 1.25, "text": " good "},
            {"start": 3600.0, "end": 3661.5, "text": "day --> night"},
        ]});

        assert_eq!(render(TranscriptFormat::Text, &answer).unwrap(), "good day\n");
        assert_eq!(
            render(TranscriptFormat::Srt, &answer).unwrap(),
            "1\n00:00:00,000 --> 00:00:01,250\ngood\n\n\
             2\n01:00:00,000 --> 01:01:01,500\nday -> night\n\n"
        );
        let vtt = render(TranscriptFormat::Vtt, &answer).unwrap();
        assert!(vtt.starts_with("WEBVTT\n\n00:00:00.000 --> 00:00:01.250\ngood\n"), "{vtt}");
        let answer = render(TranscriptFormat::Json, &answer).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let usage = json!({"type": "duration", "seconds": 3662});
        assert_eq!(answer, json!({"text": "good day", "usage": usage}));
    }

    #[test]
    fn an_answer_without_times_has_no_subtitles() {
        let answer = json!({"text": "hi", "usage": {"type": "tokens", "input_tokens": 3}});

        assert_eq!(render(TranscriptFormat::Srt, &answer), None);
        assert_eq!(render(TranscriptFormat::VerboseJson, &answer), None);
        assert!(render(TranscriptFormat::Json, &answer).unwrap().contains("input_tokens"));
        assert!(TranscriptFormat::parse(Some("xml")).is_err());
    }
}
