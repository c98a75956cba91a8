//! Files of the console, and the headers of its answers.

use std::path::Path;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::{Client, Method, Response, redirect::Policy};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::Browser;
use crate::world::World;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      img-src 'self' blob: data:; font-src 'self'; connect-src 'self'; \
                      frame-src 'self'; worker-src 'none'; form-action 'self'; \
                      frame-ancestors 'none'; base-uri 'none'";

/// The frame for HTML of agents, as it is built.
const FRAME: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/public/frame.html"));

fn files(whole: &Path) -> std::path::PathBuf {
    let dist = whole.join("dist");
    std::fs::create_dir_all(dist.join("assets")).unwrap();
    std::fs::write(dist.join("index.html"), "<title>page</title>").unwrap();
    std::fs::write(dist.join("assets/main-1a2b.js"), "script").unwrap();
    std::fs::write(dist.join("logo.svg"), "<svg/>").unwrap();
    std::fs::write(dist.join("frame.html"), FRAME).unwrap();
    std::fs::write(whole.join("secret.txt"), "secret").unwrap();
    dist
}

async fn world() -> (World, tempfile::TempDir) {
    let whole = tempfile::tempdir().unwrap();
    let dir = files(whole.path());
    let world = World::start_with(|config| config.gateway.console.dir = Some(dir)).await.unwrap();
    (world, whole)
}

fn client() -> Client {
    Client::builder().no_proxy().redirect(Policy::none()).build().unwrap()
}

fn header<'r>(response: &'r Response, name: &str) -> &'r str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn the_page_is_served_at_every_path_and_files_with_their_type_and_caching() {
    let (world, _files) = world().await;
    let client = client();
    for (path, kind, caching, text) in [
        ("", "text/html; charset=utf-8", "no-cache", "<title>page</title>"),
        ("agents/main/files", "text/html; charset=utf-8", "no-cache", "<title>page</title>"),
        ("logo.svg", "image/svg+xml", "no-cache", "<svg/>"),
        (
            "assets/main-1a2b.js",
            "text/javascript; charset=utf-8",
            "public, max-age=31536000, immutable",
            "script",
        ),
    ] {
        let url = world.url(&format!("/console/{path}"));
        let response = client.get(&url).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(header(&response, "content-type"), kind);
        assert_eq!(header(&response, "cache-control"), caching);
        let etag = header(&response, "etag").to_owned();
        assert_eq!(response.text().await.unwrap(), text);
        let again = client.get(&url).header("if-none-match", &etag).send().await.unwrap();
        assert_eq!(again.status(), 304, "{path}");
        assert_eq!(header(&again, "content-security-policy"), POLICY);
        let changed = client.get(&url).header("if-none-match", "\"x\"").send().await.unwrap();
        assert_eq!(changed.status(), 200);
    }
    let absent = client.get(world.url("/console/assets/none.js")).send().await.unwrap();
    assert_eq!(absent.status(), 404);
    let posted = client.post(world.url("/console/agents")).send().await.unwrap();
    assert_eq!(posted.status(), 405);
}

#[tokio::test]
async fn a_browser_that_comes_to_the_root_is_sent_to_the_console_and_others_are_not() {
    let (world, _files) = world().await;
    let client = client();
    let html = "text/html,application/xhtml+xml";

    let root = client.get(world.url("/")).header("accept", html).send().await.unwrap();
    assert_eq!((root.status().as_u16(), header(&root, "location")), (303, "/console/"));
    let short = client.get(world.url("/console")).send().await.unwrap();
    assert_eq!((short.status().as_u16(), header(&short, "location")), (308, "/console/"));
    let program = client.get(world.url("/")).header("accept", "*/*").send().await.unwrap();
    assert_eq!(program.status(), 404);
}

#[tokio::test]
async fn every_answer_has_the_security_headers() {
    let (world, _files) = world().await;
    let (client, mut browser) = (client(), Browser::new(&world));
    let session = browser.sign_in_with_key(&world.anna.key).await.unwrap();
    let get = |path: &str| client.get(world.url(path));
    let call = browser.call_request(
        &session,
        "People/GetCaller",
        &holdfast_proto::gateway::v1::GetCallerRequest {},
    );
    for (what, request, status) in [
        ("page", get("/console/"), 200),
        ("redirect", get("/console"), 308),
        ("missing file", get("/console/x.js"), 404),
        ("methods", get("/console/sign-in/methods"), 200),
        ("method not allowed", get("/console/sign-in"), 405),
        ("sign-in", browser.request(Method::POST, "/console/sign-in").json(&json!({})), 400),
        ("sign-out", browser.request(Method::POST, "/console/sign-out"), 204),
        ("provider", get("/console/oidc/start?issuer=x"), 303),
        ("call", call, 200),
        ("no call", client.post(world.url("/console/api/x")), 400),
        ("socket", get("/console/ws?session=0190f3c4d5e67890abcd1234567890ab"), 403),
    ] {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), status, "{what}");
        for (name, value) in [
            ("content-security-policy", POLICY),
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
            (
                "permissions-policy",
                "camera=(), microphone=(self), geolocation=(), payment=(), usb=()",
            ),
        ] {
            assert_eq!(header(&response, name), value, "{what}: {name}");
        }
        assert_eq!(header(&response, "strict-transport-security"), "", "{what}");
        assert_eq!(header(&response, "access-control-allow-origin"), "", "{what}");
    }
}

#[tokio::test]
async fn the_frame_for_html_of_agents_has_no_rights_and_only_the_console_shows_it() {
    let (world, _files) = world().await;

    let frame = client().get(world.url("/console/frame.html")).send().await.unwrap();

    let policy = header(&frame, "content-security-policy");
    for part in [
        "default-src 'none'",
        "img-src data:",
        "form-action 'none'",
        "frame-ancestors 'self'",
        "sandbox allow-scripts",
    ] {
        assert!(policy.split("; ").any(|one| one == part), "{part}: {policy}");
    }
    let script = FRAME.split("<script>").nth(1).unwrap().split("</script>").next().unwrap();
    let hash = STANDARD.encode(Sha256::digest(script));
    assert!(policy.contains(&format!("script-src 'sha256-{hash}';")), "{policy}");
    assert_eq!(header(&frame, "x-frame-options"), "SAMEORIGIN");
}

#[tokio::test]
async fn no_path_leads_out_of_the_directory() {
    let (world, _files) = world().await;
    for path in [
        "/console/../secret.txt",
        "/console/assets/../../secret.txt",
        "/console/%2e%2e/secret.txt",
        "/console/..%2fsecret.txt",
        "/console//etc/hosts.conf",
        "/console/assets/..%5c..%5csecret.txt",
    ] {
        // A client library would shorten the path itself.
        let mut socket = TcpStream::connect(world.http).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
        assert!(!answer.contains("secret"), "{path}: {answer}");
    }
}

#[tokio::test]
async fn a_gateway_without_the_console_serves_none_of_it() {
    let world = World::start_with(|config| config.gateway.console.enabled = false).await.unwrap();
    for path in ["/console/", "/console/sign-in/methods", "/console"] {
        let response = client().get(world.url(path)).send().await.unwrap();
        assert_eq!(response.status(), 404, "{path}");
    }
    let root = client().get(world.url("/")).header("accept", "text/html").send().await.unwrap();
    assert_eq!(root.status(), 404);
}

#[tokio::test]
async fn the_documentation_is_served_and_its_pages_may_be_named_without_their_ending() {
    let whole = tempfile::tempdir().unwrap();
    let dir = files(whole.path());
    std::fs::create_dir(dir.join("channels")).unwrap();
    std::fs::write(dir.join("channels/irc.html"), "<title>irc</title>").unwrap();
    let world =
        World::start_with(|config| config.gateway.docs.dir = Some(dir.clone())).await.unwrap();
    let client = client();

    for (path, status, kind, text) in [
        ("/docs/", 200, "text/html; charset=utf-8", "<title>page</title>"),
        ("/docs/channels/irc.html", 200, "text/html; charset=utf-8", "<title>irc</title>"),
        ("/docs/channels/irc", 200, "text/html; charset=utf-8", "<title>irc</title>"),
        ("/docs/logo.svg", 200, "image/svg+xml", "<svg/>"),
        ("/docs/none", 404, "text/plain; charset=utf-8", "there is no such file\n"),
        ("/docs/channels/", 404, "text/plain; charset=utf-8", "there is no such file\n"),
    ] {
        let response = client.get(world.url(path)).send().await.unwrap();
        assert_eq!(response.status(), status, "{path}");
        assert_eq!(header(&response, "content-type"), kind, "{path}");
        assert_eq!(header(&response, "content-security-policy"), POLICY, "{path}");
        assert_eq!(header(&response, "x-content-type-options"), "nosniff", "{path}");
        assert_eq!(response.text().await.unwrap(), text, "{path}");
    }
    let short = client.get(world.url("/docs")).send().await.unwrap();
    assert_eq!((short.status().as_u16(), header(&short, "location")), (308, "/docs/"));
}

#[tokio::test]
async fn the_binary_has_the_documentation_with_its_search_and_no_inline_code() {
    let world = World::start().await.unwrap();
    let get = async |path: &str| {
        let response = client().get(world.url(&format!("/docs/{path}"))).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response.text().await.unwrap()
    };
    let page = get("").await;
    if page.contains("not in this binary") {
        assert!(std::env::var_os("CI").is_none(), "CI runs `make docs` before the tests are built");
        return;
    }

    let (_, rest) = page.split_once("data-search-index=\"").unwrap();
    let index = get(rest.split('"').next().unwrap()).await;
    for title in ["Talk to an assistant", "ResolveApproval", "/v1/chat/completions"] {
        assert!(index.contains(title), "the search does not know `{title}`");
    }
    for name in ["start-talk", "api/grpc/approvals", "api/http/answers"] {
        let page = get(name).await;
        assert!(page.contains("<main>") && page.contains("<script src="), "{name}");
        assert!(!page.contains("<script>") && !page.contains(" style="), "{name}");
    }
}

#[tokio::test]
async fn a_gateway_without_the_documentation_serves_none_of_it() {
    let world = World::start_with(|config| config.gateway.docs.enabled = false).await.unwrap();
    for path in ["/docs/", "/docs", "/docs/start-talk"] {
        let response = client().get(world.url(path)).send().await.unwrap();
        assert_eq!(response.status(), 404, "{path}");
    }
}
