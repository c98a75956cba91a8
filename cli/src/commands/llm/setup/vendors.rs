//! Providers that `holdfast setup` knows.

/// A provider that is offered by name.
#[derive(Debug, Clone, Copy)]
pub struct KnownVendor {
    /// Name of the provider, the first part of its models' names.
    pub name: &'static str,
    pub title: &'static str,
    kind: &'static str,
    /// Page where keys are made; empty if there are none.
    keys: &'static str,
}

/// In the order in which they are offered.
pub const VENDORS: [KnownVendor; 10] = [
    known("openai", "OpenAI", "openai", "https://platform.openai.com/api-keys"),
    known("anthropic", "Anthropic", "anthropic", "https://console.anthropic.com/settings/keys"),
    known("gemini", "Google Gemini", "gemini", "https://aistudio.google.com/apikey"),
    known("openrouter", "OpenRouter", "openai", "https://openrouter.ai/settings/keys"),
    known("ollama", "Ollama, on a machine of your own", "ollama", ""),
    known("groq", "Groq", "openai", "https://console.groq.com/keys"),
    known("deepseek", "DeepSeek", "openai", "https://platform.deepseek.com"),
    known("mistral", "Mistral", "openai", "https://console.mistral.ai/api-keys"),
    known("xai", "xAI", "openai", "https://console.x.ai"),
    known("together", "Together AI", "openai", "https://api.together.ai/settings/api-keys"),
];

/// Names of servers on the caller's own machine, whose address the runners know and which need no
/// key.
const LOCAL_SERVERS: [&str; 4] = ["ollama", "vllm", "llamacpp", "lmstudio"];

/// Further names whose address the runners know.
const NAMED_SERVERS: [&str; 13] = [
    "openai-responses",
    "cerebras",
    "nvidia",
    "fireworks",
    "moonshot",
    "kimi",
    "zhipu",
    "glm",
    "qwen",
    "minimax",
    "volcengine",
    "ark",
    "shengsuanyun",
];

const fn known(
    name: &'static str,
    title: &'static str,
    kind: &'static str,
    keys: &'static str,
) -> KnownVendor {
    KnownVendor { name, title, kind, keys }
}

/// Needs of a provider: what has to be asked about it.
#[derive(Debug, Clone)]
pub struct Vendor {
    pub name: String,
    pub kind: &'static str,
    pub keys: &'static str,
    pub needs_key: bool,
    /// Whether its address must be given.
    pub needs_address: bool,
}

impl Vendor {
    /// Returns what a provider of this name needs. One that is not known has OpenAI's API.
    pub fn find(name: &str) -> Self {
        let known = VENDORS.iter().find(|vendor| vendor.name == name);
        let is_local = LOCAL_SERVERS.contains(&name);
        let kind = if name == "openai-responses" { "openai-responses" } else { "openai" };
        Self {
            name: name.to_owned(),
            kind: known.map_or(kind, |vendor| vendor.kind),
            keys: known.map_or("", |vendor| vendor.keys),
            needs_key: !is_local,
            needs_address: known.is_none() && !is_local && !NAMED_SERVERS.contains(&name),
        }
    }

    /// Names of the environment variables that may have its key.
    pub fn variables(&self) -> Vec<String> {
        match self.name.as_str() {
            "ollama" => Vec::new(),
            "openai-responses" => vec!["OPENAI_API_KEY".to_owned()],
            "gemini" => vec!["GEMINI_API_KEY".to_owned(), "GOOGLE_API_KEY".to_owned()],
            name => vec![format!("{}_API_KEY", name.to_uppercase().replace(['-', '.'], "_"))],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_provider_says_what_it_needs() {
        for (name, kind, needs_key, needs_address, variable) in [
            ("anthropic", "anthropic", true, false, Some("ANTHROPIC_API_KEY")),
            ("gemini", "gemini", true, false, Some("GEMINI_API_KEY")),
            ("openrouter", "openai", true, false, Some("OPENROUTER_API_KEY")),
            ("ollama", "ollama", false, false, None),
            ("cerebras", "openai", true, false, Some("CEREBRAS_API_KEY")),
            ("my-server", "openai", true, true, Some("MY_SERVER_API_KEY")),
        ] {
            let vendor = Vendor::find(name);

            assert_eq!(
                (vendor.kind, vendor.needs_key, vendor.needs_address),
                (kind, needs_key, needs_address),
                "{name}"
            );
            assert_eq!(vendor.variables().first().map(String::as_str), variable, "{name}");
        }
    }
}
