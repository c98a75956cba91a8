//! Known servers with Chat Completions, by name.
//!
//! A provider with one of these names needs no base URL. The table also lists the optional fields
//! that a server accepts; an unlisted server gets only the fields that every server knows.

use reqwest::Url;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    pub name: &'static str,
    pub base_url: &'static str,
    pub takes: Takes,
}

/// Optional request fields that a server accepts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Takes {
    /// `max_completion_tokens`, which has replaced `max_tokens`.
    pub completion_limit: bool,
    pub effort: bool,
    pub cache_key: bool,
}

const PLAIN: Takes = Takes { completion_limit: false, effort: false, cache_key: false };
const EFFORT: Takes = Takes { effort: true, ..PLAIN };
const OPENAI: Takes = Takes { completion_limit: true, effort: true, cache_key: true };

pub const KNOWN: [Known; 22] = [
    known("openai", "https://api.openai.com/v1", OPENAI),
    known("openrouter", "https://openrouter.ai/api/v1", EFFORT),
    known("groq", "https://api.groq.com/openai/v1", EFFORT),
    known("cerebras", "https://api.cerebras.ai/v1", EFFORT),
    known("deepseek", "https://api.deepseek.com/v1", PLAIN),
    known("mistral", "https://api.mistral.ai/v1", PLAIN),
    known("xai", "https://api.x.ai/v1", EFFORT),
    known("nvidia", "https://integrate.api.nvidia.com/v1", PLAIN),
    known("together", "https://api.together.xyz/v1", PLAIN),
    known("fireworks", "https://api.fireworks.ai/inference/v1", EFFORT),
    known("moonshot", "https://api.moonshot.cn/v1", PLAIN),
    known("kimi", "https://api.moonshot.cn/v1", PLAIN),
    known("zhipu", "https://open.bigmodel.cn/api/paas/v4", PLAIN),
    known("glm", "https://open.bigmodel.cn/api/paas/v4", PLAIN),
    known("qwen", "https://dashscope.aliyuncs.com/compatible-mode/v1", PLAIN),
    known("volcengine", "https://ark.cn-beijing.volces.com/api/v3", PLAIN),
    known("ark", "https://ark.cn-beijing.volces.com/api/v3", PLAIN),
    known("shengsuanyun", "https://router.shengsuanyun.com/api/v1", PLAIN),
    known("vllm", "http://127.0.0.1:8000/v1", PLAIN),
    known("llamacpp", "http://127.0.0.1:8080/v1", PLAIN),
    known("lmstudio", "http://127.0.0.1:1234/v1", PLAIN),
    known("ollama", "http://127.0.0.1:11434/v1", PLAIN),
];

const fn known(name: &'static str, base_url: &'static str, takes: Takes) -> Known {
    Known { name, base_url, takes }
}

#[must_use]
pub fn by_name(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name == name)
}

/// Returns the fields that the server at a URL accepts, by its host. Local servers share a host and
/// get the minimum.
pub(crate) fn takes(url: &Url) -> Takes {
    let host = |known: &Known| Url::parse(known.base_url).ok()?.host_str().map(str::to_owned);
    let is_it = |known: &&Known| {
        known.base_url.starts_with("https://") && host(known).as_deref() == url.host_str()
    };
    KNOWN.iter().find(is_it).map_or(PLAIN, |known| known.takes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_name_stands_for_one_address() {
        let names: BTreeSet<&str> = KNOWN.iter().map(|known| known.name).collect();
        assert_eq!(names.len(), KNOWN.len());
        for known in KNOWN {
            let url = Url::parse(known.base_url).unwrap();
            let is_local = url.host_str() == Some("127.0.0.1");
            assert_eq!(url.scheme(), if is_local { "http" } else { "https" }, "{}", known.name);
            assert!(!known.base_url.ends_with('/'), "{}", known.name);
        }
    }

    #[test]
    fn a_server_is_known_by_its_host_and_a_strange_one_takes_what_all_take() {
        let of = |url: &str| takes(&Url::parse(url).unwrap());

        assert_eq!(of("https://api.openai.com/v1"), OPENAI);
        assert_eq!(of("https://openrouter.ai/api/v1"), EFFORT);
        for url in ["https://example.com/v1", "http://127.0.0.1:8000/v1", "http://localhost/v1"] {
            assert_eq!(of(url), PLAIN, "{url}");
        }
        assert_eq!(by_name("ark").map(|known| known.takes), Some(PLAIN));
        assert_eq!(by_name("nobody"), None);
    }
}
