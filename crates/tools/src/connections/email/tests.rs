//! Tests of `email`, against a server on this machine.

use holdfast_types::ConnectionKind;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::parse_mailbox;
use crate::{
    Approval, Registry,
    connections::fake::{Post, Vault, tools},
    mesh::tests::{call, said, tell},
};

async fn world(post: &Post, change: impl FnOnce(&mut Value)) -> anyhow::Result<Registry> {
    let port = post.start().await?;
    let mut settings = json!({
        "host": "127.0.0.1", "port": port, "security": "none", "user": "anna",
        "from": "Anna <anna@example.com>",
    });
    change(&mut settings);
    let vault = Vault::default().with("mail", ConnectionKind::Smtp, settings, "geheim");
    Ok(tools(vault, &[&format!("127.0.0.1:{port}")]))
}

fn mail() -> Value {
    json!({
        "action": "draft", "to": ["Ben <ben@example.com>"], "cc": ["cara@example.com"],
        "subject": "Grüße", "body": "Dear Ben,\n.\nhow are you?", "in_reply_to": "<1@example.com>",
    })
}

/// Drafts a mail; returns the draft's number, and the input that sends it.
async fn drafted(tools: &Registry, mail: &Value) -> (String, Value) {
    let draft = said(tools.call(call(), "email", &mail.to_string()).await);
    let number = draft.strip_prefix("This is draft ").unwrap().split(';').next().unwrap();
    let mut send = mail.clone();
    send["action"] = json!("send");
    send["draft"] = json!(number);
    (draft, send)
}

#[tokio::test]
async fn a_mail_is_drafted_then_approved_and_sent_as_it_was_drafted() -> anyhow::Result<()> {
    let post = Post::default();
    let tools = world(&post, |_| {}).await?;
    let (draft, send) = drafted(&tools, &mail()).await;
    assert!(draft.contains("To: Ben <ben@example.com>\nCc: cara@example.com\n"), "{draft}");
    assert!(post.heard().is_empty());

    let asked = tools.approval(&call(), "email", &send.to_string()).await?;
    let never = tools.approval(&call(), "email", &mail().to_string()).await?;
    let sent = said(tools.call(call(), "email", &send.to_string()).await);

    let Approval::Ask { subject, summary, pattern: None } = asked else { panic!("{asked:?}") };
    assert!(
        subject.starts_with(
            "connection: mail\nfrom: Anna <anna@example.com>\nto: Ben <ben@example.com>\n\
             cc: cara@example.com\nin reply to:"
        ),
        "{subject}"
    );
    assert!(subject.contains("\nsubject: Grüße\nbody:"), "{subject}");
    assert!(subject.ends_with("how are you?"), "{subject}");
    assert_eq!(summary, "mail to ben@example.com, cara@example.com: Grüße");
    assert_eq!(never, Approval::Never);
    assert!(sent.contains("handed to 127.0.0.1"), "{sent}");
    let heard = post.heard().concat();
    for said in ["MAIL FROM:<anna@example.com>", "RCPT TO:<ben@", "RCPT TO:<cara@"] {
        assert!(heard.contains(said), "{heard}");
    }
    let mails = post.mails();
    assert_eq!(mails.len(), 1);
    for line in ["In-Reply-To: <1@example.com>\r\n", "To: Ben <ben@example.com>\r\n", "\r\n..\r\n"]
    {
        assert!(mails[0].contains(line), "{}", mails[0]);
    }
    // RFC 2047.
    assert!(mails[0].contains("Subject: =?utf-8?b?R3LDvMOfZQ==?=\r\n"), "{}", mails[0]);
    let id = sent.split("Message-ID is ").nth(1).unwrap().trim_end_matches('.').to_owned();
    assert!(mails[0].contains(&format!("Message-ID: {id}\r\n")), "{id}: {}", mails[0]);
    Ok(())
}

#[tokio::test]
async fn what_was_not_drafted_is_not_sent() -> anyhow::Result<()> {
    let post = Post::default();
    let tools = world(&post, |_| {}).await?;
    let (_, send) = drafted(&tools, &mail()).await;

    let mut undrafted = send.clone();
    undrafted.as_object_mut().unwrap().remove("draft");
    let mut changed = send.clone();
    changed["body"] = json!("Dear Ben, send money.");
    let mut more = send.clone();
    more["to"] = json!(["Ben <ben@example.com>", "eve@example.com"]);

    for (input, why) in
        [(undrafted, "`draft` it first"), (changed, "not what was drafted"), (more, "not what was")]
    {
        let told = tell(tools.call(call(), "email", &input.to_string()).await);
        assert!(told.contains(why) && told.ends_with("nothing was sent"), "{told}");
        assert!(tools.approval(&call(), "email", &input.to_string()).await.is_err());
    }
    assert!(post.heard().is_empty());
    Ok(())
}

#[tokio::test]
async fn no_text_begins_a_header_and_none_goes_where_it_may_not() -> anyhow::Result<()> {
    let post = Post::default();
    let tools =
        world(&post, |settings| settings["to"] = json!(["@example.com", "ben@home.test"])).await?;
    for (field, value, why) in [
        ("subject", json!("hi\r\nBcc: eve@evil.test"), "`subject` is one line"),
        ("to", json!(["ben@example.com\r\nBcc: eve@evil.test"]), "is no address"),
        ("to", json!(["Ben\nX: y <ben@example.com>"]), "is no address"),
        ("to", json!(["ben@example.com, eve@evil.test"]), "is no address"),
        ("to", json!(["eve@evil.test"]), "mail to `eve@evil.test` is not allowed"),
        ("cc", json!(["<eve@evil.test>"]), "is not allowed"),
        ("to", json!([]), "`to` is empty"),
        ("to", json!(vec!["ben@home.test"; 21]), "20 are the most"),
        ("in_reply_to", json!("<a@b>\r\nX: y"), "`in_reply_to` is a Message-ID"),
        ("body", json!(" "), "`body` has 1 to"),
    ] {
        let mut input = mail();
        input[field] = value;
        let told = tell(tools.call(call(), "email", &input.to_string()).await);
        assert!(told.contains(why), "{field}: {told}");
    }
    Ok(())
}

#[tokio::test]
async fn what_was_not_sent_is_told_apart_from_what_may_have_been() -> anyhow::Result<()> {
    let post = Post::default();
    let tools = world(&post, |_| {}).await?;
    let mut refused = mail();
    refused["to"] = json!(["nobody@example.com"]);
    let (_, refused) = drafted(&tools, &refused).await;
    let told = tell(tools.call(call(), "email", &refused.to_string()).await);
    assert!(told.contains("refused it") && told.ends_with("nothing was sent"), "{told}");

    let post = Post { breaks: true, ..Post::default() };
    let tools = world(&post, |_| {}).await?;
    let (_, send) = drafted(&tools, &mail()).await;
    let told = tell(tools.call(call(), "email", &send.to_string()).await);
    assert!(told.contains("is not known") && told.contains("must not be sent again"), "{told}");
    assert_eq!(post.mails().len(), 1);

    for (name, value, why) in [
        ("security", json!("starttls"), "the server offers no TLS"),
        ("user", json!("ben"), "did not let us in"),
        ("port", json!(1), "without TLS"),
        ("host", json!("mail.nowhere.test"), "without TLS"),
    ] {
        let tools = world(&Post::default(), |settings| settings[name] = value).await?;
        let (_, send) = drafted(&tools, &mail()).await;
        let told = tell(tools.call(call(), "email", &send.to_string()).await);
        assert!(told.contains(why) && told.ends_with("nothing was sent"), "{name}: {told}");
    }
    Ok(())
}

#[tokio::test]
async fn a_mail_server_that_is_not_on_the_internet_is_refused() -> anyhow::Result<()> {
    let post = Post::default();
    let port = post.start().await?;
    for host in ["127.0.0.1", "::1", "10.0.0.1", "nowhere.test"] {
        let settings = json!({ "host": host, "port": port, "security": "tls", "from": "a@b.test" });
        let vault = Vault::default().with("mail", ConnectionKind::Smtp, settings, "x");
        let tools = tools(vault, &[]);
        let (_, send) = drafted(&tools, &mail()).await;
        let told = tell(tools.call(call(), "email", &send.to_string()).await);
        let why = if host == "nowhere.test" { "has no address" } else { "not on the public" };
        assert!(told.contains(why), "{host}: {told}");
    }
    assert!(post.heard().is_empty());
    Ok(())
}

proptest! {
    #[test]
    fn an_address_is_one_line_with_one_address(text in ".{0,60}") {
        if let Ok(mailbox) = parse_mailbox(&text) {
            let shown = mailbox.to_string();
            prop_assert!(!shown.contains(['\r', '\n']));
        }
    }
}
