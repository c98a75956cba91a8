//! MCP servers from public packages, which `make test-packages` installs. `tests/tools.py` leaves
//! these tests out where they are missing.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::Context as _;
use holdfast_directory::{McpTransport, NewMcpServer};
use holdfast_types::Entry;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    time::timeout,
};

use super::{at, config, make, make_in, put, returned, run};
use crate::{
    held_state::with_keep,
    world::{LONG, World},
};

/// An installed package: its folder, and the file that is run.
struct Package {
    folder: &'static str,
    leaves: &'static str,
}

const NPM: Package = Package {
    folder: "server-everything",
    leaves: "node_modules/@modelcontextprotocol/server-everything/dist/index.js",
};

const MEMORY_NPM: Package = Package {
    folder: "server-memory",
    leaves: "node_modules/@modelcontextprotocol/server-memory/dist/index.js",
};

const PIP: Package = Package { folder: "mcp-server-fetch", leaves: "mcp_server_fetch/__main__.py" };

impl Package {
    /// Path of the installed package.
    fn path(&self) -> anyhow::Result<PathBuf> {
        let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.holdfast/test-packages");
        let there = packages.join(self.folder);
        there.canonicalize().context("it is not installed: run `make test-packages`")
    }
}

#[tokio::test]
async fn server_everything_is_used_as_a_process_in_the_sandbox() -> anyhow::Result<()> {
    let there = NPM.path()?;
    let world = World::start().await?;
    let index = there.join(NPM.leaves).display().to_string();
    let env = [("API_KEY".to_owned(), "of-the-server".into())];
    put(&world, NewMcpServer { secrets: Some(env.into()), ..run("node", &[&index, "stdio"]) })
        .await?;
    let mut config = config(&world);
    config.runner.sandbox.backend = holdfast_sandbox::BackendChoice::Bubblewrap;
    config.runner.sandbox.hosted = true;
    config.runner.sandbox.readable = vec![there];
    let runner = world.runner_with(config, |app| app).await?;

    let came = make(
        &world,
        "s",
        &[
            ("tool_search", r#"{"query":"sum of two numbers"}"#),
            ("mcp_x_echo", r#"{"message":"hello"}"#),
            ("mcp_x_get_sum", r#"{"a":2,"b":40}"#),
            ("mcp_x_get_sum", r#"{"a":"two"}"#),
            ("mcp_x_get_tiny_image", "{}"),
            ("mcp_x_get_env", "{}"),
        ],
    )
    .await?;
    runner.stop().await?;

    assert!(came[0].contains("- mcp_x_get_sum: [MCP server x]"), "{}", came[0]);
    assert!(came[1].contains("\nEcho: hello\n"), "{}", came[1]);
    assert!(came[2].contains("The sum of 2 and 40 is 42."), "{}", came[2]);
    assert!(came[3].contains("failed") || came[3].contains("refused"), "{}", came[3]);
    assert!(came[4].contains("[a picture, image/png, "), "{}", came[4]);
    assert!(came[5].contains("of-the-server"), "{}", came[5]);
    assert!(!came[5].contains("HOLDFAST_") && !came[5].contains("CARGO_"), "{}", came[5]);
    Ok(())
}

/// A server that was started for a test; gone with it.
struct Started {
    _child: Child,
    port: u16,
}

async fn everything_by_http(there: &Path) -> anyhow::Result<Started> {
    let port = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port();
    let mut node = Command::new("node");
    node.arg(there.join(NPM.leaves)).arg("streamableHttp").env("PORT", port.to_string());
    node.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let child = node.spawn()?;
    let ready = async {
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LONG, ready).await.context("the server does not listen")?;
    Ok(Started { _child: child, port })
}

#[tokio::test]
async fn server_everything_is_used_over_streamable_http() -> anyhow::Result<()> {
    let there = NPM.path()?;
    let (world, server) = (World::start().await?, everything_by_http(&there).await?);
    put(&world, at(&format!("http://127.0.0.1:{}/mcp", server.port))).await?;
    let mut config = config(&world);
    config.runner.tool_timeout = Duration::from_secs(12);
    let _runner = world.runner_with(config, |app| app).await?;

    let sent = make_in(
        &world,
        "s",
        &[
            ("mcp_x_echo", r#"{"message":"hello"}"#),
            ("mcp_x_get_structured_content", r#"{"location":"New York"}"#),
            ("mcp_x_toggle_simulated_logging", "{}"),
            ("mcp_x_trigger_long_running_operation", r#"{"duration":60,"steps":2}"#),
            ("mcp_x_echo", r#"{"message":"still here"}"#),
        ],
    )
    .await?;

    let came = returned(&world, &sent).await?;
    assert!(came[0].contains("\nEcho: hello\n"), "{}", came[0]);
    assert!(came[1].contains("temperature"), "{}", came[1]);
    assert!(came[3].contains("took longer than 12 s"), "{}", came[3]);
    assert!(came[4].contains("\nEcho: still here\n"), "{}", came[4]);
    // A tool that is not declared read-only is recorded before it is called.
    let journal = world.journal(sent.session).await?;
    let begun = journal.iter().filter(|entry| matches!(entry, Entry::Called { .. })).count();
    assert_eq!(begun, 1, "{journal:?}");
    Ok(())
}

/// A page on this machine.
async fn page() -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _read = stream.read(&mut request).await;
            let page = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 15\r\n\
                        connection: close\r\n\r\nthe cat is grey";
            let _written = stream.write_all(page.as_bytes()).await;
        }
    });
    Ok(port)
}

#[tokio::test]
async fn mcp_server_fetch_is_used_with_the_network_that_it_was_given() -> anyhow::Result<()> {
    let there = PIP.path()?;
    let world = World::start().await?;
    let args = ["-m", "mcp_server_fetch", "--ignore-robots-txt", "--allow-private-ips"];
    let server = |network| {
        let command = "/usr/bin/python3".to_owned();
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        let transport = McpTransport::Stdio { command, args, network, keep: false };
        let path = there.display().to_string();
        let secrets = Some([("PYTHONPATH".to_owned(), path.into())].into());
        NewMcpServer { transport, secrets, ..at("") }
    };
    put(&world, server(true)).await?;
    put(&world, NewMcpServer { name: "alone".to_owned(), ..server(false) }).await?;
    let mut config = config(&world);
    config.runner.sandbox.backend = holdfast_sandbox::BackendChoice::Bubblewrap;
    config.runner.sandbox.network = holdfast_sandbox::NetworkPolicy::Host;
    config.runner.sandbox.readable = vec![there.clone()];
    let _runner = world.runner_with(config, |app| app).await?;
    let fetch = format!(r#"{{"url":"http://127.0.0.1:{}/","raw":true}}"#, page().await?);

    let came = make(&world, "s", &[("mcp_x_fetch", &fetch), ("mcp_alone_fetch", &fetch)]).await?;

    assert!(came[0].contains("the cat is grey"), "{}", came[0]);
    assert!(!came[1].contains("the cat is grey"), "{}", came[1]);
    assert!(came[1].contains("the MCP server `alone`"), "{}", came[1]);
    Ok(())
}

#[tokio::test]
async fn server_memory_remembers_on_another_runner_what_it_was_told() -> anyhow::Result<()> {
    let there = MEMORY_NPM.path()?;
    let world = World::start().await?;
    let index = there.join(MEMORY_NPM.leaves).display().to_string();
    let env = [("MEMORY_FILE_PATH".to_owned(), "/workspace/memory.jsonl".into())];
    let server = NewMcpServer { secrets: Some(env.into()), ..run("node", &[&index]) };
    put(&world, with_keep(server, true)).await?;
    let mut config = config(&world);
    config.runner.sandbox.backend = holdfast_sandbox::BackendChoice::Bubblewrap;
    config.runner.sandbox.readable = vec![there];
    let entity =
        r#"{"entities":[{"name":"Ada","entityType":"person","observations":["likes tea"]}]}"#;

    let first = world.runner_with(config.clone(), |app| app).await?;
    let created = make(&world, "s", &[("mcp_x_create_entities", entity)]).await?;
    first.stop().await?;
    let second = world.runner_with(config, |app| app).await?;
    let read = make(&world, "s", &[("mcp_x_read_graph", "{}")]).await?;
    second.stop().await?;

    assert!(created[0].contains("likes tea"), "{created:?}");
    assert!(read[0].contains("likes tea"), "{read:?}");
    let kept = world.file("mcp/x/memory.jsonl").await?.unwrap_or_default();
    assert!(kept.contains("Ada"), "{kept}");
    Ok(())
}
