//! Connections: a secret is stored sealed, and used for its own service and tenant only.

use holdfast_directory::{Error, NewConnection};
use holdfast_types::{ConnectionKind, ConnectionScope, ConnectionSettings, Fault as _, Kind};
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::world::{BY, World};

pub fn calendar(name: &str, url: &str, secret: Option<&str>) -> NewConnection {
    let to = ConnectionSettings::from_settings(
        ConnectionKind::Caldav,
        json!({ "url": url, "user": "anna" }),
    );
    NewConnection {
        name: name.to_owned(),
        to: to.unwrap(),
        agent: None,
        used_by: ConnectionScope::Owner,
        secret: secret.map(Into::into),
    }
}

pub const HOME: &str = "https://dav.example.com/anna/";

#[tokio::test]
async fn a_secret_is_sealed_and_opens_for_its_own_tenant_and_name() {
    let world = World::new().await;
    let (acme, _) = world.tenant("acme").await;
    let (other, _) = world.tenant("other").await;
    let directory = &world.directory;

    let put =
        directory.connections().put(acme.id, BY, calendar("home", HOME, Some("geheim"))).await;
    let put = put.unwrap();
    let (opened, secret) = directory.connections().open(acme.id, "home").await.unwrap();
    let theirs = directory.connections().open(other.id, "home").await.unwrap_err();
    directory
        .connections()
        .put(other.id, BY, calendar("home", HOME, Some("anders")))
        .await
        .unwrap();

    assert!(put.has_secret);
    assert_eq!(opened, put);
    assert_eq!(secret.unwrap().expose_secret(), "geheim");
    assert_eq!(theirs.kind(), Kind::NotFound);
    assert_eq!(directory.connections().list(acme.id).await.unwrap(), [put]);
    // The stored bytes do not contain the secret, and do not open in another tenant's row.
    let mut admin = world.admin().await;
    let stored: Vec<u8> =
        sqlx::query_scalar("select secret from control.connections where tenant_id = $1")
            .bind(acme.id.as_uuid())
            .fetch_one(&mut admin)
            .await
            .unwrap();
    assert!(!stored.windows(6).any(|bytes| bytes == b"geheim"));
    sqlx::query("update control.connections set secret = $1 where tenant_id = $2")
        .bind(&stored)
        .bind(other.id.as_uuid())
        .execute(&mut admin)
        .await
        .unwrap();
    let moved = directory.connections().open(other.id, "home").await.unwrap_err();
    assert!(matches!(moved, Error::Unsealable(_)), "{moved}");
    let audit = world.audit(acme.id).await;
    assert_eq!(audit.last().unwrap().1, "connection.put");
    assert!(!format!("{audit:?}").contains("geheim"));
}

#[tokio::test]
async fn a_stored_secret_goes_to_no_other_place() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let put = async |new| world.directory.connections().put(tenant.id, BY, new).await;
    put(calendar("home", HOME, Some("geheim"))).await.unwrap();

    let elsewhere = put(calendar("home", "https://evil.example/", None)).await.unwrap_err();
    let renamed =
        NewConnection { used_by: ConnectionScope::Everyone, ..calendar("home", HOME, None) };
    let kept = put(renamed).await.unwrap();
    let moved = put(calendar("home", "https://new.example/", Some("neu"))).await.unwrap();

    assert!(elsewhere.to_string().contains("give the secret again"), "{elsewhere}");
    assert!(kept.has_secret && kept.used_by == ConnectionScope::Everyone);
    assert_eq!(moved.to.endpoint(), "https://new.example/");
    let (_, secret) = world.directory.connections().open(tenant.id, "home").await.unwrap();
    assert_eq!(secret.unwrap().expose_secret(), "neu");
}

#[tokio::test]
async fn an_agent_has_its_own_and_those_of_all_and_they_go_with_it() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let coach = world.agent(tenant.id, "coach").await;
    let main = world.directory.agents().default_agent(tenant.id).await.unwrap();
    let put = async |new| world.directory.connections().put(tenant.id, BY, new).await;
    put(calendar("all", HOME, None)).await.unwrap();
    let own = NewConnection { agent: Some("coach".into()), ..calendar("own", HOME, None) };
    put(own).await.unwrap();
    let nobodys = NewConnection { agent: Some("nobody".into()), ..calendar("x", HOME, None) };

    let names = async |agent| {
        let found = world.directory.connections().of_agent(tenant.id, agent).await.unwrap();
        found.into_iter().map(|connection| connection.name).collect::<Vec<_>>()
    };

    assert_eq!(put(nobodys).await.unwrap_err().kind(), Kind::NotFound);
    assert_eq!(
        (names(coach.id).await, names(main.id).await.len()),
        (vec!["all".to_owned(), "own".to_owned()], 1)
    );
    world.directory.agents().delete(tenant.id, BY, "coach").await.unwrap();
    assert_eq!(world.directory.connections().list(tenant.id).await.unwrap().len(), 1);
    world.directory.connections().delete(tenant.id, BY, "all").await.unwrap();
    let gone = world.directory.connections().delete(tenant.id, BY, "all").await.unwrap_err();
    assert_eq!(gone.kind(), Kind::NotFound);
}

#[tokio::test]
async fn a_secret_with_a_line_s_end_is_refused() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;

    let wrong = calendar("home", HOME, Some("a\r\nX: y"));
    let refused = world.directory.connections().put(tenant.id, BY, wrong).await.unwrap_err();

    assert!(refused.to_string().contains("no line's end"), "{refused}");
}
