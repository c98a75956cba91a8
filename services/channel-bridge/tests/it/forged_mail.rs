//! Forged mails, through the bridge: none is taken as a mail of the person whom it names.

use std::net::Ipv4Addr;

use holdfast_directory::{Account, Actor, NewAccount};
use holdfast_proto::gateway::v1::{AcceptRequest, SenderAssurance};
use holdfast_testkit::{FakeMail, platforms::AccountSettings};
use serde_json::{Value, json};

use crate::world::{Bridge, World, eventually};

const AGENT: &str = "agent";

/// Pass of the own server for the person who is imitated.
const PASS: &str = "Authentication-Results: mx.x.example; dmarc=pass header.from=example.com\n";

/// What the own server found out about a mail of another sender.
const OF_EVE: &str = "Authentication-Results: mx.x.example; spf=pass smtp.mailfrom=evil.net; \
                      dkim=pass header.d=evil.net; dmarc=fail header.from=example.com\n";

/// The same for a mail that names the other sender.
const OF_EVE_HERSELF: &str =
    "Authentication-Results: mx.x.example; dmarc=pass header.from=evil.net\n";

const ANNA: &str = "From: Anna <anna@example.com>\n";

/// Mails as they arrive, and the sender as whom each is accepted; `None` if it is refused. Anna and
/// everybody at evil.net may write.
fn forged_mails() -> Vec<(&'static str, String, Option<&'static str>)> {
    let own = |results: &str| format!("Authentication-Results: mx.x.example; {results}\n");
    let eve = Some("eve@evil.net");
    let from = |from: &str| format!("{PASS}From: {from}\n");
    let mails = vec![
        ("no header", ANNA.to_owned(), None),
        (
            "foreign server",
            format!(
                "Authentication-Results: mx.google.com; dmarc=pass header.from=example.com\n{ANNA}"
            ),
            None,
        ),
        (
            "own header below an injected one",
            format!("Authentication-Results: mx.evil.net; none\n{PASS}{ANNA}"),
            None,
        ),
        ("own header above an injected one", format!("{OF_EVE}{PASS}{ANNA}"), None),
        (
            "injected below Received of the sender",
            format!("{OF_EVE}Received: from mail.evil.net by mx.x.example\n{PASS}{ANNA}"),
            None,
        ),
        (
            "quoted string in smtp.mailfrom",
            own("spf=pass smtp.mailfrom=\"a; dkim=pass header.d=example.com \"@evil.net") + ANNA,
            None,
        ),
        (
            "escaped quote in smtp.mailfrom",
            own(
                "spf=pass smtp.mailfrom=\"a\\\"; dkim=pass header.d=example.com; x=\\\"\"@evil.net",
            ) + ANNA,
            None,
        ),
        (
            "comment with a result",
            own("spf=fail (dmarc=pass header.from=example.com) smtp.mailfrom=evil.net") + ANNA,
            None,
        ),
        (
            "nested comment",
            own("spf=fail (a (b) ; dmarc=pass header.from=example.com) smtp.mailfrom=evil.net")
                + ANNA,
            None,
        ),
        (
            "open comment",
            own("spf=fail ( ; dmarc=pass header.from=example.com") + PASS + ANNA,
            None,
        ),
        ("two From headers", format!("{PASS}{ANNA}From: eve@evil.net\n"), None),
        (
            "two From headers, the other first",
            format!("{OF_EVE_HERSELF}From: eve@evil.net\n{ANNA}"),
            None,
        ),
        ("From with two addresses", from("anna@example.com, eve@evil.net"), None),
        ("group", from("Friends: anna@example.com;"), None),
        (
            "display name is the address",
            format!("{OF_EVE_HERSELF}From: \"anna@example.com\" <eve@evil.net>\n"),
            eve,
        ),
        (
            "unquoted display name is the address",
            format!("{OF_EVE_HERSELF}From: anna@example.com <eve@evil.net>\n"),
            None,
        ),
        ("Sender", format!("{OF_EVE_HERSELF}From: eve@evil.net\nSender: anna@example.com\n"), eve),
        ("Sender with a pass", format!("{OF_EVE_HERSELF}{ANNA}Sender: eve@evil.net\n"), None),
        (
            "Resent-From",
            format!("{OF_EVE_HERSELF}From: eve@evil.net\nResent-From: anna@example.com\n"),
            eve,
        ),
        (
            "Reply-To",
            format!("{OF_EVE_HERSELF}From: eve@evil.net\nReply-To: anna@example.com\n"),
            eve,
        ),
        ("signature of another domain", own("dkim=pass header.d=evil.net") + ANNA, None),
        ("signature of the public suffix", own("dkim=pass header.d=com") + ANNA, None),
        ("signature of a domain below", own("dkim=pass header.d=eve.example.com") + ANNA, None),
        (
            "signature with an identity of another domain",
            own("dkim=pass header.d=evil.net header.i=anna@example.com") + ANNA,
            None,
        ),
        (
            "two domains in a signature",
            own("dkim=pass header.d=evil.net header.d=example.com") + ANNA,
            None,
        ),
        ("spf alone", own("spf=pass smtp.mailfrom=anna@example.com") + ANNA, None),
        (
            "failed dmarc with a signature",
            own("dmarc=fail header.from=example.com; dkim=pass header.d=example.com") + ANNA,
            None,
        ),
        ("dmarc of another sender", own("dmarc=pass header.from=evil.net") + ANNA, None),
        (
            "dmarc of another sender, and one of nobody",
            own("dmarc=pass header.from=evil.net; dmarc=pass") + ANNA,
            None,
        ),
        ("homograph", from("anna@ex\u{430}mple.com"), None),
        ("homograph in ASCII", from("anna@xn--exmple-4nf.com"), None),
        ("trailing dot", from("anna@example.com."), None),
        ("encoded word as the address", from("=?utf-8?q?anna=40example.com?="), None),
        ("encoded word in the address", from("<=?utf-8?q?anna?=@example.com>"), None),
        (
            "encoded name is the address",
            format!("{OF_EVE_HERSELF}From: =?utf-8?q?anna=40example.com?= <eve@evil.net>\n"),
            eve,
        ),
        ("quoted local part", from("\"anna\"@example.com"), None),
        ("source route", from("<@evil.net:anna@example.com>"), None),
        ("NUL in From", from("anna@example.com\0@evil.net"), None),
        (
            "control character in the results",
            own("dmarc=pass\u{7} header.from=example.com") + PASS + ANNA,
            None,
        ),
        (
            "folded own header above",
            format!("Authentication-Results:\n mx.x.example\n\t; none\n{PASS}{ANNA}"),
            None,
        ),
        (
            "name twice",
            format!(
                "Authentication-Results: mx.x.example 1 mx.x.example 1; dmarc=pass header.from=example.com\n{ANNA}"
            ),
            None,
        ),
        (
            "another version",
            format!(
                "Authentication-Results: mx.x.example 2; dmarc=pass header.from=example.com\n{ANNA}"
            ),
            None,
        ),
        ("none", own("none") + ANNA, None),
        (
            "no name",
            format!("Authentication-Results: dmarc=pass header.from=example.com\n{ANNA}"),
            None,
        ),
        (
            "answer in Anna's thread",
            format!("{OF_EVE}{ANNA}In-Reply-To: <1@example.com>\nReferences: <1@example.com>\n"),
            None,
        ),
    ];
    let message = |(n, (kind, headers, sender)): (usize, (&'static str, String, _))| {
        (kind, format!("{headers}Message-ID: <{n}@evil.net>\n\n{kind}\n"), sender)
    };
    let mut mails: Vec<_> = mails.into_iter().enumerate().map(message).collect();
    for text in ["/approve", "/approve 1a2b3c4d", "/deny", "/elevated full", "/link 123456"] {
        mails.push((text, format!("{OF_EVE}{ANNA}\n{text}\n"), None));
    }
    mails
}

struct Mailbox {
    world: World,
    server: FakeMail,
    account: Account,
    bridge: Bridge,
}

impl Mailbox {
    async fn open(more: Value, server_name: Option<&str>) -> Self {
        let world = World::new().await;
        let server = FakeMail::new(Ipv4Addr::LOCALHOST.into());
        let AccountSettings { mut settings, secrets } = server.account(AGENT).await.unwrap();
        server.set_server(AGENT, server_name);
        settings["allow"] = json!(["anna@example.com", "@evil.net", "@xn--exmple-4nf.com"]);
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let account = world.account("email", settings, secrets).await;
        let bridge = world.bridge().await;
        Self { world, server, account, bridge }
    }

    async fn is_watched(&self) {
        eventually("the mailbox is watched", async || self.server.is_heard(AGENT)).await;
    }

    /// Waits for an honest mail behind those that were put into the mailbox, and returns what was
    /// accepted before it.
    async fn accepted_before_the_last(&self, last: &str) -> Vec<AcceptRequest> {
        self.server.push_verified(
            AGENT,
            "example.com",
            &format!("{ANNA}Message-ID: <{last}@example.com>\n\n{last}\n"),
        );
        eventually("the last mail is taken", async || {
            self.world.gateway.taken().iter().any(|taken| taken.text == last)
        })
        .await;
        let mut taken = self.world.gateway.taken();
        assert_eq!(taken.pop().map(|taken| taken.sender_id), Some("anna@example.com".to_owned()));
        taken
    }

    async fn status(&self) -> (String, String) {
        let statuses = self.world.directory.accounts().statuses(self.world.tenant).await.unwrap();
        let status = statuses.into_iter().find(|status| status.account == self.account.id);
        status.map(|status| (status.state, status.detail)).unwrap_or_default()
    }
}

#[tokio::test]
async fn no_forged_mail_is_taken_as_a_listed_persons() {
    let mailbox = Mailbox::open(json!({}), Some("mx.x.example")).await;
    mailbox.is_watched().await;

    let mails = forged_mails();
    for (_, mail, _) in &mails {
        mailbox.server.push_mail(AGENT, mail);
    }
    let accepted = mailbox.accepted_before_the_last("last").await;

    assert!(mails.len() >= 50, "{}", mails.len());
    for (kind, _, sender) in &mails {
        let taken = accepted.iter().find(|taken| taken.text == *kind);
        assert_eq!(taken.map(|taken| taken.sender_id.as_str()), *sender, "{kind}");
    }
    assert_eq!(accepted.len(), mails.iter().filter(|(_, _, sender)| sender.is_some()).count());
    assert!(accepted.iter().all(|taken| {
        taken.sender_assurance() == SenderAssurance::Verified && taken.sender_name.is_empty()
    }));
    // Each is unread and can be found; those without an author have nobody to be verified.
    let (state, detail) = mailbox.status().await;
    let flags = mailbox.server.flags(AGENT);
    let refused = flags.iter().filter(|(_, flag)| flag == "HoldfastRefused").count();
    assert!(refused > 25, "{refused}");
    eventually("the refusals are counted in the status", async || {
        mailbox.status().await.1.contains(&format!("; {refused} mails were refused because"))
    })
    .await;
    assert!(state == "working" && detail.contains("`mx.x.example`"), "{detail}");
    mailbox.bridge.stop().await;
}

#[tokio::test]
async fn without_a_demand_a_forged_sender_is_a_stranger() {
    for authentication in ["if_present", "off"] {
        let mailbox =
            Mailbox::open(json!({"authentication": authentication}), Some("mx.x.example")).await;
        mailbox.is_watched().await;

        for (_, mail, _) in forged_mails() {
            mailbox.server.push_mail(AGENT, &mail);
        }
        let accepted = mailbox.accepted_before_the_last("last").await;

        assert!(accepted.iter().any(|taken| taken.sender_id == "anna@example.com"));
        for taken in accepted.iter().filter(|taken| taken.sender_id == "anna@example.com") {
            let assurance = taken.sender_assurance();
            assert!(
                matches!(assurance, SenderAssurance::None | SenderAssurance::Weak),
                "{authentication} {}: {assurance:?}",
                taken.text
            );
        }
        mailbox.bridge.stop().await;
    }
}

/// Headers as the providers write them, from their documentation and from published mails.
#[tokio::test]
async fn honest_mails_of_common_providers_are_accepted() {
    let names = "mx.google.com - mx3.messagingengine.com bimi.icloud.com arc.icloud.com \
                 dmarc.icloud.com dkim-verifier.icloud.com spf.icloud.com";
    let mailbox = Mailbox::open(json!({"authserv": names}), None).await;
    mailbox.is_watched().await;
    let mails = [
        (
            "Gmail",
            "Delivered-To: agent@x.example\nReceived: by 2002:a05:6000:1 with SMTP id x1;\n        Mon, 5 Jan 2026 02:00:00 -0800 (PST)\n\
          ARC-Authentication-Results: i=1; mx.google.com;\n       dmarc=pass header.from=evil.net\nReturn-Path: <anna@example.com>\n\
          Received: from mail-sor-f41.google.com (mail-sor-f41.google.com. [209.85.220.41])\n        by mx.google.com with SMTPS id x2\n\
          Received-SPF: pass (google.com: domain of anna@example.com designates 209.85.220.41 as permitted sender) client-ip=209.85.220.41;\n\
          Authentication-Results: mx.google.com;\n       dkim=pass header.i=@example.com header.s=20230601 header.b=\"Ab/1+c=\";\n       \
          spf=pass (google.com: domain of anna@example.com designates 209.85.220.41 as permitted sender) smtp.mailfrom=anna@example.com;\n       \
          dmarc=pass (p=NONE sp=QUARANTINE dis=NONE) header.from=example.com;\n       dara=pass header.i=@x.example\n",
        ),
        (
            "Outlook",
            "Received: from AM6EUR05FT041.eop-eur05.prod.protection.outlook.com (2603:10a6:20b:1::1)\n by x.outlook.office365.com with HTTPS\n\
          Authentication-Results: spf=pass (sender IP is 209.85.128.45)\n smtp.mailfrom=example.com; dkim=pass (signature was verified)\n \
          header.d=example.com;dmarc=pass action=none\n header.from=example.com;compauth=pass reason=100\n\
          Received-SPF: Pass (protection.outlook.com: domain of example.com designates\n 209.85.128.45 as permitted sender)\n",
        ),
        (
            "Fastmail",
            "Return-Path: <anna@example.com>\nReceived: from phl-compute-04.internal (phl-compute-04.phl.internal [10.202.2.44])\n\t by x (Cyrus) with LMTPA;\n\
          Authentication-Results: mx6.messagingengine.com;\n    arc=none (no signatures found);\n    bimi=skipped (DMARC Policy is not at enforcement);\n    \
          dkim=pass (2048-bit rsa key sha256) header.d=example.com\n    header.i=@example.com header.b=Rfk0Sbln header.a=rsa-sha256\n    header.s=20230601 x-bits=2048;\n    \
          dmarc=pass policy.published-domain-policy=none\n    policy.applied-disposition=none policy.evaluated-disposition=none\n    \
          (p=none,d=none,d.eval=none) policy.policy-from=p\n    header.from=example.com;\n    iprev=pass smtp.remote-ip=209.85.208.41 (mail-ed1-f41.google.com);\n    \
          spf=pass smtp.mailfrom=anna@example.com smtp.helo=mail-ed1-f41.google.com;\n    \
          x-ptr=pass smtp.helo=mail-ed1-f41.google.com policy.ptr=mail-ed1-f41.google.com;\n    x-tls=pass smtp.version=TLSv1.3 smtp.cipher=TLS_AES_256_GCM_SHA384\n    smtp.bits=256/256\n\
          Received: from mail-ed1-f41.google.com\n\tby mx6.messagingengine.com (Postfix) with ESMTPS\n",
        ),
        (
            "iCloud",
            "Received: from p42-mailgateway-smtp.apple.com by p00-icloudmta.apple.com with ESMTP\nX-ICL-SCORE: 3.3\n\
          Authentication-Results: bimi.icloud.com; bimi=skipped reason=\"insufficient dmarc\"\nX-ARC-Info: policy=fail; arc=none\n\
          Authentication-Results: arc.icloud.com; arc=none\nAuthentication-Results: dmarc.icloud.com; dmarc=pass header.from=example.com\n\
          X-DMARC-Info: pass=pass; dmarc-policy=none; s=r1; d=r1; pdomain=example.com\n\
          Authentication-Results: dkim-verifier.icloud.com;\n\tdkim=pass (2048-bit key) header.d=example.com header.i=@example.com header.b=Ab1\n\
          Authentication-Results: spf.icloud.com; spf=pass (spf.icloud.com: domain of\n anna@example.com designates 209.85.208.41 as permitted sender) smtp.mailfrom=anna@example.com\n\
          Received-SPF: pass (spf.icloud.com: domain of anna@example.com)\nReceived: from mail-ed1-f41.google.com by p41.apple.com\n",
        ),
    ];

    for (provider, headers) in mails {
        let mail = format!("{headers}{ANNA}Message-ID: <{provider}@example.com>\n\n{provider}\n");
        mailbox.server.push_mail(AGENT, &mail);
        // What a server of the same name wrote below counts for nobody.
        let failed = headers.replace("=pass", "=fail");
        mailbox.server.push_mail(AGENT, &format!("{failed}{headers}{ANNA}\nforged {provider}\n"));
    }
    mailbox.world.taken(mails.len()).await;
    eventually("all mails are judged", async || {
        let flags = mailbox.server.flags(AGENT);
        flags.iter().filter(|(_, flag)| flag == "HoldfastRefused").count() == mails.len()
    })
    .await;

    let taken = mailbox.world.gateway.taken();
    let texts: Vec<&str> = taken.iter().map(|taken| taken.text.as_str()).collect();
    assert_eq!(texts, mails.map(|(provider, _)| provider));
    assert!(taken.iter().all(|taken| taken.sender_assurance() == SenderAssurance::Verified));
    mailbox.bridge.stop().await;
}

#[tokio::test]
async fn mails_wait_until_the_name_of_the_server_is_known() {
    let mailbox = Mailbox::open(json!({}), None).await;
    eventually("the account fails", async || mailbox.status().await.0 == "failing").await;
    let (_, detail) = mailbox.status().await;
    assert!(
        detail.contains("wrote no `Authentication-Results`") && detail.contains("Set `authserv`"),
        "{detail}"
    );
    let waiting = format!("{PASS}{ANNA}Message-ID: <1@example.com>\n\nwaiting\n");
    mailbox.server.push_mail(AGENT, &waiting);

    // Somebody sets the name.
    let mut settings = mailbox.account.settings.clone();
    settings["authserv"] = json!("mx.x.example");
    let new = NewAccount {
        channel: "email".into(),
        name: "default".into(),
        enabled: true,
        settings,
        secrets: None,
    };
    let accounts = mailbox.world.directory.accounts();
    accounts.update(mailbox.world.tenant, Actor::Operator, mailbox.account.id, new).await.unwrap();

    mailbox.world.taken(1).await;
    assert_eq!(mailbox.world.gateway.taken()[0].text, "waiting");
    // There was one test mail, although the bridge had connected again.
    assert_eq!(mailbox.server.mails(AGENT), 2);
    mailbox.bridge.stop().await;
}

#[tokio::test]
async fn the_name_of_the_server_is_learned_once() {
    let mailbox = Mailbox::open(json!({}), Some("mx7.x.example")).await;
    mailbox.is_watched().await;
    let connections = mailbox.server.connections(AGENT).1;

    // Another host of the provider takes the next mail.
    mailbox.server.cut(AGENT);
    eventually("the bridge connects again", async || {
        mailbox.server.connections(AGENT).1 > connections
    })
    .await;
    mailbox.server.set_server(AGENT, Some("mx12.x.example"));
    assert!(mailbox.accepted_before_the_last("hello").await.is_empty());

    assert_eq!(mailbox.server.mails(AGENT), 2);
    mailbox.bridge.stop().await;
}
