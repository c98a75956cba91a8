//! The credentials in the addresses reach the server as they were meant.

use holdfast_bus::{Bus, Error};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpListener,
};

use crate::world::config;

/// What a server is told by a client with these credentials before its address.
async fn told(login: &str) -> Value {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let _bus =
        Bus::connect(&config(&format!("nats://{login}{address}"), ""), "test").await.unwrap();
    let (socket, _) = listener.accept().await.unwrap();
    let mut socket = BufReader::new(socket);
    let info = r#"INFO {"server_id":"x","server_name":"x","version":"2.12.0","host":"127.0.0.1",
        "port":4222,"proto":1,"headers":true,"max_payload":1048576}"#;
    let info = format!("{}\r\n", info.replace('\n', ""));
    socket.get_mut().write_all(info.as_bytes()).await.unwrap();
    let mut line = String::new();
    socket.read_line(&mut line).await.unwrap();
    serde_json::from_str(line.strip_prefix("CONNECT ").unwrap()).unwrap()
}

#[tokio::test]
async fn a_password_with_special_characters_and_a_token_are_sent_as_they_are() {
    let by_password = told("ann%40home:a%2Fb%25:c@").await;
    let by_token = told("s3cr%40t@").await;
    let by_nothing = told("").await;

    assert_eq!(
        (&by_password["user"], &by_password["pass"]),
        (&"ann@home".into(), &"a/b%:c".into())
    );
    assert_eq!((&by_token["auth_token"], &by_token["user"]), (&"s3cr@t".into(), &Value::Null));
    assert_eq!((&by_nothing["user"], &by_nothing["auth_token"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn servers_with_different_credentials_are_refused_at_the_start() {
    let connect = async |url: &str| Bus::connect(&config(url, ""), "test").await;

    let refused = connect("nats://a:b@127.0.0.1:1,nats://a:c@127.0.0.1:2").await.unwrap_err();
    let unreadable = connect("nats://a:%ff@127.0.0.1:1").await.unwrap_err();
    let same = connect("nats://a:b@127.0.0.1:1,nats://127.0.0.1:2").await;

    assert!(matches!(refused, Error::Config { setting: "url", .. }), "{refused}");
    assert!(matches!(unreadable, Error::Config { setting: "url", .. }), "{unreadable}");
    assert!(same.is_ok());
}
