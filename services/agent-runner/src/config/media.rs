//! Models for images, and voices: the table `[runner.media]`.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MediaConfig {
    pub image_model: String,
    pub voice: String,
    pub elevenlabs_model: String,
    /// ElevenLabs' voice id.
    pub elevenlabs_voice: String,
}

impl Default for MediaConfig {
    fn default() -> Self {
        Self {
            image_model: "gpt-image-2".to_owned(),
            voice: "alloy".to_owned(),
            elevenlabs_model: "eleven_multilingual_v2".to_owned(),
            elevenlabs_voice: "21m00Tcm4TlvDq8ikWAM".to_owned(),
        }
    }
}
