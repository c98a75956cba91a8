//! Text that `up` prints when everything is ready: addresses, and commands to try.

use std::env;

use holdfast_proto::gateway::v1::{CreateSignInLinkRequest, console_client::ConsoleClient};
use tonic::Request;

use crate::{
    client::program,
    commands::local_servers::LocalServer,
    error::Error,
    screen::Screen,
    state_dir::{State, StateDir},
    tokens::bearer,
};

/// Services that run once, however many gateways and runners there are: the channel bridge, the
/// scheduler, the memory service and the secrets service.
const SINGLE_SERVICES: usize = 4;

/// Prints the text, or the state as JSON with `--output json`.
///
/// # Errors
///
/// If stdout is closed.
pub async fn print(home: &StateDir, state: &State, screen: Screen) -> Result<(), Error> {
    let (link, local) = tokio::join!(sign_in_link(state), LocalServer::find_all());
    if screen.is_json() {
        let mut state = serde_json::to_value(state).map_err(anyhow::Error::from)?;
        state["console"] = link.into();
        state["local_models"] = local.iter().map(LocalServer::view).collect();
        return screen.one(&[], &state);
    }
    screen.print(&text(home, state, link.as_deref(), &local, &program()))
}

/// Link that signs in to the web console; `None` if the gateway gives none.
async fn sign_in_link(state: &State) -> Option<String> {
    let mut client = ConsoleClient::connect(state.gateway.grpc.clone()).await.ok()?;
    let mut request = Request::new(CreateSignInLinkRequest::default());
    request.metadata_mut().insert("authorization", bearer(&state.key).ok()?);
    Some(client.create_sign_in_link(request).await.ok()?.into_inner().url)
}

fn text(
    home: &StateDir,
    state: &State,
    link: Option<&str>,
    local: &[LocalServer],
    program: &str,
) -> String {
    let State { gateway, key, pid, .. } = state;
    let dir = shown(home);
    let processes = if state.split {
        let services = state.gateways.len() + state.runners.len() + SINGLE_SERVICES;
        format!("{services} processes under {pid}")
    } else {
        format!("one process, {pid}")
    };
    let model = match &state.model {
        Some(model) => model.clone(),
        None => "demo:demo unless you set up another; for a real one\n            \
                 OPENAI_API_KEY=… HOLDFAST_MODEL=openai:<id> before `up`\n            \
                 (or ANTHROPIC_API_KEY, GEMINI_API_KEY with anthropic:<id>, gemini:<id>)"
            .to_owned(),
    };
    let (http, grpc) = (&gateway.http, &gateway.grpc);
    // Commands do not find a directory with another name by themselves, so each needs `--dir`.
    let told =
        if home.path().file_name().is_some_and(|name| name == crate::state_dir::DEFAULT_DIR_NAME) {
            String::new()
        } else {
            format!(" --dir {dir}")
        };
    let console = match link {
        Some(link) => format!(
            "{link}\n            (signs in once, within ten minutes; `{program} console{told}` makes another)"
        ),
        None => "none: the gateway gives no sign-in link".to_owned(),
    };
    let local: String = local.iter().map(|server| local_line(server, program, &told)).collect();
    format!(
        "Holdfast is running ({processes}).

  console   {console}

  HTTP      {http}  (OpenAI's API under /v1, /healthz, /metrics)
  gRPC      {grpc}  (with reflection)
  key       {key}
            (also in {dir}/dev.key, where the commands below find it)
  model     {model}
{local}  logs      {dir}/log

Try next
  {program} console --open{told}  # the same in a browser
  {program} chat \"hello\"{told}
  {program} chat{told}            # a conversation, line by line
  {program} sessions list{told}

  curl {http}/v1/chat/completions -H 'content-type: application/json' \\
    -H \"authorization: Bearer $(cat {dir}/dev.key)\" \\
    -d '{{\"model\": \"holdfast\", \"messages\": [{{\"role\": \"user\", \"content\": \"hello\"}}]}}'

  python3 -m pip install openai, and then
    from openai import OpenAI
    client = OpenAI(base_url=\"{http}/v1\", api_key=open(\"{dir}/dev.key\").read().strip())
    for event in client.chat.completions.create(model=\"holdfast\", stream=True,
            messages=[{{\"role\": \"user\", \"content\": \"hello\"}}]):
        print(event.choices[0].delta.content or \"\", end=\"\", flush=True)

`{program} down{told}` stops it.
"
    )
}

/// Says which model server runs on this machine, and how its first model is used.
fn local_line(server: &LocalServer, program: &str, told: &str) -> String {
    let LocalServer { provider, title, base_url, models } = server;
    let model = models.first().map_or("", String::as_str);
    format!(
        "  found     {title} at {base_url}: {}\n            \
         {program} setup --provider {provider} --model {model}{told}\n",
        server.shown_models()
    )
}

/// Returns the directory relative to the current one, if it is below.
fn shown(home: &StateDir) -> String {
    let here = env::current_dir().unwrap_or_default();
    home.path().strip_prefix(here).unwrap_or(home.path()).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state_dir::{Gateway, Http};

    fn state() -> State {
        let gateway = Gateway { http: "http://h:1".to_owned(), grpc: "http://h:2".to_owned() };
        State {
            pid: 7,
            split: false,
            gateways: vec![gateway.clone()],
            gateway,
            runners: vec![Http { http: "http://h:3".to_owned() }],
            bridge: Http { http: "http://h:4".to_owned() },
            scheduler: Http { http: "http://h:5".to_owned() },
            memory: Http { http: "http://h:6".to_owned() },
            secrets: None,
            key: "hf_1_2".to_owned(),
            model: None,
        }
    }

    #[test]
    fn every_process_is_counted() {
        let home = StateDir::new("elsewhere".into()).unwrap();
        let one = state();
        let split = State { split: true, ..state() };
        let runners = vec![Http { http: "http://h:3".to_owned() }; 3];
        let more = State { split: true, runners, ..state() };

        for (state, processes) in [
            (one, "(one process, 7)"),
            (split, "(6 processes under 7)"),
            (more, "(8 processes under 7)"),
        ] {
            let text = text(&home, &state, None, &[], "holdfast");
            assert!(text.contains(processes), "{processes} is missing in\n{text}");
        }
    }

    #[test]
    fn it_says_where_everything_is_and_how_to_stop() {
        let home = StateDir::new("elsewhere".into()).unwrap();
        let state = state();

        let link = "http://h:1/console/#link=hfl_1_2";
        let server = LocalServer {
            provider: "ollama",
            title: "Ollama",
            base_url: "http://127.0.0.1:11434".to_owned(),
            models: vec!["qwen3:4b".to_owned(), "gemma3".to_owned()],
        };
        let text = text(&home, &state, Some(link), &[server], "target/debug/holdfast");

        for part in [
            link,
            "http://h:1/v1",
            "http://h:2",
            "hf_1_2",
            "elsewhere/dev.key",
            "/holdfast chat \"hello\"",
            "Ollama at http://127.0.0.1:11434: qwen3:4b, gemma3\n",
            "/holdfast setup --provider ollama --model qwen3:4b --dir elsewhere\n",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(
            text.ends_with("`target/debug/holdfast down --dir elsewhere` stops it.\n"),
            "{text}"
        );
    }
}
