//! Those who call: a person of each role, and a key with each scope.

use gateway::Config;
use holdfast_directory::{Actor, NewKey};
use holdfast_proto::gateway::v1::{GetCallerRequest, people_client::PeopleClient};
use holdfast_testkit::FakeIssuer;
use holdfast_types::PersonId;
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::objects::{Object, Objects};
use crate::{
    events::log_events,
    people::trust,
    world::{Tenant, World},
};

/// Roles of people, in the order of the page's columns.
pub const ROLES: [&str; 6] = ["guest", "viewer", "member", "approver", "operator", "owner"];

/// Scopes of keys, in the order of the page's columns.
const SCOPES: [&[&str]; 11] = [
    &["guest"],
    &["chat"],
    &["read"],
    &["events"],
    &["approve"],
    &["admin"],
    &["owner"],
    &["platform"],
    &["chat", "read"],
    &["chat", "admin"],
    &["chat", "owner"],
];

/// Names of the columns of keys. The last one is a key that a member has for themselves.
pub fn key_names() -> Vec<String> {
    let names = SCOPES.iter().map(|scopes| scopes.join(", "));
    names.chain(["a member's".to_owned()]).collect()
}

/// Somebody who calls, and what is theirs.
pub struct Caller {
    pub name: String,
    pub access: Tenant,
    pub person: Option<PersonId>,
    /// Prefix of the names of their own conversations; empty for programs, which share theirs.
    name_space: String,
    pub own: Option<Object>,
}

/// A world with everybody who calls, and with what they call.
pub struct Setting {
    pub world: World,
    /// The roles, then the keys.
    pub callers: Vec<Caller>,
    /// What is nobody's of them.
    pub objects: Objects,
    /// The other person, whose objects have the letter `p`.
    pub other: Caller,
    _issuer: FakeIssuer,
}

impl Caller {
    async fn new(world: &World, name: impl Into<String>, secret: &str) -> Self {
        let access = world.anna.by(secret);
        let mut people = PeopleClient::new(world.shared_channel().await.unwrap());
        let asked = people.get_caller(access.request(GetCallerRequest {})).await;
        let known = asked.unwrap().into_inner();
        let person = known.person.parse().ok();
        let name_space = known.name_space;
        Self { name: name.into(), access, person, name_space, own: None }
    }

    /// Key of a conversation that the caller begins; `None` for programs, which share their names.
    fn own_key(&self) -> Option<String> {
        // A guest's conversations are made for one request each.
        let name = if self.name.starts_with("guest") { "once-1" } else { "trip" };
        let space = &self.name_space;
        (!space.is_empty()).then(|| format!("agent:main:api:{space}{name}"))
    }
}

impl Setting {
    pub async fn start() -> Self {
        let issuer = FakeIssuer::start().await.unwrap();
        let url = issuer.url();
        let world = World::start_with_memory_and(|config: &mut Config| {
            trust(config, &url);
            config.gateway.rate_window = std::time::Duration::from_secs(600);
            config.egress.allow.push("127.0.0.1".to_owned());
        });
        let world = world.await.unwrap();
        let token = |name: &str, role: &str| {
            issuer.token(json!({"sub": name, "org": "anna", "groups": [role], "name": name}))
        };
        let mut callers = Vec::new();
        for role in ROLES {
            callers.push(Caller::new(&world, role, &token(role, role)).await);
        }
        for scopes in SCOPES {
            let key = world.key(&world.anna, scopes, None).await.unwrap();
            callers.push(Caller::new(&world, scopes.join(", "), &key).await);
        }
        let member = callers.iter().find(|caller| caller.name == "member").unwrap().person;
        let new = NewKey {
            name: "terminal".to_owned(),
            scopes: vec!["chat".to_owned(), "read".to_owned()],
            lifetime: None,
            person: member,
            agent: None,
            origins: Vec::new(),
        };
        let made = world.directory.keys().create(world.anna.id, Actor::Operator, new).await;
        let (_, secret) = made.unwrap();
        callers.push(Caller::new(&world, "a member's", secret.expose_secret()).await);

        let other = Caller::new(&world, "other", &token("other", "member")).await;
        let owner = callers.iter().find(|caller| caller.name == "owner").unwrap().person.unwrap();
        let objects = Objects::create(&world, other.person.unwrap(), owner).await;
        for at in 0..callers.len() {
            let Some(key) = callers[at].own_key() else { continue };
            let known = callers[..at].iter().filter_map(|caller| caller.own.clone());
            let known = known.into_iter().find(|own| own.key == key);
            callers[at].own = Some(match known {
                Some(own) => own,
                None => Object::own(&world, at, &key, callers[at].person).await,
            });
        }
        log_events(&world).await;
        Self { world, callers, objects, other, _issuer: issuer }
    }

    /// Everything that a caller is tried with: what is theirs first.
    pub fn objects_for<'a>(&'a self, caller: &'a Caller) -> impl Iterator<Item = &'a Object> {
        caller.own.iter().chain(self.objects.all())
    }
}
