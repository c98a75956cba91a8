//! The web console: sign-in, sessions, calls of its page, its files.

mod browser;
mod invitations;
mod oidc;
mod pages;
mod socket;

use std::time::Duration;

use holdfast_directory::Actor;
use holdfast_proto::gateway::v1 as pb;
use reqwest::Method;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tonic::{Code, Status};

use self::browser::{Browser, Called, first_messages};
use crate::world::{Tenant, World};

/// Name of the tenant that a session is of.
async fn tenant_of(browser: &Browser, session: &str) -> anyhow::Result<String> {
    let asked = browser.ask(session, "People/GetCaller", &pb::GetCallerRequest {}).await;
    asked.map(|caller: pb::GetCallerResponse| caller.tenant)
}

/// Status of a call that only asks who calls.
async fn code(browser: &Browser, session: &str) -> Code {
    browser.call(session, "People/GetCaller", &pb::GetCallerRequest {}).await.unwrap().code
}

/// Creates a link as the holder of a key.
async fn link(
    world: &World,
    of: &Tenant,
    request: pb::CreateSignInLinkRequest,
) -> Result<pb::CreateSignInLinkResponse, Status> {
    let channel = world.channel().await.unwrap();
    let mut client = pb::console_client::ConsoleClient::new(channel);
    Ok(client.create_sign_in_link(of.request(request)).await?.into_inner())
}

async fn token(world: &World, of: &Tenant) -> String {
    link(world, of, pb::CreateSignInLinkRequest::default()).await.unwrap().token
}

async fn execute(world: &World, sql: &str) {
    let mut admin = PgConnection::connect(&world.admin_url()).await.unwrap();
    sqlx::query(AssertSqlSafe(sql)).execute(&mut admin).await.unwrap();
}

#[tokio::test]
async fn a_key_signs_in_with_a_cookie_that_no_script_reads_and_no_other_site_sends() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);

    let request = browser.request(Method::POST, "/console/sign-in");
    let request = request.json(&json!({ "key": world.anna.key }));
    let (response, cookies) = browser.send(request).await.unwrap();

    assert_eq!(response.headers()["cache-control"], "no-store");
    let body: serde_json::Value = response.json().await.unwrap();
    let session = body["session"].as_str().unwrap();
    assert!(body["expires_at"].as_str().unwrap().ends_with('Z'), "{body}");
    let [cookie] = cookies.as_slice() else { panic!("{cookies:?}") };
    let parts: Vec<&str> = cookie.split("; ").collect();
    assert!(parts[0].starts_with(&format!("holdfast-session-{session}=hfs_")), "{cookie}");
    for part in ["Path=/console", "Max-Age=604800", "HttpOnly", "SameSite=Strict"] {
        assert!(parts.contains(&part), "{part} is missing in {cookie}");
    }
    assert!(!parts.contains(&"Secure"), "{cookie}");
    assert_eq!(tenant_of(&browser, session).await.unwrap(), "anna");
    // No secret is in the database.
    let secret = parts[0].split('=').nth(1).unwrap();
    let stored = "select row_to_json(s)::text from control.console_sessions s";
    let stored = world.texts(stored).await.unwrap().concat();
    assert!(stored.contains("\"method\":\"key\""), "{stored}");
    assert!(!stored.contains(secret.rsplit('_').next().unwrap()), "{stored}");
}

#[tokio::test]
async fn behind_a_proxy_with_tls_the_cookie_is_of_its_host_alone() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    browser.origin = Some(format!("https://{}", world.http));

    let request = browser.request(Method::POST, "/console/sign-in");
    let request = request.json(&json!({ "key": world.anna.key }));
    let (response, cookies) =
        browser.send(request.header("x-forwarded-proto", "https")).await.unwrap();

    assert!(cookies[0].starts_with("__Host-holdfast-session-"), "{cookies:?}");
    assert!(cookies[0].contains("; Path=/; ") && cookies[0].ends_with("; Secure"), "{cookies:?}");
    let security = response.headers()["strict-transport-security"].to_str().unwrap();
    assert_eq!(security, "max-age=31536000");
    let body: serde_json::Value = response.json().await.unwrap();
    assert_eq!(tenant_of(&browser, body["session"].as_str().unwrap()).await.unwrap(), "anna");
}

#[tokio::test]
async fn every_sign_in_begins_a_session_of_its_own() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    let first = browser.sign_in_with_key(&world.anna.key).await.unwrap();

    let second = browser.sign_in_with_key(&world.anna.key).await.unwrap();

    assert_ne!(first, second);
    let cookies: std::collections::BTreeSet<&String> = browser.cookies.values().collect();
    assert_eq!(cookies.len(), 2);
}

#[tokio::test]
async fn two_tenants_are_signed_in_side_by_side_in_one_browser() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    let anna = browser.sign_in_with_key(&world.anna.key).await.unwrap();
    let ben = browser.sign_in_with_key(&world.ben.key).await.unwrap();

    assert_eq!(tenant_of(&browser, &anna).await.unwrap(), "anna");
    assert_eq!(tenant_of(&browser, &ben).await.unwrap(), "ben");
    let out =
        browser.request(Method::POST, "/console/sign-out").header("x-holdfast-session", &anna);
    let (response, _) = browser.send(out).await.unwrap();

    assert_eq!(response.status(), 204);
    assert_eq!(code(&browser, &anna).await, Code::Unauthenticated);
    assert_eq!(tenant_of(&browser, &ben).await.unwrap(), "ben");
}

#[tokio::test]
async fn a_session_that_was_signed_out_is_dead_even_for_who_kept_its_cookie() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    let session = browser.sign_in_with_key(&world.anna.key).await.unwrap();
    let kept = browser.cookies.clone();
    let out = browser.request(Method::POST, "/console/sign-out");
    browser.send(out.header("x-holdfast-session", &session)).await.unwrap();
    assert!(browser.cookies.is_empty());

    browser.cookies = kept;

    assert_eq!(code(&browser, &session).await, Code::Unauthenticated);
    let out = browser.request(Method::POST, "/console/sign-out");
    let (again, _) = browser.send(out.header("x-holdfast-session", &session)).await.unwrap();
    assert_eq!(again.status(), 204);
}

#[tokio::test]
async fn a_wrong_key_and_a_wrong_body_are_refused_with_what_to_do() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    let cases = [
        (json!({ "key": format!("{}x", world.anna.key) }), 401, "key is not known"),
        (json!({ "link": "hfl_x" }), 401, "the link was used before"),
        (json!({}), 400, "the body must be"),
        (json!({ "key": "a", "link": "b" }), 400, "the body must be"),
    ];
    for (body, status, told) in cases {
        let (got, answer) = browser.try_sign_in(body).await.unwrap();

        assert_eq!(got, status, "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(told), "{message}");
    }
    let form = browser.request(Method::POST, "/console/sign-in");
    let form = form.header("content-type", "text/plain").body(r#"{"key":"x"}"#);
    assert_eq!(browser.send(form).await.unwrap().0.status(), 400);
    assert!(browser.cookies.is_empty());
}

#[tokio::test]
async fn too_many_sign_ins_from_one_address_are_refused() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    let mut last = (0, json!({}));
    // One more is permitted each second.
    for _ in 0..1_000 {
        last = browser.try_sign_in(json!({ "key": "hf_x" })).await.unwrap();
        if last.0 == 429 {
            break;
        }
    }

    assert_eq!(last.0, 429, "{}", last.1);
    let told = last.1["error"]["message"].as_str().unwrap();
    assert!(told.contains("too many sign-ins"), "{told}");
    // Another client of the same proxy is not affected.
    let request = browser.request(Method::POST, "/console/sign-in");
    let request = request.json(&json!({ "key": world.anna.key }));
    let (other, _) = browser.send(request.header("x-forwarded-for", "8.8.8.8")).await.unwrap();
    assert_eq!(other.status(), 200);
}

#[tokio::test]
async fn too_many_sign_ins_from_one_site_are_refused() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    let mut status = async |key: &str, address: String| {
        let request = browser.request(Method::POST, "/console/sign-in");
        let request = request.json(&json!({ "key": key })).header("x-forwarded-for", address);
        browser.send(request).await.unwrap().0.status().as_u16()
    };
    let mut last = 0;
    // Each from another network of the site. Four more are permitted each second.
    for network in 0..4_000 {
        last = status("hf_x", format!("2606:4700:1:{network:x}::1")).await;
        if last == 429 {
            break;
        }
    }

    assert_eq!(last, 429);
    assert_eq!(status(&world.anna.key, "2606:4700:2::1".to_owned()).await, 200);
}

#[tokio::test]
async fn a_link_signs_in_once() {
    let world = World::start().await.unwrap();
    let made = link(&world, &world.anna, pb::CreateSignInLinkRequest::default()).await.unwrap();
    let (address, fragment) = made.url.split_once("/console/#link=").unwrap();
    assert_eq!((address, fragment), (&*format!("http://{}", world.http), &*made.token));
    let body = json!({ "link": made.token });
    let mut browsers: Vec<Browser> = (0..4).map(|_| Browser::new(&world)).collect();

    let tries = browsers.iter_mut().map(|browser| browser.try_sign_in(body.clone()));
    let tried = futures::future::join_all(tries).await;

    let mut statuses: Vec<u16> = tried.into_iter().map(|tried| tried.unwrap().0).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 401, 401, 401]);
    assert_eq!(world.number("select count(*) from control.console_links").await.unwrap(), 0);
}

#[tokio::test]
async fn an_old_or_changed_link_signs_nobody_in() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    let (old, changed) = (token(&world, &world.anna).await, token(&world, &world.anna).await);
    let other = token(&world, &world.anna).await;
    let mixed = format!("{}_{}", &changed[..36], other.rsplit_once('_').map_or("", |(_, s)| s));
    execute(
        &world,
        "update control.console_links set expires_at = now() - interval '1 second' \
         where link_id = (select min(link_id::text)::uuid from control.console_links)",
    )
    .await;

    for refused in [old, mixed] {
        let (status, answer) = browser.try_sign_in(json!({ "link": refused })).await.unwrap();
        assert_eq!(status, 401, "{answer}");
    }
    // The guess did not use up the link.
    browser.sign_in(json!({ "link": changed })).await.unwrap();
}

#[tokio::test]
async fn a_link_with_fewer_scopes_gives_no_more_than_these() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    let (scopes, name) = (vec!["read".to_owned()], "Berta".to_owned());
    let made = link(
        &world,
        &world.anna,
        pb::CreateSignInLinkRequest { scopes, name, ..Default::default() },
    )
    .await
    .unwrap();
    let session = browser.sign_in(json!({ "link": made.token })).await.unwrap();

    let caller = browser.ask(&session, "People/GetCaller", &pb::GetCallerRequest {}).await;
    let caller: pb::GetCallerResponse = caller.unwrap();
    assert_eq!((caller.name.as_str(), caller.scopes), ("Berta", vec!["read".to_owned()]));
    let list = browser.call(&session, "Agents/ListAgents", &pb::ListAgentsRequest {}).await;
    assert_eq!(list.unwrap().code, Code::Ok);
    let delete = pb::DeleteAgentRequest { agent: "main".to_owned() };
    let refused = browser.call(&session, "Agents/DeleteAgent", &delete).await.unwrap();
    assert_eq!(refused.code, Code::PermissionDenied);
    // Nor does a link that the session makes.
    let ask = |scopes: &[&str]| pb::CreateSignInLinkRequest {
        scopes: scopes.iter().map(|&scope| scope.to_owned()).collect(),
        ..Default::default()
    };
    let more = browser.call(&session, "Console/CreateSignInLink", &ask(&["admin"])).await.unwrap();
    assert_eq!(more.code, Code::PermissionDenied, "{}", more.message);
    let same = browser.ask(&session, "Console/CreateSignInLink", &ask(&[])).await;
    let same: pb::CreateSignInLinkResponse = same.unwrap();
    let session = browser.sign_in(json!({ "link": same.token })).await.unwrap();
    let refused = browser.call(&session, "Agents/DeleteAgent", &delete).await.unwrap();
    assert_eq!(refused.code, Code::PermissionDenied);
}

#[tokio::test]
async fn a_key_gives_no_scope_that_it_lacks() {
    let world = World::start().await.unwrap();
    let key = world.key(&world.anna, &["read"], None).await.unwrap();
    for scope in ["admin", "events", "platform", "service", "root"] {
        let request =
            pb::CreateSignInLinkRequest { scopes: vec![scope.to_owned()], ..Default::default() };

        let refused = link(&world, &world.anna.by(&key), request).await.unwrap_err();

        let expected = if scope == "root" { Code::InvalidArgument } else { Code::PermissionDenied };
        assert_eq!(refused.code(), expected, "{scope}: {refused}");
    }
}

#[tokio::test]
async fn a_session_ends_with_its_key_and_at_its_age() {
    let world = World::start().await.unwrap();
    let key = world.key(&world.anna, &["read"], None).await.unwrap();
    let mut browser = Browser::new(&world);
    let of_key = browser.sign_in_with_key(&key).await.unwrap();
    assert_eq!(code(&browser, &of_key).await, Code::Ok);
    let of_age = |session: &str, column: &str, age: &str| {
        format!(
            "update control.console_sessions set {column} = now() - interval '{age}' \
             where session_id = '{session}'"
        )
    };
    let idle = browser.sign_in_with_key(&world.anna.key).await.unwrap();
    let old = browser.sign_in_with_key(&world.anna.key).await.unwrap();
    let used = browser.sign_in_with_key(&world.anna.key).await.unwrap();
    execute(&world, &of_age(&idle, "used_at", "12 hours")).await;
    execute(&world, &of_age(&old, "expires_at", "1 second")).await;
    execute(&world, &of_age(&used, "used_at", "11 hours")).await;

    assert_eq!(code(&browser, &idle).await, Code::Unauthenticated);
    assert_eq!(code(&browser, &old).await, Code::Unauthenticated);
    assert_eq!(code(&browser, &used).await, Code::Ok);
    let fresh = format!(
        "select count(*) from control.console_sessions \
         where session_id = '{used}' and used_at > now() - interval '1 minute'"
    );
    assert_eq!(world.number(&fresh).await.unwrap(), 1, "the use was not stored");

    let id = world.directory.keys().list(world.anna.id).await.unwrap();
    let id = id.iter().find(|known| key.contains(&known.id.as_uuid().simple().to_string()));
    let (id, keys) = (id.unwrap().id, world.directory.keys());
    keys.revoke(world.anna.id, Actor::Operator, id).await.unwrap();
    // Another process may know the session for so long.
    tokio::time::sleep(Duration::from_millis(5_200)).await;
    assert_eq!(code(&browser, &of_key).await, Code::Unauthenticated);
}

#[tokio::test]
async fn owners_list_and_end_the_sessions_of_their_tenant_alone() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    let anna = browser.sign_in_with_key(&world.anna.key).await.unwrap();
    let ben = browser.sign_in_with_key(&world.ben.key).await.unwrap();
    let reader = world.key(&world.anna, &["read"], None).await.unwrap();
    let reader = browser.sign_in_with_key(&reader).await.unwrap();
    let list = pb::ListConsoleSessionsRequest {};

    let listed = browser.ask(&anna, "Console/ListConsoleSessions", &list).await;
    let listed: pb::ListConsoleSessionsResponse = listed.unwrap();
    let ids: Vec<&str> = listed.sessions.iter().map(|session| session.id.as_str()).collect();
    assert_eq!(ids, [&reader, &anna]);
    let refused = browser.call(&reader, "Console/ListConsoleSessions", &list).await.unwrap();
    assert_eq!(refused.code, Code::PermissionDenied);
    let end = |id: &str| pb::EndConsoleSessionRequest { id: id.to_owned() };
    let foreign = browser.call(&ben, "Console/EndConsoleSession", &end(&anna)).await.unwrap();
    assert_eq!(foreign.code, Code::NotFound);
    let ended = browser.call(&anna, "Console/EndConsoleSession", &end(&reader)).await.unwrap();

    assert_eq!(ended.code, Code::Ok);
    assert_eq!(code(&browser, &reader).await, Code::Unauthenticated);
    assert_eq!(code(&browser, &anna).await, Code::Ok);
    let audit = "select action from control.audit where action like 'console.%' order by audit_id";
    let audit = world.texts(audit).await.unwrap();
    assert_eq!(audit, ["console.sign_in", "console.sign_in", "console.sign_in", "console.end"]);
}

#[tokio::test]
async fn another_page_can_neither_call_nor_sign_in_nor_sign_out() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    let session = browser.sign_in_with_key(&world.anna.key).await.unwrap();
    let own = browser.origin.clone();

    for (origin, site) in [
        (Some("https://evil.example"), None),
        (Some("null"), None),
        (own.as_deref(), Some("cross-site")),
        (None, Some("same-site")),
        (None, Some("cross-site")),
    ] {
        browser.origin = origin.map(str::to_owned);
        let with_site = |request: reqwest::RequestBuilder| match site {
            Some(site) => request.header("sec-fetch-site", site),
            None => request,
        };
        let call = browser.call_request(&session, "People/GetCaller", &pb::GetCallerRequest {});
        let called = Called::of(with_site(call).send().await.unwrap()).await.unwrap();
        assert_eq!(called.code, Code::PermissionDenied, "{origin:?} {site:?}");
        assert!(called.answers.is_empty());
        let sign_in = browser.request(Method::POST, "/console/sign-in");
        let sign_in = with_site(sign_in.json(&json!({ "key": world.anna.key })));
        let (refused, cookies) = browser.send(sign_in).await.unwrap();
        assert_eq!((refused.status().as_u16(), cookies.len()), (403, 0), "{origin:?} {site:?}");
        let out = browser.request(Method::POST, "/console/sign-out");
        let out = with_site(out.header("x-holdfast-session", &session));
        assert_eq!(browser.send(out).await.unwrap().0.status(), 403, "{origin:?} {site:?}");
    }
    browser.origin = own;
    assert_eq!(code(&browser, &session).await, Code::Ok);
}

#[tokio::test]
async fn only_the_cookie_of_the_named_session_is_a_credential() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    let session = browser.sign_in_with_key(&world.anna.key).await.unwrap();
    let stranger = Browser::new(&world);
    let ask = pb::GetCallerRequest {};
    let token = browser.cookies.values().next().unwrap().clone();

    // Neither a key nor the token of a session, as a bearer.
    for bearer in [&world.anna.key, &token] {
        let call = stranger.call_request(&session, "People/GetCaller", &ask).bearer_auth(bearer);
        let called = Called::of(call.send().await.unwrap()).await.unwrap();
        assert_eq!(called.code, Code::Unauthenticated);
    }
    // A bearer beside the cookie changes nothing.
    let both = browser.call_request(&session, "People/GetCaller", &ask);
    let both = Called::of(both.bearer_auth(&world.ben.key).send().await.unwrap()).await.unwrap();
    assert!(String::from_utf8_lossy(&both.answers.concat()).contains("anna"));
    // Not without the session's name, and not with that of another one.
    for other in ["", "0", "0190f3c4d5e67890abcd1234567890ab"] {
        assert_eq!(code(&browser, other).await, Code::Unauthenticated, "{other}");
    }
    // The token is no credential of a program.
    let mut people = pb::people_client::PeopleClient::new(world.channel().await.unwrap());
    let refused = people.get_caller(world.anna.by(&token).request(ask)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let http = world.get(&world.anna.by(&token), "/v1/models").send().await.unwrap();
    assert_eq!(http.status(), 401);
}

#[tokio::test]
async fn calls_of_the_mesh_and_of_nodes_are_not_there() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    let session = browser.sign_in_with_key(&world.anna.key).await.unwrap();

    for method in ["Ingest/Accept", "Nodes/Attach", "People/NoSuchMethod"] {
        let called = browser.call(&session, method, &pb::GetCallerRequest {}).await.unwrap();
        assert_eq!(called.code, Code::Unimplemented, "{method}: {}", called.message);
    }
    let nodes = browser.call(&session, "Nodes/ListNodes", &pb::ListNodesRequest {}).await.unwrap();
    assert_eq!(nodes.code, Code::Ok);
    // The context that services of the mesh sign is not looked at.
    let call = browser.call_request(&session, "Ingest/Accept", &pb::AcceptRequest::default());
    let call = call.header("x-holdfast-context", "x");
    assert_eq!(Called::of(call.send().await.unwrap()).await.unwrap().code, Code::Unimplemented);
}

#[tokio::test]
async fn unary_and_streaming_calls_are_answered_with_the_audit_and_limits_of_grpc() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    let session = browser.sign_in_with_key(&world.anna.key).await.unwrap();

    let listed = browser.ask(&session, "Agents/ListAgents", &pb::ListAgentsRequest {}).await;
    let listed: pb::ListAgentsResponse = listed.unwrap();
    assert_eq!(listed.agents[0].name, "main");
    let send = pb::SendRequest { text: "hi".to_owned(), ..Default::default() };
    let streamed = browser.call(&session, "Messages/Stream", &send).await.unwrap();
    assert_eq!(streamed.code, Code::Ok, "{}", streamed.message);
    assert!(streamed.answers.len() > 1, "{}", streamed.answers.len());
    let text = String::from_utf8_lossy(&streamed.answers.concat()).into_owned();
    assert!(text.contains("echo: hi"), "{text}");
    // A stream that does not end by itself arrives as it is made.
    let subscribe =
        pb::SubscribeRequest { start: pb::EventStart::Earliest.into(), ..Default::default() };
    let call = browser.call_request(&session, "Events/Subscribe", &subscribe);
    let first = first_messages(call.send().await.unwrap(), 1).await.unwrap();
    assert!(!first[0].is_empty());

    let agent = pb::Agent { name: "coach".to_owned(), ..Default::default() };
    let create = pb::CreateAgentRequest { agent: Some(agent) };
    let made = browser.call(&session, "Agents/CreateAgent", &create).await.unwrap();
    assert_eq!(made.code, Code::Ok, "{}", made.message);
    let audit = "select actor || ' ' || outcome from control.audit \
                 where method = 'Agents/CreateAgent'";
    let audit = world.texts(audit).await.unwrap();
    assert!(audit[0].starts_with("key_") && audit[0].ends_with(" ok"), "{audit:?}");
    let wrong = browser.call(&session, "Agents/GetAgent", &pb::GetAgentRequest::default()).await;
    assert_ne!(wrong.unwrap().code, Code::Ok);
}
