//! Model servers on this machine: Ollama, LM Studio, vLLM and llama.cpp.
//!
//! Any program may listen at their ports. A list of models counts only if each of its entries has
//! the mark that this kind of server writes, and only names that a shell leaves as they are.

use std::time::Duration;

use serde_json::{Value, json};

/// Time limit of looking for one server, its answer included.
const PROBE_TIMEOUT: Duration = Duration::from_millis(800);
/// Maximum size of a list of models, in bytes.
const MAX_LIST_BYTES: usize = 1 << 20;
/// Maximum number of a server's models that are offered.
const MAX_MODELS: usize = 50;
/// Maximum length of a model's name.
const MAX_MODEL_NAME_BYTES: usize = 200;
/// Number of a server's models that are named in a line.
const MAX_SHOWN_MODELS: usize = 5;

/// Server that is looked for at its usual address.
struct KnownServer {
    /// Name of its provider.
    provider: &'static str,
    title: &'static str,
    base_url: &'static str,
    mark: Mark,
}

/// Mark of a kind of server in each entry of its list of models.
#[derive(Clone, Copy)]
enum Mark {
    /// `GET /api/tags`: each model has a digest.
    Digest,
    /// `GET /v1/models`: each model has this owner.
    Owner(&'static str),
}

static KNOWN_SERVERS: [KnownServer; 4] = [
    KnownServer {
        provider: "ollama",
        title: "Ollama",
        base_url: "http://127.0.0.1:11434",
        mark: Mark::Digest,
    },
    KnownServer {
        provider: "lmstudio",
        title: "LM Studio",
        base_url: "http://127.0.0.1:1234/v1",
        mark: Mark::Owner("organization_owner"),
    },
    KnownServer {
        provider: "vllm",
        title: "vLLM",
        base_url: "http://127.0.0.1:8000/v1",
        mark: Mark::Owner("vllm"),
    },
    KnownServer {
        provider: "llamacpp",
        title: "llama.cpp",
        base_url: "http://127.0.0.1:8080/v1",
        mark: Mark::Owner("llamacpp"),
    },
];

/// Model server that answers on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalServer {
    /// Name of its provider.
    pub provider: &'static str,
    pub title: &'static str,
    pub base_url: String,
    /// Names of its models for chat, in its order; never empty.
    pub models: Vec<String>,
}

impl LocalServer {
    /// Looks for all servers at their usual addresses.
    pub async fn find_all() -> Vec<Self> {
        let [one, two, three, four] =
            KNOWN_SERVERS.each_ref().map(|known| known.probe(known.base_url));
        let servers: [Option<Self>; 4] = tokio::join!(one, two, three, four).into();
        servers.into_iter().flatten().collect()
    }

    /// Looks for the server of a provider, at this address or at the usual one.
    pub async fn find(provider: &str, base_url: Option<&str>) -> Option<Self> {
        let known = KNOWN_SERVERS.iter().find(|known| known.provider == provider)?;
        let base_url = base_url.filter(|url| !url.is_empty()).unwrap_or(known.base_url);
        known.probe(base_url).await
    }

    /// The first of its models, in a line.
    pub fn shown_models(&self) -> String {
        let shown = self.models.iter().take(MAX_SHOWN_MODELS).map(String::as_str);
        let shown = shown.collect::<Vec<_>>().join(", ");
        match self.models.len().checked_sub(MAX_SHOWN_MODELS) {
            None | Some(0) => shown,
            Some(more) => format!("{shown} and {more} more"),
        }
    }

    pub fn view(&self) -> Value {
        json!({ "provider": self.provider, "base_url": self.base_url, "models": self.models })
    }
}

impl KnownServer {
    async fn probe(&self, base_url: &str) -> Option<LocalServer> {
        holdfast_egress::loopback_address(base_url)?;
        let base = base_url.trim_end_matches('/');
        let url = match self.mark {
            Mark::Digest => format!("{}/api/tags", base.trim_end_matches("/v1")),
            Mark::Owner(_) => format!("{base}/models"),
        };
        let listed = tokio::time::timeout(PROBE_TIMEOUT, read_json(&url)).await.ok()??;
        let models = self.mark.models(&listed)?;
        let (provider, title) = (self.provider, self.title);
        Some(LocalServer { provider, title, base_url: base_url.to_owned(), models })
    }
}

impl Mark {
    /// Models of a list; `None` if another program wrote it.
    fn models(self, listed: &Value) -> Option<Vec<String>> {
        let (list, name) = match self {
            Self::Digest => ("models", "name"),
            Self::Owner(_) => ("data", "id"),
        };
        let entries = listed[list].as_array()?;
        let is_marked = |entry: &Value| match self {
            Self::Digest => entry["digest"].is_string(),
            Self::Owner(owner) => entry["owned_by"] == owner,
        };
        if !entries.iter().all(is_marked) {
            return None;
        }
        let names = entries.iter().filter_map(|entry| entry[name].as_str());
        let names = names.filter(|name| is_plain_name(name) && !is_for_embeddings(name));
        let models: Vec<String> = names.take(MAX_MODELS).map(str::to_owned).collect();
        (!models.is_empty()).then_some(models)
    }
}

/// Whether a name means nothing else to a shell or a terminal.
fn is_plain_name(name: &str) -> bool {
    (1..=MAX_MODEL_NAME_BYTES).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/')
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"._:/@+-".contains(&c))
}

/// Whether a model answers no messages, by its name: the lists do not say so.
fn is_for_embeddings(name: &str) -> bool {
    name.to_ascii_lowercase().contains("embed")
}

async fn read_json(url: &str) -> Option<Value> {
    let client = holdfast_egress::client_builder(PROBE_TIMEOUT).ok()?.no_proxy().build().ok()?;
    let mut response = client.get(url).send().await.ok()?;
    if response.status().as_u16() != 200 {
        return None;
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_LIST_BYTES {
            return None;
        }
    }
    serde_json::from_slice(&body).ok()
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    /// Serves this body at one path of a free port, and returns the address.
    async fn serve(path: &'static str, body: String) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = [0; 4096];
                let read = stream.read(&mut head).await.unwrap();
                let is_it = head[..read].starts_with(format!("GET {path} ").as_bytes());
                let status = if is_it { "200 OK" } else { "404 Not Found" };
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n\
                     content-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        at
    }

    fn openai_list(owner: &str, ids: &[&str]) -> String {
        let entry = |id: &&str| json!({ "id": id, "object": "model", "owned_by": owner });
        let data: Vec<Value> = ids.iter().map(entry).collect();
        json!({ "object": "list", "data": data }).to_string()
    }

    #[tokio::test]
    async fn each_server_is_found_with_its_models_for_chat() {
        let tags = json!({ "models": [
            { "name": "nomic-embed-text:latest", "digest": "0a10" },
            { "name": "qwen3:4b", "digest": "2bfd", "size": 1 },
        ] });
        let ollama = serve("/api/tags", tags.to_string()).await;
        let found = LocalServer::find("ollama", Some(&ollama)).await.unwrap();
        assert_eq!(found.models, ["qwen3:4b"]);
        assert_eq!((found.provider, &found.base_url), ("ollama", &ollama));

        for (provider, owner) in
            [("lmstudio", "organization_owner"), ("vllm", "vllm"), ("llamacpp", "llamacpp")]
        {
            let list = openai_list(owner, &["Qwen/Qwen3-8B", "text-embedding-nomic-v1.5"]);
            let base_url = format!("{}/v1", serve("/v1/models", list).await);
            let found = LocalServer::find(provider, Some(&base_url)).await.unwrap();
            assert_eq!(found.models, ["Qwen/Qwen3-8B"], "{provider}");
        }
    }

    #[tokio::test]
    async fn another_program_at_the_port_is_no_model_server() {
        let large = openai_list("vllm", &["x"]) + &" ".repeat(MAX_LIST_BYTES);
        let mixed = json!({ "data": [{ "id": "a", "owned_by": "vllm" }, { "id": "b" }] });
        for body in [
            "<html>".to_owned(),
            "{}".to_owned(),
            "[]".to_owned(),
            json!({ "data": [] }).to_string(),
            openai_list("acme", &["x"]),
            openai_list("vllm", &["$(reboot)", "a b", "\u{1b}[2J", "-rf", ""]),
            mixed.to_string(),
            large,
        ] {
            let base_url = format!("{}/v1", serve("/v1/models", body.clone()).await);
            let found = LocalServer::find("vllm", Some(&base_url)).await;
            assert_eq!(found, None, "{body:.100}");
        }
        let tags = serve("/api/tags", json!({ "models": [{ "name": "x" }] }).to_string()).await;
        assert_eq!(LocalServer::find("ollama", Some(&tags)).await, None);
        assert_eq!(LocalServer::find("openai", Some(&tags)).await, None);
    }

    #[tokio::test]
    async fn a_port_that_is_closed_or_silent_costs_little_time() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let silent = format!("http://{}/v1", silent.local_addr().unwrap());
        let begun = std::time::Instant::now();

        for base_url in [silent.as_str(), "http://127.0.0.1:1/v1", "http://192.0.2.1/v1"] {
            assert_eq!(LocalServer::find("vllm", Some(base_url)).await, None, "{base_url}");
        }

        assert!(begun.elapsed() < 5 * PROBE_TIMEOUT, "{:?}", begun.elapsed());
    }

    #[test]
    fn many_models_are_shown_in_one_line() {
        let models = (0..7).map(|n| format!("m{n}")).collect();
        let base_url = String::new();
        let server = LocalServer { provider: "vllm", title: "vLLM", base_url, models };

        assert_eq!(server.shown_models(), "m0, m1, m2, m3, m4 and 2 more");
    }
}
