//! Tests of `web_fetch`, against a server on this machine.

use std::net::IpAddr;

use axum::{
    Router,
    extract::Path,
    http::header::{CONTENT_ENCODING, CONTENT_TYPE},
    response::Redirect,
    routing::get,
};

use super::*;
use crate::{
    Registry,
    mesh::tests::{call, tell},
    web::fake::{Answers, Server},
};

const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// Server that redirects to any address, and has a secret page.
async fn server() -> anyhow::Result<Server> {
    let page = || async { ([(CONTENT_TYPE, "text/html")], "<title>T</title><h1>Hi</h1><p>you") };
    let routes = Router::new()
        .route("/page", get(page))
        .route("/json", get(|| async { ([(CONTENT_TYPE, "application/json")], "{\"a\":1}") }))
        .route("/pdf", get(|| async { ([(CONTENT_TYPE, "application/pdf")], "%PDF") }))
        .route("/packed", get(|| async { ([(CONTENT_ENCODING, "gzip")], "x") }))
        .route("/long", get(|| async { "語".repeat(60_000) }))
        .route("/huge", get(|| async { "x".repeat(3 * 1024 * 1024) }))
        .route("/slow", get(|| async { std::future::pending::<()>().await }))
        .route("/round", get(|| async { Redirect::temporary("/round") }))
        .route("/near", get(|| async { Redirect::temporary("page") }))
        .route("/to/{*there}", get(|Path(to): Path<String>| async move { Redirect::to(&to) }));
    Server::start(routes).await
}

/// Builds the tool; only `start.test` on the server's port is listed.
fn tools(server: &Server, answers: Answers) -> anyhow::Result<Registry> {
    let allow = vec![format!("start.test:{}", server.address.port())];
    let answers = answers.and("start.test", [vec![HOME]]);
    let fetch = WebFetch::with(allow, Arc::new(answers))?.patient(Duration::from_millis(1500));
    Ok(Registry::default().with(fetch))
}

fn url(server: &Server, path: &str) -> String {
    format!("http://start.test:{}{path}", server.address.port())
}

fn input(url: &str) -> String {
    json!({ "url": url }).to_string()
}

#[tokio::test]
async fn the_model_reads_the_text_itself_marked_as_from_outside() -> anyhow::Result<()> {
    let server = server().await?;
    let tools = tools(&server, Answers::default())?;

    let page = tools.call(call(), "web_fetch", &input(&url(&server, "/near"))).await?;
    let json = tools.call(call(), "fetch_url", &input(&url(&server, "/json"))).await?;

    assert!(page.for_llm.contains("comes from http://start.test:"), "{}", page.for_llm);
    assert!(page.for_llm.contains(">>>\nTitle: T\n\n# Hi\n\nyou\n<<<end"), "{}", page.for_llm);
    assert_eq!(page.details.unwrap()["url"], url(&server, "/page"));
    assert!(json.for_llm.contains("\n{\"a\":1}\n"));
    Ok(())
}

#[tokio::test]
async fn no_redirect_leads_to_where_one_may_not_go() -> anyhow::Result<()> {
    let server = server().await?;
    let port = server.address.port();
    let answers = Answers::of("rebind.test", [vec![HOME]])
        .and("mixed.test", [vec![crate::web::fake::PUBLIC, HOME]]);
    let tools = tools(&server, answers)?;

    for (to, why) in [
        (format!("http://127.0.0.1:{port}/page"), "not on the public internet"),
        (format!("http://[::1]:{port}/page"), "not on the public internet"),
        (format!("http://2130706433:{port}/page"), "not on the public internet"),
        (format!("http://0177.0.0.1:{port}/page"), "not on the public internet"),
        (format!("http://0x7f000001:{port}/page"), "not on the public internet"),
        (format!("http://[::ffff:127.0.0.1]:{port}/page"), "not on the public internet"),
        (format!("http://rebind.test:{port}/page"), "not on the public internet"),
        (format!("http://mixed.test:{port}/page"), "not on the public internet"),
        (format!("http://me:secret@start.test:{port}/page"), "user name or a password"),
        ("file:///etc/passwd".to_owned(), "no address of the web"),
        ("gopher://x/".to_owned(), "no address of the web"),
    ] {
        let before = server.hits();
        let told = tell(
            tools.call(call(), "web_fetch", &input(&url(&server, &format!("/to/{to}")))).await,
        );
        assert!(told.contains(why), "{to}: {told}");
        assert_eq!(server.hits(), before + 1, "{to} was asked");
    }
    Ok(())
}

#[tokio::test]
async fn a_name_that_is_rebound_between_two_hops_is_refused() -> anyhow::Result<()> {
    let server = server().await?;
    let port = server.address.port();
    // The first hop is a listed name; the second is not listed, and resolves to this machine.
    let tools = tools(&server, Answers::of("other.test", [vec![HOME], vec![HOME]]))?;
    let hop = format!("/to/http://start.test:{port}/to/http://other.test:{port}/page");

    let told = tell(tools.call(call(), "web_fetch", &input(&url(&server, &hop))).await);

    assert!(told.contains("`other.test` is not on the public internet"), "{told}");
    assert_eq!(server.hits(), 2);
    Ok(())
}

#[tokio::test]
async fn no_redirect_leads_to_a_host_that_is_not_listed() -> anyhow::Result<()> {
    let server = server().await?;
    let tools = tools(&server, Answers::default())?;
    let hosts = AllowedHosts::matching(|host| host == "start.test");
    let listed = || Call { hosts: hosts.clone(), ..call() };

    let page = tools.call(listed(), "web_fetch", &input(&url(&server, "/near"))).await?;
    let away = input(&url(&server, "/to/http://1.1.1.1/page"));
    let told = tell(tools.call(listed(), "web_fetch", &away).await);

    assert!(page.for_llm.contains("# Hi"), "{}", page.for_llm);
    assert!(told.contains("`1.1.1.1` is not among the hosts that the policy allows"), "{told}");
    Ok(())
}

#[tokio::test]
async fn a_call_that_was_allowed_for_a_host_follows_no_redirect_to_another() -> anyhow::Result<()> {
    let server = server().await?;
    let tools = tools(&server, Answers::default())?;
    let hosts = AllowedHosts::default().staying_on("start.test".to_owned());
    let allowed = || Call { hosts: hosts.clone(), ..call() };

    let page = tools.call(allowed(), "web_fetch", &input(&url(&server, "/near"))).await?;
    let away = input(&url(&server, "/to/http://1.1.1.1/page"));
    let told = tell(tools.call(allowed(), "web_fetch", &away).await);

    assert!(page.for_llm.contains("# Hi"), "{}", page.for_llm);
    assert!(told.contains("it leads to the host `1.1.1.1`"), "{told}");
    Ok(())
}

#[tokio::test]
async fn what_is_too_long_is_cut_and_keeps_its_marks() -> anyhow::Result<()> {
    let server = server().await?;
    let tools = tools(&server, Answers::default())?;

    let long = tools.call(call(), "web_fetch", &input(&url(&server, "/long"))).await?;
    let huge = tools.call(call(), "web_fetch", &input(&url(&server, "/huge"))).await?;

    for told in [&long.for_llm, &huge.for_llm] {
        assert!(
            told.contains("\n<<<end ") && told.len() <= crate::MAX_OUTPUT_BYTES,
            "{}",
            told.len()
        );
    }
    assert!(long.for_llm.ends_with("are the most]\n"));
    assert!(huge.for_llm.ends_with("[only the first 2097152 bytes were read]\n"));
    assert_eq!(huge.details.unwrap()["bytes"], 2 * 1024 * 1024);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_fetched_is_told_with_the_reason() -> anyhow::Result<()> {
    let server = server().await?;
    let tools = tools(&server, Answers::default())?;

    for (path, why) in [
        ("/pdf", "it is `application/pdf`, and only text"),
        ("/packed", "it is packed as `gzip`"),
        ("/nothing", "the server answered 404"),
        ("/round", "it leads elsewhere more than 5 times"),
        ("/slow", "it took longer than"),
    ] {
        let told = tell(tools.call(call(), "web_fetch", &input(&url(&server, path))).await);
        assert!(told.contains(&format!("cannot be fetched: {why}")), "{path}: {told}");
    }
    let told = tell(tools.call(call(), "web_fetch", &input("nowhere.test/x")).await);
    assert_eq!(told, "`nowhere.test/x` cannot be fetched: no connection could be made");
    Ok(())
}
