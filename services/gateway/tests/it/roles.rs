//! Every method, called by every role and scope: what docs/people-and-roles.md permits is permitted,
//! and nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use holdfast_proto::DESCRIPTORS;
use holdfast_testkit::FakeIssuer;
use prost::Message as _;
use prost_types::FileDescriptorSet;
use serde_json::json;
use tokio::time::timeout;
use tonic::Code;

use crate::{
    foreign::raw::call,
    people::trust,
    world::{Tenant, World},
};

const DOCUMENT: &str = include_str!("../../../../docs/people-and-roles.md");
const ROLES: [&str; 6] = ["guest", "viewer", "member", "approver", "operator", "owner"];
const SCOPES: [&str; 8] =
    ["guest", "chat", "read", "events", "approve", "admin", "owner", "platform"];

/// Time after which a subscription counts as permitted.
const SUBSCRIBED: Duration = Duration::from_millis(300);

/// What the document says about a method.
#[derive(Debug, Clone)]
struct Documented {
    scope: String,
    /// Names of roles, or `none`.
    roles: String,
}

/// The document's table of permissions, by `Service/Method`.
fn documented() -> BTreeMap<String, Documented> {
    let mut all = BTreeMap::new();
    let (_, table) = DOCUMENT.split_once("| permission |").unwrap();
    for line in table.lines().skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [_, scope, role, calls] = cells[..] else { panic!("{line}") };
        for service in calls.split("; ") {
            let (service, methods) = service.split_once(": ").unwrap();
            for method in methods.split(", ") {
                let row = Documented {
                    scope: scope.trim_matches('`').to_owned(),
                    roles: role.trim_matches('`').replace("`, `", "` or `"),
                };
                let name = format!("{service}/{}", method.trim_matches('`'));
                assert!(all.insert(name, row).is_none(), "{method} is there twice");
            }
        }
    }
    all
}

fn methods() -> BTreeSet<String> {
    let files = FileDescriptorSet::decode(DESCRIPTORS).unwrap().file;
    let services = files.iter().flat_map(|file| &file.service);
    services
        .flat_map(|service| {
            let name = move |method: &prost_types::MethodDescriptorProto| {
                format!("{}/{}", service.name(), method.name())
            };
            service.method.iter().map(name)
        })
        .collect()
}

#[test]
fn every_method_of_the_contracts_is_documented_with_its_permission() {
    let documented: BTreeSet<String> = documented().into_keys().collect();

    assert!(documented.len() > 150, "{} methods", documented.len());
    assert_eq!(documented, methods());
}

#[tokio::test]
async fn every_role_may_call_what_is_documented_and_nothing_else() {
    let issuer = FakeIssuer::start().await.unwrap();
    let url = issuer.url();
    let world = World::start_with(|config| trust(config, &url)).await.unwrap();
    let table = documented();

    for tenant in [&world.anna, &world.ben] {
        let org = if tenant.id == world.anna.id { "anna" } else { "ben" };
        for role in ROLES {
            let token = issuer.token(json!({"sub": role, "org": org, "groups": [role]}));
            let person = tenant.by(&token);
            for method in methods() {
                let roles = &table[&method].roles;
                let allowed = roles.split("` or `").any(|one| one == role);
                check(&world, &person, &method, role, allowed, roles).await;
            }
        }
    }
}

#[tokio::test]
async fn every_scope_of_a_key_permits_what_is_documented_and_nothing_else() {
    let world = World::start_with(|config| {
        config.gateway.rate_window = std::time::Duration::from_secs(60);
    })
    .await
    .unwrap();
    let table = documented();

    for scope in SCOPES {
        let key = world.key(&world.anna, &[scope], None).await.unwrap();
        let program = world.anna.by(&key);
        for method in methods() {
            let needed = &table[&method].scope;
            let allowed = needed.split("` or `").any(|one| one == scope) || needed == "any";
            check(&world, &program, &method, scope, allowed, needed).await;
        }
    }
}

/// Calls a method with an empty message.
async fn check(
    world: &World,
    caller: &Tenant,
    method: &str,
    who: &str,
    is_allowed: bool,
    needs: &str,
) {
    let answer = call(world, caller, method, Vec::new());
    // A subscription that is permitted goes on.
    let answer = match method.ends_with("Events/Subscribe") && is_allowed {
        true => match timeout(SUBSCRIBED, answer).await {
            Ok(answer) => answer,
            Err(_) => return,
        },
        false => answer.await,
    };
    let (code, told) = match &answer {
        Ok(_) => (Code::Ok, ""),
        Err(status) => (status.code(), status.message()),
    };
    if is_allowed {
        let refused = matches!(code, Code::PermissionDenied | Code::Unauthenticated);
        assert!(!refused, "{method} by {who}: {code:?} {told}");
        assert_ne!(code, Code::Unimplemented, "{method}");
    } else {
        assert_eq!(code, Code::PermissionDenied, "{method} by {who}: {told}");
        let is_named = told.contains(&format!("`{needs}`"))
            || (needs == "none" && told.contains("no role of a tenant includes it"))
            || told.contains("only a node may be connected")
            || told.contains("the scope `service`");
        assert!(is_named, "{method} by {who} does not say what it needs: {told}");
    }
}
