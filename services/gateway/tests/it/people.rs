//! People who sign in at an identity provider.

use std::time::Duration;

use gateway::{Config, Issuer};
use holdfast_proto::gateway::v1::{
    self as pb, GetCallerRequest, ListAgentsRequest, ListPeopleRequest, SetPersonStateRequest,
    agents_client::AgentsClient, people_client::PeopleClient, sessions_client::SessionsClient,
};
use holdfast_testkit::{FakeIssuer, SigningKey, openapi::Description};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::world::{Tenant, World, message};

/// Accepts people of this issuer: the claim `org` is the tenant, groups are named as roles.
pub fn trust(config: &mut Config, url: &str) {
    config.gateway.rate_window = Duration::from_secs(60);
    config.oidc.min_refresh_interval = Duration::from_millis(300);
    config.oidc.issuers.push(issuer(json!({
        "url": url, "audiences": ["holdfast"], "tenant_claim": "org",
        "tenants": {"anna": "anna", "ben": "ben", "gone": "nobody"},
        "roles": {
            "guest": "guest", "viewer": "viewer", "member": "member", "approver": "approver",
            "operator": "operator", "owner": "owner",
        },
    })));
}

fn issuer(settings: Value) -> Issuer {
    serde_json::from_value(settings).unwrap()
}

/// A world that trusts an issuer.
async fn world(issuer: &FakeIssuer) -> World {
    let url = issuer.url();
    World::start_with(|config| trust(config, &url)).await.unwrap()
}

/// The same with a memory service.
async fn world_with_memory(issuer: &FakeIssuer) -> World {
    let url = issuer.url();
    World::start_with_memory_and(|config| trust(config, &url)).await.unwrap()
}

/// Calls as the holder of a token; returns the id of whoever the gateway takes it for.
async fn whoami(world: &World, token: &str) -> Result<String, Status> {
    let mut people = PeopleClient::new(world.channel().await.unwrap());
    let asked = people.get_caller(world.anna.by(token).request(GetCallerRequest {})).await?;
    let who = asked.into_inner();
    Ok(format!("{} {} {}", who.name, who.role, who.tenant))
}

async fn refusal(world: &World, token: &str) -> (Code, String) {
    let status = whoami(world, token).await.unwrap_err();
    (status.code(), status.message().to_owned())
}

fn annas(issuer: &FakeIssuer, more: Value) -> String {
    let mut claims = json!({"sub": "7", "org": "anna", "groups": ["owner"], "name": "Anna A"});
    claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    issuer.token(claims)
}

#[tokio::test]
async fn a_token_makes_its_person_known_in_its_tenant_and_in_no_other() {
    let issuer = FakeIssuer::start().await.unwrap();
    let world = world(&issuer).await;

    let anna = annas(&issuer, json!({}));
    let ben = annas(&issuer, json!({"org": "ben", "groups": ["member"], "name": "Ben B"}));
    assert_eq!(whoami(&world, &anna).await.unwrap(), "Anna A owner anna");
    assert_eq!(whoami(&world, &ben).await.unwrap(), "Ben B member ben");

    let mut people = PeopleClient::new(world.channel().await.unwrap());
    let mut listed = async |of: &Tenant| {
        let listed = people.list_people(of.request(ListPeopleRequest::default())).await;
        let people = listed.unwrap().into_inner().people;
        people.into_iter().map(|person| format!("{} {}", person.name, person.role)).collect()
    };
    let (of_anna, of_ben): (Vec<String>, Vec<String>) =
        (listed(&world.anna).await, listed(&world.ben).await);
    assert_eq!(of_anna, ["Anna A owner"]);
    assert_eq!(of_ben, ["Ben B member"]);

    // The same person with another role: one row, with the newest role.
    let viewer = annas(&issuer, json!({"groups": ["viewer"]}));
    assert_eq!(whoami(&world, &viewer).await.unwrap(), "Anna A viewer anna");
    assert_eq!(listed(&world.anna).await, ["Anna A viewer"]);
}

#[tokio::test]
async fn a_token_that_is_not_the_issuers_is_refused() {
    let issuer = FakeIssuer::start().await.unwrap();
    let other = FakeIssuer::start().await.unwrap();
    let world = world(&issuer).await;
    let good = issuer.claims(json!({"org": "anna", "groups": ["owner"]}));
    let unauthenticated = async |token: String, told: &str| {
        let (code, message) = refusal(&world, &token).await;
        assert_eq!(code, Code::Unauthenticated, "{message}");
        assert!(message.contains(told), "{message}");
    };
    whoami(&world, &issuer.signing_key().sign(&good)).await.unwrap();

    // Forged: another key under the same id, no signature, the public key as a shared secret.
    unauthenticated(SigningKey::es256("first").sign(&good), "signature").await;
    unauthenticated(SigningKey::unsigned(&good), "`none`").await;
    unauthenticated(issuer.signing_key().sign_by_hmac(&good), "`HS256`").await;
    issuer.add_key(SigningKey::rs256("rsa"));
    tokio::time::sleep(Duration::from_millis(350)).await;
    whoami(&world, &issuer.signing_key().sign(&good)).await.unwrap();
    unauthenticated(issuer.signing_key().sign_by_hmac(&good), "`HS256`").await;
    let confused = json!({"alg": "ES256", "kid": "rsa"});
    unauthenticated(issuer.signing_key().sign_with_header(&confused, &good), "key").await;
    let logout = json!({"alg": "RS256", "kid": "rsa", "typ": "logout+jwt"});
    unauthenticated(issuer.signing_key().sign_with_header(&logout, &good), "JWT").await;

    let extended = json!({"alg": "RS256", "kid": "rsa", "crit": ["b64"], "b64": false});
    unauthenticated(issuer.signing_key().sign_with_header(&extended, &good), "JWT").await;

    let with = |more: Value| {
        let mut claims = json!({"org": "anna", "groups": ["owner"]});
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        issuer.token(claims)
    };
    let now = good["iat"].as_u64().unwrap();
    unauthenticated(with(json!({"exp": now - 120})), "expired").await;
    unauthenticated(with(json!({"exp": null})), "`exp`").await;
    unauthenticated(with(json!({"nbf": now + 600})), "not valid yet").await;
    unauthenticated(with(json!({"nbf": "tomorrow"})), "`nbf`").await;
    unauthenticated(with(json!({"aud": "another"})), "audience").await;
    unauthenticated(with(json!({"aud": null})), "audience").await;
    unauthenticated(with(json!({"sub": null})), "`sub`").await;
    unauthenticated(with(json!({"iss": other.url()})), "issuer").await;
    // An issuer that nobody configured, with keys of its own.
    unauthenticated(other.token(json!({"org": "anna", "groups": ["owner"]})), "issuer").await;
    unauthenticated("a.b.c".to_owned(), "can be read").await;
    // The clocks may differ a little.
    whoami(&world, &with(json!({"exp": now - 30, "nbf": now + 30}))).await.unwrap();
}

#[tokio::test]
async fn a_token_opens_its_own_tenant_only() {
    let (ours, theirs) = (FakeIssuer::start().await.unwrap(), FakeIssuer::start().await.unwrap());
    let urls = [ours.url(), theirs.url()];
    let world = World::start_with(|config| {
        for (url, tenant) in urls.iter().zip(["anna", "ben"]) {
            config.oidc.issuers.push(issuer(json!({
                "url": url, "audiences": ["holdfast"], "tenant": tenant, "default_role": "owner",
            })));
        }
    })
    .await
    .unwrap();

    // Claims and headers that name another tenant change nothing.
    let token = theirs.token(json!({"sub": "1", "org": "anna", "tenant": "anna"}));
    assert_eq!(whoami(&world, &token).await.unwrap(), "1 owner ben");
    let agents = async |token: &str| {
        let mut client = AgentsClient::new(world.channel().await.unwrap());
        let mut request = world.anna.by(token).request(ListAgentsRequest {});
        request.metadata_mut().insert("x-tenant", "anna".parse().unwrap());
        client.list_agents(request).await.unwrap().into_inner().agents[0].id.clone()
    };
    let of_ben = world.directory.agents().default_agent(world.ben.id).await.unwrap().id;
    assert_eq!(agents(&token).await, of_ben.to_string());

    // Signed by the one issuer in the name of the other.
    let forged = theirs.signing_key().sign(&ours.claims(json!({"sub": "1"})));
    assert_eq!(refusal(&world, &forged).await.0, Code::Unauthenticated);
}

#[tokio::test]
async fn a_token_for_two_clients_is_of_the_one_to_which_it_was_given() {
    let provider = FakeIssuer::start().await.unwrap();
    let url = provider.url();
    let world = World::start_with(|config| {
        for (audience, tenant) in [("of-anna", "anna"), ("of-ben", "ben")] {
            config.oidc.issuers.push(issuer(json!({
                "url": url, "audiences": [audience], "tenant": tenant, "default_role": "owner",
            })));
        }
    })
    .await
    .unwrap();
    let token = |audiences: &[&str], azp: Option<&str>| {
        provider.token(json!({ "sub": "1", "aud": audiences, "azp": azp }))
    };
    let both = ["of-anna", "of-ben"];

    assert_eq!(whoami(&world, &token(&["of-ben"], None)).await.unwrap(), "1 owner ben");
    assert_eq!(whoami(&world, &token(&both, Some("of-ben"))).await.unwrap(), "1 owner ben");
    assert_eq!(whoami(&world, &token(&both, Some("of-anna"))).await.unwrap(), "1 owner anna");
    for azp in [None, Some("another")] {
        let (code, message) = refusal(&world, &token(&both, azp)).await;
        assert_eq!(code, Code::Unauthenticated, "{message}");
        assert!(message.contains("several clients"), "{message}");
    }
}

#[tokio::test]
async fn a_person_without_a_tenant_or_a_role_is_refused_with_the_reason() {
    let issuer = FakeIssuer::start().await.unwrap();
    let world = world(&issuer).await;

    for (claims, told) in [
        (json!({"org": "unlisted"}), "belongs to no tenant"),
        (json!({"org": "gone"}), "belongs to no tenant"),
        (json!({"groups": ["strangers"]}), "none of your groups"),
        (json!({"groups": null}), "none of your groups"),
    ] {
        let (code, message) = refusal(&world, &annas(&issuer, claims)).await;
        assert_eq!(code, Code::PermissionDenied, "{message}");
        assert!(message.contains(told), "{message}");
    }
}

#[tokio::test]
async fn a_disabled_person_is_refused_though_the_token_is_valid() {
    let issuer = FakeIssuer::start().await.unwrap();
    let world = world(&issuer).await;
    let token = annas(&issuer, json!({}));
    whoami(&world, &token).await.unwrap();
    let mut people = PeopleClient::new(world.channel().await.unwrap());
    let listed = people.list_people(world.anna.request(ListPeopleRequest::default())).await;
    let id = listed.unwrap().into_inner().people[0].id.clone();
    let mut set = async |by: &Tenant, disabled| {
        let request = SetPersonStateRequest { id: id.clone(), disabled };
        people.set_person_state(by.request(request)).await.map(drop)
    };

    assert_eq!(set(&world.ben, true).await.unwrap_err().code(), Code::NotFound);
    whoami(&world, &token).await.unwrap();
    set(&world.anna, true).await.unwrap();
    let (code, message) = refusal(&world, &token).await;
    assert_eq!(code, Code::PermissionDenied);
    assert!(message.contains("may not sign in"), "{message}");

    set(&world.anna, false).await.unwrap();
    whoami(&world, &token).await.unwrap();
}

#[tokio::test]
async fn the_issuers_keys_are_rolled_over_without_a_restart() {
    let issuer = FakeIssuer::start().await.unwrap();
    let world = world(&issuer).await;
    let old = annas(&issuer, json!({}));
    whoami(&world, &old).await.unwrap();

    for key in [SigningKey::eddsa("second"), SigningKey::rs256("third"), SigningKey::es256("x")] {
        tokio::time::sleep(Duration::from_millis(350)).await;
        issuer.add_key(key);
        let before = issuer.key_fetches();
        whoami(&world, &annas(&issuer, json!({}))).await.unwrap();
        whoami(&world, &annas(&issuer, json!({}))).await.unwrap();
        assert_eq!(issuer.key_fetches(), before + 1, "one fetch for each new key");
    }
    // Old tokens are valid until their key is withdrawn and the keys are fetched again.
    whoami(&world, &old).await.unwrap();
    issuer.add_key(SigningKey::es256("y"));
    issuer.withdraw_old_keys();
    tokio::time::sleep(Duration::from_millis(350)).await;
    whoami(&world, &annas(&issuer, json!({}))).await.unwrap();
    assert_eq!(refusal(&world, &old).await.0, Code::Unauthenticated);
}

#[tokio::test]
async fn invented_key_ids_make_few_requests_to_the_issuer() {
    let issuer = FakeIssuer::start().await.unwrap();
    let url = issuer.url();
    let world = World::start_with(|config| {
        trust(config, &url);
        config.oidc.min_refresh_interval = Duration::from_secs(3600);
        config.oidc.refresh_interval = Duration::from_secs(3600);
    })
    .await
    .unwrap();
    whoami(&world, &annas(&issuer, json!({}))).await.unwrap();

    let claims = issuer.claims(json!({"org": "anna", "groups": ["owner"]}));
    for n in 0..20 {
        let (code, _) = refusal(&world, &SigningKey::es256(&format!("k{n}")).sign(&claims)).await;
        assert_eq!(code, Code::Unauthenticated);
    }

    assert_eq!(issuer.key_fetches(), 1);
}

#[tokio::test]
async fn without_the_provider_cached_keys_go_on_and_the_first_sign_in_is_told_why() {
    let (known, unknown) = (FakeIssuer::start().await.unwrap(), FakeIssuer::start().await.unwrap());
    let (url, other) = (known.url(), unknown.url());
    let world = World::start_with(|config| {
        trust(config, &url);
        trust(config, &other);
        config.oidc.refresh_interval = Duration::from_millis(300);
    })
    .await
    .unwrap();
    whoami(&world, &annas(&known, json!({}))).await.unwrap();

    known.set_away(true);
    unknown.set_away(true);
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(350)).await;
        let renewed = annas(&known, json!({"iat": 1}));
        whoami(&world, &renewed).await.unwrap();
    }
    let (code, message) = refusal(&world, &annas(&unknown, json!({}))).await;
    assert_eq!(code, Code::Unavailable, "{message}");
    assert!(message.contains(&other) && message.contains("503"), "{message}");

    unknown.set_away(false);
    tokio::time::sleep(Duration::from_millis(350)).await;
    whoami(&world, &annas(&unknown, json!({}))).await.unwrap();
}

#[tokio::test]
async fn a_person_chats_over_http_and_a_viewer_may_not() {
    let issuer = FakeIssuer::start().await.unwrap();
    let world = world(&issuer).await;
    let member = world.anna.by(&annas(&issuer, json!({"groups": ["member"]})));

    let answer = world.say(&member, "trip", "hello").await.unwrap();
    assert!(!answer["choices"][0]["message"]["content"].as_str().unwrap().is_empty());

    let viewer = world.anna.by(&annas(&issuer, json!({"groups": ["viewer"]})));
    assert_eq!(world.get(&viewer, "/v1/models").send().await.unwrap().status(), 200);
    let body = json!({"model": "holdfast", "messages": [{"role": "user", "content": "hello"}]});
    let refused = world.post(&viewer, "/v1/chat/completions").json(&body).send().await.unwrap();
    assert_eq!(refused.status(), 403);
    assert!(refused.headers().contains_key("x-request-id"));
    let told = refused.text().await.unwrap();
    assert!(told.contains("`operator` or `owner`, and yours is `viewer`"), "{told}");

    let stale = world.anna.by(&annas(&issuer, json!({"exp": 1})));
    let refused = world.get(&stale, "/v1/models").send().await.unwrap();
    assert_eq!(refused.status(), 401);
    assert!(refused.text().await.unwrap().contains("holdfast login"));
}

/// RFC 9728, section 5: the refusal names the page that names the identity provider.
#[tokio::test]
async fn an_mcp_client_is_led_from_its_refusal_to_the_identity_provider() {
    let issuer = FakeIssuer::start().await.unwrap();
    let world = world(&issuer).await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let forms = "application/json, text/event-stream";

    let refused = world.client.post(world.url("/mcp")).json(&list).send().await.unwrap();
    assert_eq!(refused.status(), 401);
    let challenge = refused.headers()["www-authenticate"].to_str().unwrap();
    let page = challenge.strip_prefix("Bearer resource_metadata=\"").unwrap().trim_end_matches('"');
    let description = Description::read().unwrap();
    let read = async |page: &str| -> Value {
        let page: Value = world.client.get(page).send().await.unwrap().json().await.unwrap();
        description.check_value("ProtectedResource", &page).unwrap();
        page
    };
    let told = read(page).await;
    let root = read(&world.url("/.well-known/oauth-protected-resource")).await;

    assert_eq!(told["resource"], world.url("/mcp"));
    assert_eq!(root["resource"], world.url(""));
    for page in [&told, &root] {
        assert_eq!(page["authorization_servers"], json!([issuer.url()]));
    }
    let anna = world.anna.by(&annas(&issuer, json!({})));
    let signed_in = world.post(&anna, "/mcp").header("accept", forms).json(&list).send().await;
    assert_eq!(signed_in.unwrap().status(), 200);
    // Other routes take keys, and send nobody away to sign in.
    let other = world.client.get(world.url("/v1/models")).send().await.unwrap();
    assert_eq!(other.headers()["www-authenticate"], "Bearer");
}

#[tokio::test]
async fn without_issuers_a_token_is_refused_with_the_setting() {
    let issuer = FakeIssuer::start().await.unwrap();
    let world = World::start().await.unwrap();

    let (code, message) = refusal(&world, &annas(&issuer, json!({}))).await;

    assert_eq!(code, Code::Unauthenticated);
    assert!(message.contains("`oidc.issuers`"), "{message}");
}

#[tokio::test]
async fn a_person_is_shown_and_changed_by_themselves_and_by_owners_only() {
    let issuer = FakeIssuer::start().await.unwrap();
    let world = world_with_memory(&issuer).await;
    let of = |name: &str, role: &str| {
        world.anna.by(&issuer.token(json!({"sub": name, "org": "anna", "groups": [role]})))
    };
    let (anna, ben, operator) = (of("1", "member"), of("2", "member"), of("3", "operator"));
    let owner = of("4", "owner");
    let mut people = PeopleClient::new(world.channel().await.unwrap());
    let shown = people.get_person(anna.request(pb::GetPersonRequest::default())).await.unwrap();
    let id = shown.into_inner().person.unwrap().id;

    let get = || pb::GetPersonRequest { id: id.clone() };
    let split = || pb::SplitPersonRequest { person: id.clone(), identity: "api:anna".to_owned() };
    for other in [&ben, &operator] {
        let refused = people.get_person(other.request(get())).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        let refused = people.split_person(other.request(split())).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
    }
    let link =
        |user: &str| pb::LinkProgramUserRequest { person: id.clone(), user: user.to_owned() };
    for user in ["a/b", "=x", " anna", ""] {
        let refused = people.link_program_user(owner.request(link(user))).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{user:?}: {refused}");
    }
    people.link_program_user(owner.request(link("anna"))).await.unwrap();
    let other = people.get_person(ben.request(pb::GetPersonRequest::default())).await.unwrap();
    let other = other.into_inner().person.unwrap().id;
    let taken = pb::LinkProgramUserRequest { person: other.clone(), user: "anna".to_owned() };
    let refused = people.link_program_user(owner.request(taken)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted, "{refused}");
    let shown = people.get_person(owner.request(get())).await.unwrap().into_inner();
    let values: Vec<_> = shown.identities.iter().map(|one| one.value.as_str()).collect();
    assert!(values.contains(&"api:anna"), "{values:?}");
    people.split_person(anna.request(split())).await.unwrap();
    let gone = people.split_person(anna.request(split())).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound);

    let nobody = pb::CreateLinkCodeRequest {};
    let key = world.anna.by(&world.key(&world.anna, &["chat"], None).await.unwrap());
    let refused = people.create_link_code(key.request(nobody)).await.unwrap_err();
    assert!(refused.message().contains("this key is nobody's"), "{refused}");
    let merge = |from: &str, into: &str| pb::MergePeopleRequest {
        from: from.to_owned(),
        into: into.to_owned(),
    };
    let refused = people.merge_people(owner.request(merge(&id, &id))).await.unwrap_err();
    assert!(refused.message().contains("into themselves"), "{refused}");
    people.merge_people(owner.request(merge(&id, &other))).await.unwrap();
    assert_eq!(listed(&world, &owner).await, 3, "a merged person is still listed");
    let me = people.get_caller(anna.request(GetCallerRequest {})).await.unwrap().into_inner();
    assert_eq!(me.person, other, "the first one's sign-in leads elsewhere");
    let merged = pb::SplitPersonRequest { person: String::new(), identity: id.clone() };
    let refused = people.split_person(ben.request(merged.clone())).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let merged = pb::SplitPersonRequest { person: other, ..merged };
    people.split_person(owner.request(merged)).await.unwrap();
    let me = people.get_caller(anna.request(GetCallerRequest {})).await.unwrap().into_inner();
    assert_eq!(me.person, id, "the person stays merged");
}

/// Number of people that a caller lists.
async fn listed(world: &World, caller: &Tenant) -> usize {
    let mut people = PeopleClient::new(world.channel().await.unwrap());
    let list = caller.request(ListPeopleRequest::default());
    people.list_people(list).await.unwrap().into_inner().people.len()
}

#[tokio::test]
async fn a_user_of_programs_who_is_a_person_is_reached_by_both_and_by_nobody_else() {
    let issuer = FakeIssuer::start().await.unwrap();
    let world = world_with_memory(&issuer).await;
    let of = |name: &str, role: &str| {
        world.anna.by(&issuer.token(json!({"sub": name, "org": "anna", "groups": [role]})))
    };
    let (anna, ben, owner) = (of("1", "member"), of("2", "member"), of("4", "owner"));
    let program = world.anna.by(&world.key(&world.anna, &["chat"], None).await.unwrap());
    let mut people = PeopleClient::new(world.channel().await.unwrap());
    let shown = people.get_person(anna.request(pb::GetPersonRequest::default())).await.unwrap();
    let id = shown.into_inner().person.unwrap().id;
    let say = |name: &str| pb::SendRequest { session: name.to_owned(), ..message("hello") };
    let before = world.send(&program, say("quill/trip")).await.unwrap().session_id;

    let link = pb::LinkProgramUserRequest { person: id.clone(), user: "quill".to_owned() };
    people.link_program_user(owner.request(link)).await.unwrap();

    let after = world.send(&program, say("quill/trip")).await.unwrap().session_id;
    assert_eq!(before, after, "the conversation does not go on");
    let view = world.sessions.views().session(world.anna.id, after.parse().unwrap()).await.unwrap();
    assert_eq!(view.key, format!("agent:main:api:={id}@/quill/trip"));
    world.send(&anna, say(&after)).await.unwrap();
    let refused = world.send(&ben, say(&after)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let mut sessions = SessionsClient::new(world.channel().await.unwrap());
    let list = pb::ListSessionsRequest::default();
    let listed = sessions.list_sessions(anna.request(list)).await.unwrap().into_inner().sessions;
    assert_eq!(listed.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), [after.as_str()]);
    let of_anna = pb::ListSessionsRequest { person: id, ..pb::ListSessionsRequest::default() };
    let refused = sessions.list_sessions(ben.request(of_anna)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}
