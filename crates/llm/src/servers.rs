//! Known servers with Chat Completions, by name.
//!
//! A provider with one of these names needs no base URL. The table also lists the optional fields
//! that a server accepts; an unlisted server gets only the fields that every server knows.

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
}

const BASE_FEATURES: ServerFeatures =
    ServerFeatures { completion_limit: false, effort: false, cache_key: false };
const EFFORT_FEATURES: ServerFeatures = ServerFeatures { effort: true, ..BASE_FEATURES };
const OPENAI_FEATURES: ServerFeatures =
    ServerFeatures { completion_limit: true, effort: true, cache_key: true };

pub const KNOWN_SERVERS: [KnownServer; 22] = [
    server("openai", "https://api.openai.com/v1", OPENAI_FEATURES),
    server("openrouter", "https://openrouter.ai/api/v1", EFFORT_FEATURES),
    server("groq", "https://api.groq.com/openai/v1", EFFORT_FEATURES),
    server("cerebras", "https://api.cerebras.ai/v1", EFFORT_FEATURES),
    server("deepseek", "https://api.deepseek.com/v1", BASE_FEATURES),
    server("mistral", "https://api.mistral.ai/v1", BASE_FEATURES),
    server("xai", "https://api.x.ai/v1", EFFORT_FEATURES),
    server("nvidia", "https://integrate.api.nvidia.com/v1", BASE_FEATURES),
    server("together", "https://api.together.xyz/v1", BASE_FEATURES),
    server("fireworks", "https://api.fireworks.ai/inference/v1", EFFORT_FEATURES),
    server("moonshot", "https://api.moonshot.cn/v1", BASE_FEATURES),
    server("kimi", "https://api.moonshot.cn/v1", BASE_FEATURES),
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
        assert_eq!(of("https://openrouter.ai/api/v1"), EFFORT_FEATURES);
        for url in ["https://example.com/v1", "http://127.0.0.1:8000/v1", "http://localhost/v1"] {
            assert_eq!(of(url), BASE_FEATURES, "{url}");
        }
        assert_eq!(by_name("ark").map(|known| known.takes), Some(BASE_FEATURES));
        assert_eq!(by_name("nobody"), None);
    }
}
