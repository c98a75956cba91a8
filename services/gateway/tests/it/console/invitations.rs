//! People who are invited, whose keys and links are theirs, and how long their sign-ins last.

use std::time::Duration;

use futures::StreamExt as _;
use holdfast_directory::{Actor, NewKey, SCOPES};
use holdfast_proto::gateway::v1::{
    self as pb, audit_client::AuditClient, console_client::ConsoleClient, keys_client::KeysClient,
    people_client::PeopleClient, run_event::Event, tenants_client::TenantsClient,
};
use holdfast_types::{PersonId, TenantRole};
use secrecy::ExposeSecret as _;
use serde_json::json;
use tonic::{Code, Status};

use super::{Browser, code, execute};
use crate::world::{Tenant, World, message};

async fn invite(
    world: &World,
    of: &Tenant,
    name: &str,
    role: &str,
) -> Result<pb::InvitePersonResponse, Status> {
    let mut console = ConsoleClient::new(world.channel().await.unwrap());
    let request = pb::InvitePersonRequest { name: name.to_owned(), role: role.to_owned() };
    Ok(console.invite_person(of.request(request)).await?.into_inner())
}

/// Invites a person and signs them in; returns their session.
async fn sign_in_invited(world: &World, browser: &mut Browser, name: &str, role: &str) -> String {
    let made = invite(world, &world.anna, name, role).await.unwrap();
    browser.sign_in(json!({ "link": made.token })).await.unwrap()
}

async fn caller(browser: &Browser, session: &str) -> pb::GetCallerResponse {
    browser.ask(session, "People/GetCaller", &pb::GetCallerRequest {}).await.unwrap()
}

fn invitation(name: &str, role: &str) -> pb::InvitePersonRequest {
    pb::InvitePersonRequest { name: name.to_owned(), role: role.to_owned() }
}

#[tokio::test]
async fn the_decision_of_an_invited_person_bears_their_name() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    let berta = sign_in_invited(&world, &mut browser, "Berta", "operator").await;
    let who = caller(&browser, &berta).await;
    assert_eq!((&*who.name, &*who.role, &who.id), ("Berta", "operator", &who.person));
    let mut messages = world.messages().await.unwrap();
    let mut events =
        messages.stream(world.anna.request(message("ask me"))).await.unwrap().into_inner();

    let mut is_done = false;
    while let Some(event) = events.next().await {
        match event.unwrap().event.unwrap() {
            Event::ApprovalRequested(asked) => {
                let allow = pb::ResolveApprovalRequest {
                    approval: asked.approval_id,
                    decision: pb::Decision::AllowOnce.into(),
                    ..Default::default()
                };
                let decided = browser.ask(&berta, "Approvals/ResolveApproval", &allow).await;
                let decided: pb::ResolveApprovalResponse = decided.unwrap();
                assert_eq!(decided.approval.unwrap().decided_by, who.id);
            }
            Event::Done(_) => is_done = true,
            _ => {}
        }
    }

    assert!(is_done, "the turn has not gone on");
    let mut audit = AuditClient::new(world.channel().await.unwrap());
    let list = pb::ListAuditEventsRequest {
        action: "Approvals/ResolveApproval".to_owned(),
        ..Default::default()
    };
    let listed = audit.list_audit_events(world.anna.request(list)).await.unwrap().into_inner();
    let [event] = listed.events.as_slice() else { panic!("{:?}", listed.events) };
    assert_eq!((&event.actor, &*event.actor_name), (&who.id, "Berta"));
    assert_eq!(event.via, format!("console/{berta}"));
    assert_eq!(event.inviter_name, "first key");
    assert!(event.invited_by.starts_with("key_"), "{event:?}");
}

#[tokio::test]
async fn nobody_gives_a_role_above_their_own() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    let operator = sign_in_invited(&world, &mut browser, "Oda", "operator").await;
    let owner = sign_in_invited(&world, &mut browser, "Otto", "owner").await;
    let member = sign_in_invited(&world, &mut browser, "Mia", "member").await;
    let cases = [
        (&owner, "owner", Code::Ok),
        (&operator, "owner", Code::PermissionDenied),
        (&operator, "operator", Code::PermissionDenied),
        (&operator, "member", Code::Ok),
        (&member, "member", Code::PermissionDenied),
        (&owner, "king", Code::InvalidArgument),
    ];
    for (session, role, expected) in cases {
        let request = invitation("Carl", role);
        let called = browser.call(session, "Console/InvitePerson", &request).await.unwrap();
        assert_eq!(called.code, expected, "{role}: {}", called.message);
        // A sign-in link with a role is the same.
        let link = pb::CreateSignInLinkRequest {
            name: "Carl".to_owned(),
            role: role.to_owned(),
            ..Default::default()
        };
        let called = browser.call(session, "Console/CreateSignInLink", &link).await.unwrap();
        assert_eq!(called.code, expected, "{role}: {}", called.message);
    }
}

#[tokio::test]
async fn an_invitation_is_listed_revoked_and_accepted_once() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    let (kept, revoked) = (
        invite(&world, &world.anna, "Berta", "member").await.unwrap(),
        invite(&world, &world.anna, "Carl", "member").await.unwrap(),
    );
    let mut console = ConsoleClient::new(world.channel().await.unwrap());
    let mut listed = async |of: &Tenant| {
        let list = of.request(pb::ListInvitationsRequest {});
        let listed = console.list_invitations(list).await.unwrap().into_inner();
        let names = listed.invitations.into_iter().map(|one| one.name);
        names.collect::<Vec<String>>()
    };
    assert_eq!(listed(&world.anna).await, ["Carl", "Berta"]);
    assert!(listed(&world.ben).await.is_empty());
    let id = revoked.invitation.unwrap().id;
    let mut other = ConsoleClient::new(world.channel().await.unwrap());
    let revoke = || pb::RevokeInvitationRequest { id: id.clone() };
    let refused = other.revoke_invitation(world.ben.request(revoke())).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    other.revoke_invitation(world.anna.request(revoke())).await.unwrap();

    let (status, _) = browser.try_sign_in(json!({ "link": revoked.token })).await.unwrap();
    assert_eq!(status, 401);
    let mut browsers: Vec<Browser> = (0..3).map(|_| Browser::new(&world)).collect();
    let body = json!({ "link": kept.token });
    let tries = browsers.iter_mut().map(|browser| browser.try_sign_in(body.clone()));
    let tried = futures::future::join_all(tries).await;
    let mut statuses: Vec<u16> = tried.into_iter().map(|tried| tried.unwrap().0).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 401, 401]);
    assert!(listed(&world.anna).await.is_empty());
    let people = "select name || ' ' || kind from control.people join control.person_identities \
                  using (tenant_id, person_id)";
    assert_eq!(world.texts(people).await.unwrap(), ["Berta invitation"]);
}

#[tokio::test]
async fn a_link_of_a_session_ends_with_it_and_needs_a_fresh_sign_in() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    let first = sign_in_invited(&world, &mut browser, "Berta", "owner").await;
    execute(
        &world,
        "update control.console_sessions set expires_at = now() + interval '1 hour', \
         signed_in_at = now() - interval '14 minutes'",
    )
    .await;
    let ask = pb::CreateSignInLinkRequest::default();
    let made = browser.ask(&first, "Console/CreateSignInLink", &ask).await;
    let made: pb::CreateSignInLinkResponse = made.unwrap();

    let second = browser.sign_in(json!({ "link": made.token })).await.unwrap();

    let ends = "select count(distinct (expires_at, signed_in_at)) from control.console_sessions";
    assert_eq!(world.number(ends).await.unwrap(), 1, "the second session has other times");
    let (one, other) = (caller(&browser, &first).await, caller(&browser, &second).await);
    assert_eq!(one.person, other.person);
    // A link does not make the sign-in a fresh one.
    execute(
        &world,
        "update control.console_sessions set signed_in_at = now() - interval '16 minutes'",
    )
    .await;
    for (method, refused) in [
        ("CreateSignInLink", browser.call(&second, "Console/CreateSignInLink", &ask).await),
        (
            "InvitePerson",
            browser.call(&second, "Console/InvitePerson", &invitation("Eve", "owner")).await,
        ),
    ] {
        let refused = refused.unwrap();
        assert_eq!(refused.code, Code::PermissionDenied, "{method}");
        assert!(refused.message.contains("15%20minutes%20ago"), "{}", refused.message);
    }
}

#[tokio::test]
async fn the_invitations_of_a_refused_person_are_worth_nothing() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    let otto = sign_in_invited(&world, &mut browser, "Otto", "owner").await;
    let asked = browser.ask(&otto, "Console/InvitePerson", &invitation("Eve", "owner")).await;
    let made: pb::InvitePersonResponse = asked.unwrap();
    let person = caller(&browser, &otto).await.person.parse().unwrap();
    let people = world.directory.people();

    people.set_disabled(world.anna.id, Actor::Operator, person, true).await.unwrap();

    let (status, _) = browser.try_sign_in(json!({ "link": made.token })).await.unwrap();
    assert_eq!(status, 401);
}

async fn person_of(world: &World, key: &Tenant) -> Result<pb::GetCallerResponse, Status> {
    let mut people = PeopleClient::new(world.channel().await.unwrap());
    Ok(people.get_caller(key.request(pb::GetCallerRequest {})).await?.into_inner())
}

async fn key_for(
    world: &World,
    person: PersonId,
    scopes: &[&str],
) -> Result<pb::CreateKeyResponse, Status> {
    let mut keys = KeysClient::new(world.channel().await.unwrap());
    let create = pb::CreateKeyRequest {
        name: "terminal".to_owned(),
        scopes: scopes.iter().map(|&scope| scope.to_owned()).collect(),
        person: person.to_string(),
        ..Default::default()
    };
    Ok(keys.create_key(world.anna.request(create)).await?.into_inner())
}

#[tokio::test]
async fn a_key_of_a_person_acts_as_them_within_their_role_and_ends_with_them() {
    let world = World::start().await.unwrap();
    let mut browser = Browser::new(&world);
    let session = sign_in_invited(&world, &mut browser, "Mia", "operator").await;
    let mia: PersonId = caller(&browser, &session).await.person.parse().unwrap();
    let refused = key_for(&world, mia, &["owner"]).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("the scope `owner`"), "{refused}");
    let foreign = key_for(&world, PersonId::generate(), &["chat"]).await.unwrap_err();
    assert_eq!(foreign.code(), Code::NotFound);

    let made = key_for(&world, mia, &["chat", "read"]).await.unwrap();

    assert_eq!(made.key.unwrap().person, mia.to_string());
    let key = world.anna.by(&made.secret);
    let who = person_of(&world, &key).await.unwrap();
    assert_eq!((&who.id, &who.person), (&mia.to_string(), &mia.to_string()));
    // A link of the key is for the person, and ends with the key and with them.
    let mut console = ConsoleClient::new(world.channel().await.unwrap());
    let link = console.create_sign_in_link(key.request(pb::CreateSignInLinkRequest::default()));
    let link = link.await.unwrap().into_inner();
    let linked = browser.sign_in(json!({ "link": link.token })).await.unwrap();
    assert_eq!(caller(&browser, &linked).await.role, "operator");
    // The role of today counts, not that of when the key was made.
    execute(&world, "update control.people set role = 'viewer'").await;
    tokio::time::sleep(Duration::from_millis(5_200)).await;
    assert_eq!(person_of(&world, &key).await.unwrap().scopes, ["read"]);

    let people = world.directory.people();
    people.set_disabled(world.anna.id, Actor::Operator, mia, true).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5_200)).await;
    assert_eq!(person_of(&world, &key).await.unwrap_err().code(), Code::Unauthenticated);
    for session in [&session, &linked] {
        assert_eq!(code(&browser, session).await, Code::Unauthenticated);
    }
}

#[tokio::test]
async fn the_first_key_of_a_tenant_is_that_of_its_owner() {
    let world = World::start().await.unwrap();
    let platform = world.anna.by(&world.key(&world.anna, &["platform"], None).await.unwrap());
    let mut tenants = TenantsClient::new(world.channel().await.unwrap());
    let create = pb::CreateTenantRequest { name: "cleo".to_owned(), ..Default::default() };
    let made = tenants.create_tenant(platform.request(create)).await.unwrap().into_inner();
    let cleo = world.anna.by(&made.secret);

    let who = person_of(&world, &cleo).await.unwrap();

    assert_eq!(who.tenant, "cleo");
    let id = made.tenant.unwrap().id.parse().unwrap();
    let owner = world.directory.people().get(id, who.person.parse().unwrap()).await.unwrap();
    assert_eq!((&*owner.name, owner.role), ("Owner", TenantRole::Owner));
    // Whoever operates the installation may do what no role includes, in a session too.
    let new = NewKey {
        name: "terminal".to_owned(),
        scopes: SCOPES.map(str::to_owned).to_vec(),
        lifetime: None,
        person: Some(owner.id),
        agent: None,
        origins: Vec::new(),
    };
    let (_, key) = world.directory.keys().create(id, Actor::Operator, new).await.unwrap();
    let terminal = world.anna.by(key.expose_secret());
    let mut console = ConsoleClient::new(world.channel().await.unwrap());
    let mut list_tenants = async |operates: bool| {
        let known = world.directory.people().first_owner(id, ("Cleo", operates)).await.unwrap();
        assert_eq!(known.id, owner.id);
        let link = terminal.request(pb::CreateSignInLinkRequest::default());
        let link = console.create_sign_in_link(link).await.unwrap().into_inner();
        let mut browser = Browser::new(&world);
        let session = browser.sign_in(json!({ "link": link.token })).await.unwrap();
        let list = pb::ListTenantsRequest::default();
        browser.call(&session, "Tenants/ListTenants", &list).await.unwrap().code
    };
    assert_eq!(list_tenants(false).await, Code::PermissionDenied);
    assert_eq!(list_tenants(true).await, Code::Ok);
}
