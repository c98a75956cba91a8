//! Known servers with Chat Completions, by name.
//!
//! A provider with one of these names needs no base URL. The table also lists the optional fields
//! that a server accepts, and what it demands of earlier messages; an unlisted server gets only the
//! fields that every server knows.
//!
//! | rule | who has it | what is done |
//! |---|---|---|
//! | a reply with calls needs its `reasoning_content` in all later requests, else 400 (<https://api-docs.deepseek.com/guides/thinking_mode>; Kimi: <https://github.com/anomalyco/opencode/issues/16318>) | DeepSeek, Kimi, Qianfan | it is kept and sent back, empty where it was lost |
//! | `reasoning_details` of a reply with calls are to be sent back unchanged (<https://openrouter.ai/docs/use-cases/reasoning-tokens#preserving-reasoning-blocks>) | OpenRouter | they are |
//! | a call's id has nine letters or digits, else 400 with code 3280 (<https://github.com/anomalyco/opencode/issues/1680>; the templates of the models demand it, too: <https://github.com/ml-explore/mlx-lm/issues/1375>) | Mistral and its models elsewhere | other ids are replaced by a hash |
//! | no message of a user right after a tool's result, else 400 with code 3230 (<https://github.com/avante-corp/avante.nvim/issues/2562>) | Mistral and its models elsewhere | a short message of the assistant comes between |
//! | thinking is on unless `thinking: {"type": "disabled"}` is sent (<https://api-docs.deepseek.com/guides/thinking_mode>) | DeepSeek | it is sent for the level `off` |
//! | thinking is on or off by `enable_thinking` (<https://www.alibabacloud.com/help/model-studio/deep-thinking>) | Qwen | it is sent for each level |
//! | thinking is `adaptive` or `disabled`, and `enabled` is refused (<https://github.com/CherryHQ/cherry-studio/issues/16431>) | MiniMax | the one or the other is sent |
//! | while a model thinks, no call can be demanded (<https://github.com/deepseek-ai/DeepSeek-V3/issues/1376>, <https://github.com/cloudwego/eino/issues/994>) | DeepSeek, Qwen, Kimi | the model does not think in such a request |
//! | `tool_choice` is `auto` or nothing (<https://github.com/onyx-dot-app/onyx/pull/14192>) | GLM | the client is told so |
//! | a seed is `random_seed` (<https://docs.mistral.ai/api/endpoint/chat>) | Mistral | it is |
//! | the answer's form is any object, not a schema (<https://github.com/llm-exe/llm-exe/issues/662>) | DeepSeek | any object is asked for; the schema is in the instructions |
//! | no form of the answer beside tools (<https://github.com/agno-agi/agno/issues/1065>) | Groq | it is in the instructions only |
//! | at most 128 tools (<https://github.com/vishalmysore/Tools4AI/issues/16>, <https://github.com/HunorLaczko/ha-groq-cloud-api/issues/25>, <https://learn.microsoft.com/azure/ai-services/openai/quotas-limits>) | OpenAI, Azure, Groq | the first 128 are sent, and the log says so |
//! | a tool's description has at most 1,024 characters (<https://github.com/OpenHands/OpenHands/issues/4838>) | Azure | the rest is cut off |
//! | from GPT-5.4 on no tools beside an effort (<https://github.com/BerriAI/litellm/pull/34569>, <https://github.com/can1357/oh-my-pi/issues/11052>) | OpenAI, Azure | such models are asked by Responses |
//! | a call is demanded by a word, not by a tool's name (<https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/670>) | LM Studio | only that tool is offered, and a call demanded |
//! | the answer's form is a schema, not any object (<https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/189>) | LM Studio | a schema of any object is sent |
//! | roles take turns, calls and results not counted, since templates of models demand it (<https://github.com/suitenumerique/conversations/issues/197>, <https://github.com/eclipse-theia/theia/issues/17104>) | vLLM, llama.cpp, LM Studio; Gemma elsewhere | messages of one side are joined, and a short answer follows results |
//! | a message has a `content`, if only `""` (<https://github.com/langchain-ai/langchain/issues/34140>, <https://github.com/volcengine/ai-app-lab/issues/212>) | xAI, Qwen, Doubao, LM Studio | everywhere |
//! | recordings are transcribed at `/audio/transcriptions` (<https://platform.openai.com/docs/api-reference/audio/createTranscription>, <https://console.groq.com/docs/speech-to-text>, <https://docs.mistral.ai/capabilities/audio_transcription>) | OpenAI, Groq, Mistral, servers of Whisper | `audio.rs` |
//! | an assistant message has a text or calls (<https://github.com/MoonshotAI/kimi-code/issues/1985>) | Kimi, Mistral, DeepSeek, GLM, llama.cpp | a placeholder stands for no text, everywhere |
//!
//! `holdfast_testkit::model::RULES` has servers that refuse what breaks these rules.

use reqwest::Url;

/// Name of a provider that only transcribes recordings: a local server of Whisper.
pub const WHISPER: &str = "whisper";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownServer {
    pub name: &'static str,
    pub base_url: &'static str,
    pub takes: ServerFeatures,
}

/// Optional request fields that a server accepts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerFeatures {
    /// `max_completion_tokens`, which has replaced `max_tokens`.
    pub completion_limit: bool,
    pub effort: bool,
    pub cache_key: bool,
    pub reasoning: ReasoningBack,
    pub history: HistoryRules,
    pub switch: ThinkingSwitch,
    pub demands: CallDemands,
    pub forms: AnswerForms,
    /// Maximum number of tools.
    pub max_tools: Option<usize>,
    /// Maximum length of a tool's description, in characters.
    pub max_description: Option<usize>,
    /// Whether newer models are asked by Responses if they have tools.
    pub responses: bool,
    /// Whether the field for a seed is `random_seed`.
    pub random_seed: bool,
    /// Model that transcribes recordings where none is chosen, at `/audio/transcriptions`.
    pub transcription: Option<&'static str>,
}

/// When a client can demand a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CallDemands {
    #[default]
    Always,
    /// While the model does not think.
    WithoutThinking,
    /// Of any tool that is offered, not of one by its name.
    ByWord,
    Never,
}

/// Forms of an answer that a server enforces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AnswerForms {
    #[default]
    All,
    /// Any object, but no schema.
    Object,
    /// A schema, but not any object.
    Schema,
    /// All, but none in a request with tools.
    WithoutTools,
}

/// How a server lets models think or not that do so by a switch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ThinkingSwitch {
    #[default]
    No,
    /// `thinking: {"type": "enabled"}` or `"disabled"`.
    Type,
    /// `thinking: {"type": "adaptive"}` or `"disabled"`.
    Adaptive,
    /// `enable_thinking`, which is true or false.
    Flag,
}

/// How a server wants the reasoning of earlier replies back. Only replies with calls have it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReasoningBack {
    /// Not at all, or it refuses the field.
    #[default]
    No,
    /// As a text in `reasoning_content`, which must be there.
    Content,
    /// As the list `reasoning_details`, unchanged.
    Details,
}

/// Rules of a server about the messages before the newest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HistoryRules {
    #[default]
    OpenAi,
    /// User and assistant take turns; calls and their results do not count.
    Turns,
    /// The same, and ids of calls have nine letters or digits.
    Mistral,
}

pub(crate) const BASE_FEATURES: ServerFeatures = ServerFeatures {
    completion_limit: false,
    effort: false,
    cache_key: false,
    reasoning: ReasoningBack::No,
    history: HistoryRules::OpenAi,
    switch: ThinkingSwitch::No,
    demands: CallDemands::Always,
    forms: AnswerForms::All,
    max_tools: None,
    max_description: None,
    responses: false,
    random_seed: false,
    transcription: None,
};
const EFFORT_FEATURES: ServerFeatures = ServerFeatures { effort: true, ..BASE_FEATURES };
const OPENAI_FEATURES: ServerFeatures = ServerFeatures {
    completion_limit: true,
    effort: true,
    cache_key: true,
    max_tools: Some(128),
    responses: true,
    transcription: Some("gpt-4o-mini-transcribe"),
    ..BASE_FEATURES
};
const OPENROUTER_FEATURES: ServerFeatures =
    ServerFeatures { reasoning: ReasoningBack::Details, ..EFFORT_FEATURES };
const GROQ_FEATURES: ServerFeatures = ServerFeatures {
    forms: AnswerForms::WithoutTools,
    max_tools: Some(128),
    transcription: Some("whisper-large-v3-turbo"),
    ..EFFORT_FEATURES
};
const KIMI_FEATURES: ServerFeatures = ServerFeatures {
    reasoning: ReasoningBack::Content,
    switch: ThinkingSwitch::Type,
    demands: CallDemands::WithoutThinking,
    ..BASE_FEATURES
};
const DEEPSEEK_FEATURES: ServerFeatures =
    ServerFeatures { forms: AnswerForms::Object, ..KIMI_FEATURES };
const MISTRAL_FEATURES: ServerFeatures = ServerFeatures {
    history: HistoryRules::Mistral,
    random_seed: true,
    transcription: Some("voxtral-mini-latest"),
    ..BASE_FEATURES
};
const QWEN_FEATURES: ServerFeatures = ServerFeatures {
    switch: ThinkingSwitch::Flag,
    demands: CallDemands::WithoutThinking,
    ..BASE_FEATURES
};
const GLM_FEATURES: ServerFeatures =
    ServerFeatures { switch: ThinkingSwitch::Type, demands: CallDemands::Never, ..BASE_FEATURES };
const MINIMAX_FEATURES: ServerFeatures =
    ServerFeatures { switch: ThinkingSwitch::Adaptive, ..BASE_FEATURES };
const ARK_FEATURES: ServerFeatures =
    ServerFeatures { switch: ThinkingSwitch::Type, ..BASE_FEATURES };
const WHISPER_FEATURES: ServerFeatures =
    ServerFeatures { transcription: Some("whisper-1"), ..BASE_FEATURES };
const LOCAL_FEATURES: ServerFeatures =
    ServerFeatures { history: HistoryRules::Turns, ..BASE_FEATURES };
const LM_STUDIO_FEATURES: ServerFeatures =
    ServerFeatures { demands: CallDemands::ByWord, forms: AnswerForms::Schema, ..LOCAL_FEATURES };
/// What Azure takes, in its API without versions.
pub(crate) const AZURE_FEATURES: ServerFeatures =
    ServerFeatures { max_description: Some(1_024), ..OPENAI_FEATURES };

/// Parts of the names of models that have Mistral's chat templates.
const MISTRAL_MODELS: [&str; 7] =
    ["mistral", "mixtral", "ministral", "magistral", "codestral", "devstral", "pixtral"];
/// Parts of the names of models whose templates let roles take turns.
const TURN_MODELS: [&str; 1] = ["gemma"];
/// Parts of the names of models that want their reasoning back.
const REASONING_MODELS: [&str; 2] = ["deepseek", "kimi"];

impl ServerFeatures {
    /// The same for one of the server's models: an unlisted server that runs a model of a vendor has
    /// the vendor's rules for messages.
    pub(crate) fn for_model(self, model: &str) -> Self {
        let model = model.to_ascii_lowercase();
        let is_of = |names: &[&str]| names.iter().any(|name| model.contains(name));
        let history = match self.history {
            HistoryRules::OpenAi | HistoryRules::Turns if is_of(&MISTRAL_MODELS) => {
                HistoryRules::Mistral
            }
            HistoryRules::OpenAi if is_of(&TURN_MODELS) => HistoryRules::Turns,
            history => history,
        };
        let reasoning = match self.reasoning {
            // Listed servers say what they take; some refuse unknown fields.
            ReasoningBack::No
                if matches!(self, BASE_FEATURES | LOCAL_FEATURES | LM_STUDIO_FEATURES)
                    && is_of(&REASONING_MODELS) =>
            {
                ReasoningBack::Content
            }
            reasoning => reasoning,
        };
        Self { reasoning, history, ..self }
    }
}

pub const KNOWN_SERVERS: [KnownServer; 24] = [
    server("openai", "https://api.openai.com/v1", OPENAI_FEATURES),
    server("openrouter", "https://openrouter.ai/api/v1", OPENROUTER_FEATURES),
    server("groq", "https://api.groq.com/openai/v1", GROQ_FEATURES),
    server("cerebras", "https://api.cerebras.ai/v1", EFFORT_FEATURES),
    server("deepseek", "https://api.deepseek.com/v1", DEEPSEEK_FEATURES),
    server("mistral", "https://api.mistral.ai/v1", MISTRAL_FEATURES),
    server("xai", "https://api.x.ai/v1", EFFORT_FEATURES),
    server("nvidia", "https://integrate.api.nvidia.com/v1", BASE_FEATURES),
    server("together", "https://api.together.xyz/v1", BASE_FEATURES),
    server("fireworks", "https://api.fireworks.ai/inference/v1", EFFORT_FEATURES),
    server("moonshot", "https://api.moonshot.cn/v1", KIMI_FEATURES),
    server("kimi", "https://api.moonshot.cn/v1", KIMI_FEATURES),
    server("zhipu", "https://open.bigmodel.cn/api/paas/v4", GLM_FEATURES),
    server("glm", "https://open.bigmodel.cn/api/paas/v4", GLM_FEATURES),
    server("qwen", "https://dashscope.aliyuncs.com/compatible-mode/v1", QWEN_FEATURES),
    server("volcengine", "https://ark.cn-beijing.volces.com/api/v3", ARK_FEATURES),
    server("ark", "https://ark.cn-beijing.volces.com/api/v3", ARK_FEATURES),
    server("minimax", "https://api.minimax.io/v1", MINIMAX_FEATURES),
    server("shengsuanyun", "https://router.shengsuanyun.com/api/v1", BASE_FEATURES),
    server("vllm", "http://127.0.0.1:8000/v1", LOCAL_FEATURES),
    server("llamacpp", "http://127.0.0.1:8080/v1", LOCAL_FEATURES),
    server("lmstudio", "http://127.0.0.1:1234/v1", LM_STUDIO_FEATURES),
    server("ollama", "http://127.0.0.1:11434/v1", BASE_FEATURES),
    // A server of Whisper, which has no chat. Most ignore the model's name or know this one.
    server(WHISPER, "http://127.0.0.1:8000/v1", WHISPER_FEATURES),
];

const fn server(name: &'static str, base_url: &'static str, takes: ServerFeatures) -> KnownServer {
    KnownServer { name, base_url, takes }
}

#[must_use]
pub fn by_name(name: &str) -> Option<&'static KnownServer> {
    KNOWN_SERVERS.iter().find(|known| known.name == name)
}

/// Returns what the server of a provider accepts: by its host, else by the provider's name, which may be
/// that of a known server behind another address. Any other server gets the minimum.
pub(crate) fn features_of(provider: &str, url: &Url) -> ServerFeatures {
    let host = |known: &KnownServer| Url::parse(known.base_url).ok()?.host_str().map(str::to_owned);
    let is_it = |known: &&KnownServer| {
        known.base_url.starts_with("https://") && host(known).as_deref() == url.host_str()
    };
    let known = KNOWN_SERVERS.iter().find(is_it).or_else(|| by_name(provider));
    known.map_or(BASE_FEATURES, |known| known.takes)
}

/// Whether a model of OpenAI is refused in Chat Completions if it has tools: from GPT-5.4 on.
pub(crate) fn needs_responses(model: &str) -> bool {
    let version = model.strip_prefix("gpt-").and_then(|rest| rest.split('-').next());
    let mut parts = version.unwrap_or_default().split('.').map(str::parse::<u32>);
    let (major, minor) = (parts.next(), parts.next());
    match (major, minor) {
        (Some(Ok(5)), Some(Ok(minor))) => minor >= 4,
        (Some(Ok(major)), None | Some(Ok(_))) => major > 5,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_name_stands_for_one_address() {
        let names: BTreeSet<&str> = KNOWN_SERVERS.iter().map(|known| known.name).collect();
        assert_eq!(names.len(), KNOWN_SERVERS.len());
        for known in KNOWN_SERVERS {
            let url = Url::parse(known.base_url).unwrap();
            let is_local = url.host_str() == Some("127.0.0.1");
            assert_eq!(url.scheme(), if is_local { "http" } else { "https" }, "{}", known.name);
            assert!(!known.base_url.ends_with('/'), "{}", known.name);
        }
    }

    #[test]
    fn a_server_is_known_by_its_host_or_its_name_and_a_strange_one_takes_what_all_take() {
        let of = |name: &str, url: &str| features_of(name, &Url::parse(url).unwrap());

        assert_eq!(of("mine", "https://api.openai.com/v1"), OPENAI_FEATURES);
        assert_eq!(of("mine", "https://openrouter.ai/api/v1"), OPENROUTER_FEATURES);
        assert_eq!(of("mine", "https://api.mistral.ai/v1").history, HistoryRules::Mistral);
        for url in ["https://example.com/v1", "http://127.0.0.1:8000/v1", "http://localhost/v1"] {
            assert_eq!(of("mine", url), BASE_FEATURES, "{url}");
        }
        assert_eq!(of("deepseek", "https://proxy.example.com/v1"), DEEPSEEK_FEATURES);
        assert_eq!(of("deepseek", "https://api.openai.com/v1"), OPENAI_FEATURES);
        assert_eq!(by_name("ark").map(|known| known.takes), Some(ARK_FEATURES));
        assert_eq!(by_name("nobody"), None);
    }

    #[test]
    fn newer_models_of_openai_are_asked_by_responses() {
        for model in ["gpt-5.4", "gpt-5.6-terra", "gpt-6-sol", "gpt-6.1-sol", "gpt-10"] {
            assert!(needs_responses(model), "{model}");
        }
        for model in ["gpt-5", "gpt-5-mini", "gpt-5.2", "gpt-4.1", "gpt-4o", "gpt-oss", "o3", "x"] {
            assert!(!needs_responses(model), "{model}");
        }
    }

    #[test]
    fn a_vendor_s_model_has_its_rules_on_other_servers_too() {
        let rules = |features: ServerFeatures, model: &str| {
            let features = features.for_model(model);
            (features.reasoning, features.history)
        };
        let (no, content) = (ReasoningBack::No, ReasoningBack::Content);
        let (openai, mistral) = (HistoryRules::OpenAi, HistoryRules::Mistral);

        assert_eq!(rules(BASE_FEATURES, "llama-4"), (no, openai));
        assert_eq!(rules(BASE_FEATURES, "mistralai/Devstral-Small"), (no, mistral));
        assert_eq!(rules(BASE_FEATURES, "DeepSeek-V4"), (content, openai));
        assert_eq!(rules(LOCAL_FEATURES, "Kimi-K2"), (content, HistoryRules::Turns));
        assert_eq!(rules(BASE_FEATURES, "gemma-4"), (no, HistoryRules::Turns));
        assert_eq!(rules(LOCAL_FEATURES, "devstral"), (no, mistral));
        assert_eq!(rules(EFFORT_FEATURES, "moonshotai/kimi-k2"), (no, openai));
        assert_eq!(rules(OPENROUTER_FEATURES, "deepseek/v4").0, ReasoningBack::Details);
    }
}
