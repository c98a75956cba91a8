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
//! | an assistant message has a text or calls (<https://github.com/MoonshotAI/kimi-code/issues/1985>) | Kimi, Mistral | a placeholder stands for no text, everywhere |

use reqwest::Url;

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
}

/// How a server lets models think or not that do so by a switch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ThinkingSwitch {
    #[default]
    No,
    /// `thinking: {"type": "enabled"}` or `"disabled"`.
    Type,
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
    /// Ids of calls have nine letters or digits, and no message of a user follows a tool's result.
    Mistral,
}

const BASE_FEATURES: ServerFeatures = ServerFeatures {
    completion_limit: false,
    effort: false,
    cache_key: false,
    reasoning: ReasoningBack::No,
    history: HistoryRules::OpenAi,
    switch: ThinkingSwitch::No,
};
const EFFORT_FEATURES: ServerFeatures = ServerFeatures { effort: true, ..BASE_FEATURES };
const OPENAI_FEATURES: ServerFeatures =
    ServerFeatures { completion_limit: true, effort: true, cache_key: true, ..BASE_FEATURES };
const OPENROUTER_FEATURES: ServerFeatures =
    ServerFeatures { reasoning: ReasoningBack::Details, ..EFFORT_FEATURES };
const REASONING_FEATURES: ServerFeatures =
    ServerFeatures { reasoning: ReasoningBack::Content, ..BASE_FEATURES };
const DEEPSEEK_FEATURES: ServerFeatures =
    ServerFeatures { switch: ThinkingSwitch::Type, ..REASONING_FEATURES };
const MISTRAL_FEATURES: ServerFeatures =
    ServerFeatures { history: HistoryRules::Mistral, ..BASE_FEATURES };

/// Parts of the names of models that have Mistral's chat templates.
const MISTRAL_MODELS: [&str; 7] =
    ["mistral", "mixtral", "ministral", "magistral", "codestral", "devstral", "pixtral"];
/// Parts of the names of models that want their reasoning back.
const REASONING_MODELS: [&str; 2] = ["deepseek", "kimi"];

impl ServerFeatures {
    /// The same for one of the server's models: an unlisted server that runs a model of a vendor has
    /// the vendor's rules for messages.
    pub(crate) fn for_model(self, model: &str) -> Self {
        let model = model.to_ascii_lowercase();
        let is_of = |names: &[&str]| names.iter().any(|name| model.contains(name));
        let history = match self.history {
            HistoryRules::OpenAi if is_of(&MISTRAL_MODELS) => HistoryRules::Mistral,
            history => history,
        };
        let reasoning = match self.reasoning {
            // Listed servers say what they take; some refuse unknown fields.
            ReasoningBack::No if self == BASE_FEATURES && is_of(&REASONING_MODELS) => {
                ReasoningBack::Content
            }
            reasoning => reasoning,
        };
        Self { reasoning, history, ..self }
    }
}

pub const KNOWN_SERVERS: [KnownServer; 22] = [
    server("openai", "https://api.openai.com/v1", OPENAI_FEATURES),
    server("openrouter", "https://openrouter.ai/api/v1", OPENROUTER_FEATURES),
    server("groq", "https://api.groq.com/openai/v1", EFFORT_FEATURES),
    server("cerebras", "https://api.cerebras.ai/v1", EFFORT_FEATURES),
    server("deepseek", "https://api.deepseek.com/v1", DEEPSEEK_FEATURES),
    server("mistral", "https://api.mistral.ai/v1", MISTRAL_FEATURES),
    server("xai", "https://api.x.ai/v1", EFFORT_FEATURES),
    server("nvidia", "https://integrate.api.nvidia.com/v1", BASE_FEATURES),
    server("together", "https://api.together.xyz/v1", BASE_FEATURES),
    server("fireworks", "https://api.fireworks.ai/inference/v1", EFFORT_FEATURES),
    server("moonshot", "https://api.moonshot.cn/v1", REASONING_FEATURES),
    server("kimi", "https://api.moonshot.cn/v1", REASONING_FEATURES),
    server("zhipu", "https://open.bigmodel.cn/api/paas/v4", BASE_FEATURES),
    server("glm", "https://open.bigmodel.cn/api/paas/v4", BASE_FEATURES),
    server("qwen", "https://dashscope.aliyuncs.com/compatible-mode/v1", BASE_FEATURES),
    server("volcengine", "https://ark.cn-beijing.volces.com/api/v3", BASE_FEATURES),
    server("ark", "https://ark.cn-beijing.volces.com/api/v3", BASE_FEATURES),
    server("shengsuanyun", "https://router.shengsuanyun.com/api/v1", BASE_FEATURES),
    server("vllm", "http://127.0.0.1:8000/v1", BASE_FEATURES),
    server("llamacpp", "http://127.0.0.1:8080/v1", BASE_FEATURES),
    server("lmstudio", "http://127.0.0.1:1234/v1", BASE_FEATURES),
    server("ollama", "http://127.0.0.1:11434/v1", BASE_FEATURES),
];

const fn server(name: &'static str, base_url: &'static str, takes: ServerFeatures) -> KnownServer {
    KnownServer { name, base_url, takes }
}

#[must_use]
pub fn by_name(name: &str) -> Option<&'static KnownServer> {
    KNOWN_SERVERS.iter().find(|known| known.name == name)
}

/// Returns the fields that the server at a URL accepts, by its host. Local servers share a host and
/// get the minimum.
pub(crate) fn features_at(url: &Url) -> ServerFeatures {
    let host = |known: &KnownServer| Url::parse(known.base_url).ok()?.host_str().map(str::to_owned);
    let is_it = |known: &&KnownServer| {
        known.base_url.starts_with("https://") && host(known).as_deref() == url.host_str()
    };
    KNOWN_SERVERS.iter().find(is_it).map_or(BASE_FEATURES, |known| known.takes)
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
    fn a_server_is_known_by_its_host_and_a_strange_one_takes_what_all_take() {
        let of = |url: &str| features_at(&Url::parse(url).unwrap());

        assert_eq!(of("https://api.openai.com/v1"), OPENAI_FEATURES);
        assert_eq!(of("https://openrouter.ai/api/v1"), OPENROUTER_FEATURES);
        assert_eq!(of("https://api.mistral.ai/v1").history, HistoryRules::Mistral);
        for url in ["https://example.com/v1", "http://127.0.0.1:8000/v1", "http://localhost/v1"] {
            assert_eq!(of(url), BASE_FEATURES, "{url}");
        }
        assert_eq!(by_name("ark").map(|known| known.takes), Some(BASE_FEATURES));
        assert_eq!(by_name("nobody"), None);
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
        assert_eq!(rules(EFFORT_FEATURES, "moonshotai/kimi-k2"), (no, openai));
        assert_eq!(rules(OPENROUTER_FEATURES, "deepseek/v4").0, ReasoningBack::Details);
    }
}
