//! The `tts` tool, and the directives in an answer that request speech.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::{Call, MediaBackend, Output, Part, Registry, Speech, Tool, ToolError};

/// Maximum length of a spoken text, in characters: the limit of OpenAI
/// (<https://platform.openai.com/docs/api-reference/audio/createSpeech>).
const MAX_TEXT_CHARS: usize = 4_096;

/// Speak a text, so that it can be heard (`speak`): the sound goes with your answer. `voices` and
/// `providers` list what there is; `parse` shows what `[[tts:…]]` in a text asks for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TtsInput {
    /// What to do.
    #[serde(default, alias = "action")]
    op: Op,
    /// What to speak, or to parse.
    #[serde(default)]
    text: Option<String>,
    /// With which voice, as in `alloy`.
    #[serde(default)]
    voice: Option<String>,
    /// By which provider; else by the first that can.
    #[serde(default)]
    provider: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Op {
    #[default]
    Speak,
    Voices,
    Providers,
    Parse,
}

#[derive(Debug)]
pub struct Tts<S>(pub Arc<S>);

impl<S: MediaBackend> Tool<Output> for Tts<S> {
    const NAME: &'static str = "tts";
    // Each call costs money.
    const EFFECT: Effect = Effect::Acts;
    const TIMEOUT: Option<Duration> = Some(Duration::from_secs(150));
    type Input = TtsInput;

    async fn call(&self, call: Call, input: TtsInput) -> Result<Output, ToolError> {
        match input.op {
            Op::Speak => self.speak(&call, input).await,
            Op::Voices | Op::Providers => self.list(&call, input.op).await,
            Op::Parse => {
                let text = input.text.unwrap_or_default();
                let spoken = extract_speech(&text);
                let found: Vec<_> = spoken
                    .said
                    .iter()
                    .map(|speech| json!({ "text": speech.text, "voice": speech.voice }))
                    .collect();
                let parsed = json!({ "text": spoken.text, "spoken": found });
                Ok(Output::from(parsed.to_string()))
            }
        }
    }
}

impl<S: MediaBackend> Tts<S> {
    async fn speak(&self, call: &Call, input: TtsInput) -> Result<Output, ToolError> {
        let text = input.text.unwrap_or_default().trim().to_owned();
        let length = text.chars().count();
        if !(1..=MAX_TEXT_CHARS).contains(&length) {
            return Err(ToolError::Tell(format!(
                "`text` has {length} characters: 1 to {MAX_TEXT_CHARS} can be spoken at once"
            )));
        }
        let speech = Speech { text, voice: input.voice, provider: input.provider };
        let made = self.0.speak(call, speech).await?;
        let said = format!("Spoken by {}; it goes with your answer.", made.by);
        let part = Part::Enclosed { name: "speech.mp3".to_owned(), data: made.content };
        Ok(Output::from(said).with(part).record(json!({ "by": made.by })))
    }

    async fn list(&self, call: &Call, op: Op) -> Result<Output, ToolError> {
        let speakers = self.0.speakers(call).await?;
        if speakers.is_empty() {
            return Ok(Output::from("Nobody here can speak: no provider of speech is set up."));
        }
        let mut text = String::new();
        for speaker in speakers {
            // Writing to a `String` cannot fail.
            let _ = match op {
                Op::Voices => {
                    writeln!(text, "{}: {}", speaker.provider, speaker.voices.join(", "))
                }
                Op::Speak | Op::Providers | Op::Parse => writeln!(text, "{}", speaker.provider),
            };
        }
        Ok(Output::from(text))
    }
}

impl Registry {
    #[must_use]
    pub fn with_speech<S: MediaBackend>(self, studio: Arc<S>) -> Self {
        self.with(Tts(studio))
    }
}

/// Text with its speech directives extracted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpeechExtract {
    /// Text that remains without its directives.
    pub text: String,
    /// Texts to speak, in order.
    pub said: Vec<Speech>,
}

/// Extracts the directives of a text:
///
/// | directive | meaning |
/// |---|---|
/// | `[[tts]]` | all of the text is spoken |
/// | `[[tts:voice=nova]]` | the same, with this voice |
/// | `[[tts:some words]]` | these words are spoken, and not shown |
///
/// White space inside is allowed. A directive that is not closed, or within code, is plain text.
#[must_use]
pub fn extract_speech(text: &str) -> SpeechExtract {
    let (mut shown, mut said) = (String::with_capacity(text.len()), Vec::new());
    let (mut whole, mut voice, mut rest) = (false, None, text);
    while let Some(at) = rest.find("[[") {
        let (before, from) = rest.split_at(at);
        shown.push_str(before);
        let directive = from[2..].split_once("]]").filter(|_| !in_code(&shown));
        let asked = directive.and_then(|(inner, after)| Some((parse_directive(inner)?, after)));
        match asked {
            Some((asked, after)) => {
                match asked {
                    SpeechDirective::Whole(with) => {
                        whole = true;
                        voice = with.or(voice);
                    }
                    SpeechDirective::Words(words) => {
                        said.push(Speech { text: words, voice: None, provider: None });
                    }
                }
                rest = after;
            }
            None => {
                shown.push_str("[[");
                rest = &from[2..];
            }
        }
    }
    shown.push_str(rest);
    let shown = if said.is_empty() && !whole { shown } else { shown.trim().to_owned() };
    for speech in &mut said {
        speech.voice.clone_from(&voice);
    }
    if whole && !shown.is_empty() {
        said.insert(0, Speech { text: shown.clone(), voice, provider: None });
    }
    SpeechExtract { text: shown, said }
}

enum SpeechDirective {
    Whole(Option<String>),
    Words(String),
}

fn parse_directive(inner: &str) -> Option<SpeechDirective> {
    let (name, words) = match inner.split_once(':') {
        Some((name, words)) => (name, words.trim()),
        None => (inner, ""),
    };
    if !name.trim().eq_ignore_ascii_case("tts") {
        return None;
    }
    Some(match words.strip_prefix("voice=") {
        Some(voice) if !voice.contains(char::is_whitespace) => {
            SpeechDirective::Whole(Some(voice.to_owned()).filter(|voice| !voice.is_empty()))
        }
        _ if words.is_empty() => SpeechDirective::Whole(None),
        _ => SpeechDirective::Words(words.to_owned()),
    })
}

/// Whether a text ends within a code block or inline code.
fn in_code(text: &str) -> bool {
    let fences = text.matches("```").count();
    let line = text.rsplit('\n').next().unwrap_or_default();
    !fences.is_multiple_of(2) || !line.replace("```", "").matches('`').count().is_multiple_of(2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        files::fake::{ask, refused},
        media::fake::Fake,
        mesh::tests::call,
    };

    fn tools() -> Registry {
        let fake = Fake { sees: true, picture: Vec::new() };
        Registry::default().with_speech(Arc::new(fake))
    }

    #[tokio::test]
    async fn what_is_spoken_goes_with_the_answer() {
        let tools = tools();

        let input = r#"{"text":" hello ","voice":"nova"}"#;
        let spoken = tools.call(call(), "tts", input).await.unwrap();

        assert_eq!(spoken.for_llm, "Spoken by nova; it goes with your answer.");
        let part = Part::Enclosed { name: "speech.mp3".into(), data: b"hello".to_vec() };
        assert_eq!(spoken.parts, [part]);
    }

    #[tokio::test]
    async fn voices_and_providers_are_listed_and_directives_are_read() {
        let (tools, call) = (tools(), call());
        for (input, said) in [
            (r#"{"op":"voices"}"#, "openai: alloy, nova\n"),
            (r#"{"op":"providers"}"#, "openai\n"),
            (
                r#"{"op":"parse","text":"hi [[tts:ho]]"}"#,
                r#"{"spoken":[{"text":"ho","voice":null}],"text":"hi"}"#,
            ),
        ] {
            assert_eq!(ask(&tools, &call, "tts", input).await, said);
        }
        assert_eq!(
            refused(&tools, &call, "tts", "{}").await,
            "`text` has 0 characters: 1 to 4096 can be spoken at once"
        );
    }

    #[test]
    fn a_text_says_what_of_it_is_to_be_spoken() {
        let speech = |text: &str, voice: Option<&str>| Speech {
            text: text.into(),
            voice: voice.map(Into::into),
            provider: None,
        };
        for (text, shown, said) in [
            ("hello", "hello", vec![]),
            ("hello [[tts]]", "hello", vec![speech("hello", None)]),
            ("[[ tts : voice=nova ]] hello", "hello", vec![speech("hello", Some("nova"))]),
            ("hello [[tts: good day ]]", "hello", vec![speech("good day", None)]),
            ("[[tts:one]][[tts:two]]", "", vec![speech("one", None), speech("two", None)]),
            ("see [[wiki]] and [[tts", "see [[wiki]] and [[tts", vec![]),
            ("write `[[tts]]`", "write `[[tts]]`", vec![]),
            ("```\n[[tts]]\n```", "```\n[[tts]]\n```", vec![]),
        ] {
            assert_eq!(extract_speech(text), SpeechExtract { text: shown.into(), said }, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_lost_that_is_no_directive(text in "[a-z\\[\\]` \n]{0,60}") {
            prop_assume!(!text.contains("tts"));
            prop_assert_eq!(extract_speech(&text).text, text);
        }
    }
}
