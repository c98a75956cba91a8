//! Models for images and speech: the table `[runner.media]`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MediaConfig {
    pub image_model: String,
    pub speech_model: String,
    pub voice: String,
    pub elevenlabs_model: String,
    /// ElevenLabs' voice id.
    pub elevenlabs_voice: String,
    /// Models that transcribe recordings, by the name of their provider. Providers that are not
    /// listed transcribe if their server is known to.
    pub transcription_models: BTreeMap<String, String>,
}

impl Default for MediaConfig {
    fn default() -> Self {
        Self {
            image_model: "dall-e-3".to_owned(),
            speech_model: "tts-1".to_owned(),
            voice: "alloy".to_owned(),
            elevenlabs_model: "eleven_multilingual_v2".to_owned(),
            elevenlabs_voice: "21m00Tcm4TlvDq8ikWAM".to_owned(),
            transcription_models: BTreeMap::new(),
        }
    }
}
