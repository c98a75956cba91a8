//! The promises, each for any channel.

use std::{cell::Cell, time::Duration};

use holdfast_bus::{DeltaBody, Outcome};
use holdfast_directory::channel;
use holdfast_session::{Acceptance, Claim};
use holdfast_types::{AgentId, ApprovalId, ChannelAction, Target, Usage};
use holdfast_workspace::{ChangeAuthor, MAX_MEDIA_BYTES, NewMedia};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tracing_subscriber::EnvFilter;

use super::{Contract, Failure, File, Lack, Platform, Where, Written};
use crate::{silence::Lines, world::eventually};

pub async fn a_message_is_taken_once<P: Platform>() {
    let contract = Contract::<P>::start().await;

    contract.write(Where::Direct, 1, "hello").await;
    contract.world.taken(1).await;
    if !contract.lacks(Lack::MessageIds) {
        contract.write(Where::Direct, 1, "hello").await;
    }
    contract.write(Where::Direct, 2, "again").await;
    contract.world.taken(2).await;

    let taken = contract.world.gateway.taken();
    assert_eq!(contract.world.gateway.texts(), ["hello", "again"]);
    assert_eq!(taken[0].channel, P::CHANNEL);
    assert_eq!(taken[0].account_id, contract.account.id.to_string());
    assert_eq!(taken[0].peer_kind, "direct");
    assert!(!taken[0].silent && !taken[0].sender_id.is_empty());
    assert_ne!(taken[0].idempotency_key, taken[1].idempotency_key);
    // The answer goes back to where the message came from.
    let target = Target {
        thread: Some(taken[0].reply_thread.clone()).filter(|thread| !thread.is_empty()),
        ..contract.target(&taken[0].reply_chat)
    };
    contract.world.reply_to(target, "hi").await;
    let got = contract.got(1).await.remove(0);
    assert_eq!((got.text.as_str(), &got.chat), ("hi", &taken[0].reply_chat));
    contract.stop().await;
}

pub async fn an_allow_list_may_be_written_in_each_form<P: Platform>() {
    let contract = Contract::<P>::start().await;

    for (number, form) in contract.platform.allow_forms().into_iter().enumerate() {
        contract.allow(serde_json::json!("nobody-at-all")).await;
        sleep(Duration::from_millis(500)).await;
        contract.allow(form.clone()).await;
        let before = contract.world.gateway.texts().len();
        let mut id = u32::try_from(number).unwrap() * 1000 + 10;
        let until = Instant::now() + Duration::from_secs(30);
        while contract.world.gateway.texts().len() == before {
            assert!(Instant::now() < until, "{form} lets nobody in");
            contract.platform.is_heard(&contract.world).await;
            id += 1;
            contract.write(Where::Direct, id, "hello").await;
            sleep(Duration::from_millis(200)).await;
        }
    }
    contract.stop().await;
}

pub async fn a_stranger_reaches_nobody_and_is_told_once<P: Platform>() {
    let contract = Contract::<P>::start().await;

    for id in [1, 2] {
        let text = "let me in".to_owned();
        let stranger = Written { is_allowed: false, place: Where::Direct, id, text };
        contract.platform.write(&contract.world, &contract.at, stranger).await;
    }
    contract.write(Where::Direct, 3, "I may").await;
    contract.world.taken(1).await;

    assert_eq!(contract.world.gateway.texts(), ["I may"]);
    let told = |got: &super::Got| got.text.contains("You are not allowed to write");
    let notices = || contract.platform.got(&contract.world).iter().filter(|got| told(got)).count();
    if contract.lacks(Lack::Notices) {
        assert_eq!(notices(), 0);
    } else {
        eventually("the stranger is told", async || notices() > 0).await;
        sleep(Duration::from_millis(500)).await;
        assert_eq!(notices(), 1);
    }
    contract.stop().await;
}

pub async fn in_a_group_only_a_mention_is_answered_and_all_is_kept<P: Platform>() {
    let contract = Contract::<P>::start().await;
    if contract.lacks(Lack::Groups) {
        return contract.stop().await;
    }

    contract.write(Where::Group, 1, "just talking").await;
    contract.write(Where::Mention, 2, "help us").await;
    contract.world.taken(2).await;

    let taken = contract.world.gateway.taken();
    assert!(taken.iter().all(|message| message.peer_kind == "group"));
    assert_eq!(taken[0].peer_id, taken[1].peer_id);
    assert!(taken[0].silent, "a message without a mention is kept without an answer");
    assert!(!taken[1].silent, "a mention is answered");
    assert!(taken[0].text.contains("just talking") && taken[1].text.contains("help us"));
    contract.stop().await;
}

pub async fn a_file_comes_with_its_message<P: Platform>() {
    let contract = Contract::<P>::start().await;
    if contract.lacks(Lack::InboundFiles) {
        return contract.stop().await;
    }

    let file = File { name: "cat.png", content: b"\x89PNG a cat".to_vec() };
    contract.platform.write_file(&contract.world, &contract.at, file).await;
    contract.world.taken(1).await;

    let files = contract.world.gateway.taken().remove(0).attachments;
    assert_eq!(files.len(), 1);
    assert_eq!(files[0].content, b"\x89PNG a cat");
    contract.stop().await;
}

pub async fn a_file_goes_out<P: Platform>() {
    let contract = Contract::<P>::start().await;
    if contract.lacks(Lack::Files) {
        assert!(!contract.offers("media"), "an agent is offered what the platform does not have");
        return contract.stop().await;
    }

    assert!(contract.offers("media"));
    let by = ChangeAuthor::new("main", "a test");
    let new = vec![NewMedia { name: "a.csv".into(), content: b"1,2".to_vec() }];
    let files = &contract.world.files;
    let stored =
        files.store_media(contract.world.tenant, AgentId::generate(), None, &by, new).await;
    let file = stored.unwrap().remove(0);
    let target = contract.target(contract.platform.chat());
    let act = ChannelAction::Media { file, voice: false };
    let id = contract.world.act(target, "look", act).await;
    contract.world.delivered(id, "sent").await;

    let got = contract.got(1).await;
    let (name, size) = got.iter().find_map(|got| got.file.clone()).unwrap();
    assert!(name.ends_with(".csv"), "{name}");
    assert_eq!(size, 3);
    assert!(got.iter().any(|got| got.text == "look"), "{got:?}");
    contract.stop().await;
}

pub async fn a_file_that_is_too_large_comes_without_its_content<P: Platform>() {
    let contract = Contract::<P>::start().await;
    if contract.lacks(Lack::InboundFiles) || contract.lacks(Lack::FileLimit) {
        return contract.stop().await;
    }

    let mut content = b"\x89PNG a cat".to_vec();
    content.resize(usize::try_from(MAX_MEDIA_BYTES).unwrap() + 1, b'x');
    let file = File { name: "cat.png", content };
    contract.platform.write_file(&contract.world, &contract.at, file).await;
    contract.world.taken(1).await;

    let taken = contract.world.gateway.taken().remove(0);
    assert!(taken.attachments.iter().all(|file| file.content.is_empty()));
    contract.stop().await;
}

/// Beginning of an answer, and the whole of it.
const BEGINNING: &str = "The train leaves at ten past nine from platform four";
const WHOLE: &str = "The train leaves at ten past nine from platform four, every day.";

/// Begins a turn whose answer is shown while it is written.
async fn begin_preview<P: Platform>(contract: &Contract<P>) -> (Acceptance, Claim) {
    let (mut settings, _) = contract.platform.account();
    settings["allow"] = json!([contract.platform.allow_forms().remove(0)]);
    settings["streaming"] = json!("edits");
    let before = contract.platform.sign_ins(&contract.world);
    contract.change(settings, None).await;
    eventually("the bridge has signed in anew", async || {
        contract.platform.sign_ins(&contract.world) > before
    })
    .await;
    contract.platform.is_heard(&contract.world).await;
    let turn = contract.world.begin_turn(contract.target(contract.platform.chat())).await;
    contract.write(Where::Direct, 1, "When does it leave?").await;
    contract.world.taken(1).await;
    // What was published before the bridge has subscribed is lost, as it may be in a product.
    let next = Cell::new(0);
    eventually("the beginning is shown", async || {
        let n = next.replace(next.get() + 2);
        contract.world.publish(&turn, n, DeltaBody::StepRestarted);
        contract.world.publish(&turn, n + 1, DeltaBody::Text { text: BEGINNING.to_owned() });
        sleep(Duration::from_millis(300)).await;
        !contract.platform.shown(&contract.world).is_empty()
    })
    .await;
    let shown = contract.platform.shown(&contract.world);
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert!(shown[0].ends_with("from platform …"), "{shown:?}");
    let text = " every day".to_owned();
    contract.world.publish(&turn, next.get(), DeltaBody::Text { text });
    eventually("the message is edited", async || {
        contract.platform.shown(&contract.world)[0].ends_with("four every …")
    })
    .await;
    turn
}

fn done(turn: &(Acceptance, Claim)) -> DeltaBody {
    DeltaBody::Done {
        seqs: vec![turn.0.seq],
        text: String::new(),
        outcome: Outcome::Completed,
        reason: None,
        usage: Usage::default(),
        model: String::new(),
        calls: Vec::new(),
    }
}

pub async fn an_answer_is_shown_while_it_is_written_and_replaced_by_the_whole<P: Platform>() {
    let contract = Contract::<P>::start().await;
    if contract.lacks(Lack::Edits) {
        return contract.stop().await;
    }
    let turn = begin_preview(&contract).await;

    let target = contract.target(contract.platform.chat());
    let id = contract.world.end_turn(&turn, Some((target.clone(), WHOLE))).await;
    contract.world.publish(&turn, 900, done(&turn));
    let delivery = contract.world.delivered(id, "sent").await;
    sleep(Duration::from_secs(2)).await;

    assert_eq!(contract.platform.shown(&contract.world), [WHOLE]);
    assert!(delivery.platform_id.is_some_and(|id| !id.is_empty()));
    // The next answer is a message of its own.
    let id = contract.world.reply_to(target, "another").await;
    contract.world.delivered(id, "sent").await;
    assert_eq!(contract.platform.shown(&contract.world), [WHOLE, "another"]);
    contract.stop().await;
}

pub async fn a_preview_that_nothing_replaces_is_deleted<P: Platform>() {
    let contract = Contract::<P>::start().await;
    if contract.lacks(Lack::Edits) {
        return contract.stop().await;
    }
    let turn = begin_preview(&contract).await;

    contract.world.end_turn(&turn, None).await;
    contract.world.publish(&turn, 900, done(&turn));

    eventually("the message is gone", async || contract.platform.shown(&contract.world).is_empty())
        .await;
    contract.stop().await;
}

pub async fn an_answer_comes_once_when_the_bridge_of_its_preview_is_lost<P: Platform>() {
    let contract = Contract::<P>::start().await;
    if contract.lacks(Lack::Edits) {
        return contract.stop().await;
    }
    let turn = begin_preview(&contract).await;
    let Contract { world, platform, account, bridge, .. } = contract;
    bridge.stop().await;
    // It was lost in the middle of an edit, which may still be executed.
    let deliveries = world.sessions.deliveries();
    assert!(deliveries.begin_preview_edit(world.tenant, turn.0.message).await.unwrap());

    let target = crate::world::target(P::CHANNEL, account.id, platform.chat());
    let id = world.end_turn(&turn, Some((target, WHOLE))).await;
    let second = world.bridge().await;
    world.delivered(id, "sent").await;

    eventually("only the answer is shown", async || platform.shown(&world) == [WHOLE]).await;
    assert!(!deliveries.begin_preview_edit(world.tenant, turn.0.message).await.unwrap());
    second.stop().await;
}

pub async fn a_long_reply_is_split_with_its_fences<P: Platform>() {
    let contract = Contract::<P>::start().await;
    let code: String = (0..60).map(|n| format!("let value_{n} = {n};\n")).collect();
    let words = "word ".repeat(8000);
    let is_short = P::CHANNEL == channel::IRC;
    let text = if is_short {
        format!(
            "```rust\n{}```",
            code.lines().take(12).map(|line| format!("{line}\n")).collect::<String>()
        )
    } else {
        format!("before\n```rust\n{}```\n{words}", code.repeat(30))
    };

    let id = contract.world.reply(P::CHANNEL, contract.account.id, contract.platform.chat(), &text);
    contract.world.delivered(id.await, "sent").await;
    eventually("all parts are sent", async || {
        contract.world.deliveries().await.iter().all(|delivery| delivery.state == "sent")
    })
    .await;

    let deliveries = contract.world.deliveries().await.len();
    let is_split = !contract.lacks(Lack::Splitting);
    assert_eq!(deliveries > 1, is_split, "{deliveries} parts");
    let got = contract.platform.got(&contract.world);
    let all: String = got.iter().map(|got| format!("{}\n", got.text)).collect();
    let fences = all.matches("```").count() + 2 * all.matches("<pre>").count();
    assert!(fences >= 2 && fences.is_multiple_of(2), "a fence is left open: {all}");
    let times = if is_short { 1 } else { 30 };
    let lines = if is_short { 12 } else { 60 };
    for n in 0..lines {
        assert_eq!(all.matches(&format!("let value_{n} = {n};")).count(), times, "line {n}");
    }
    contract.stop().await;
}

pub async fn a_platform_that_asks_to_wait_is_not_asked_before<P: Platform>() {
    let contract = Contract::<P>::start().await;
    if contract.lacks(Lack::RateLimits) {
        return contract.stop().await;
    }
    contract.platform.fail_next(&contract.world, Failure::RateLimited);

    let began = Instant::now();
    let chat = contract.platform.chat();
    let id = contract.world.reply(P::CHANNEL, contract.account.id, chat, "hi").await;
    let delivery = contract.world.delivered(id, "sent").await;

    assert_eq!(delivery.attempt, 2);
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(contract.got(1).await.len(), 1);
    contract.stop().await;
}

pub async fn a_refusal_is_dead_with_a_reason_without_secrets<P: Platform>() {
    let contract = Contract::<P>::start().await;
    contract.platform.fail_next(&contract.world, Failure::Refused);

    let chat = contract.platform.chat();
    let id = contract.world.reply(P::CHANNEL, contract.account.id, chat, "hi").await;
    let delivery = contract.world.delivered(id, "dead").await;

    let reason = delivery.reason.unwrap();
    assert!(reason.len() > 10, "{reason}");
    assert!(!reason.contains(contract.platform.secret()), "{reason}");
    assert!(contract.platform.got(&contract.world).is_empty());
    contract.stop().await;
}

pub async fn a_lost_answer_ends_as_the_class_says<P: Platform>() {
    let contract = Contract::<P>::start().await;
    contract.platform.fail_next(&contract.world, Failure::AnswerLost);

    let chat = contract.platform.chat();
    let id = contract.world.reply(P::CHANNEL, contract.account.id, chat, "hi").await;
    let state = match P::CHANNEL {
        // Neither takes a key nor can be asked.
        channel::TELEGRAM | channel::IRC => "unknown",
        _ => "sent",
    };
    contract.world.delivered(id, state).await;
    sleep(Duration::from_secs(1)).await;

    assert_eq!(contract.got(1).await.len(), 1, "it arrives once");
    contract.stop().await;
}

pub async fn typing_is_shown_for_what_will_be_answered<P: Platform>() {
    let contract = Contract::<P>::start().await;

    contract.write(Where::Direct, 1, "hello").await;
    contract.world.taken(1).await;

    if contract.lacks(Lack::Typing) {
        assert!(!contract.platform.is_typing_shown(&contract.world));
    } else {
        eventually("typing is shown", async || contract.platform.is_typing_shown(&contract.world))
            .await;
    }
    contract.stop().await;
}

pub async fn a_reaction_arrives<P: Platform>() {
    let contract = Contract::<P>::start().await;
    if contract.lacks(Lack::Reactions) {
        assert!(!contract.offers("react"), "an agent is offered what the platform does not have");
        return contract.stop().await;
    }

    assert!(contract.offers("react"));
    let message = contract.platform.message_id().to_owned();
    let act = ChannelAction::React { message, emoji: "👍".into() };
    let id = contract.world.act(contract.target(contract.platform.chat()), "", act).await;
    contract.world.delivered(id, "sent").await;

    assert_eq!(contract.platform.reactions(&contract.world), 1);
    contract.stop().await;
}

pub async fn a_reply_quotes_and_stays_in_its_thread<P: Platform>() {
    let contract = Contract::<P>::start().await;
    let has_threads = !contract.lacks(Lack::Threads);
    let quotes = !contract.lacks(Lack::Quotes);
    let told = channel::capabilities(P::CHANNEL).contains(&"replyTags");
    assert_eq!(told, quotes, "a model is told of reply tags exactly where they work");

    let group = contract.target(contract.platform.group());
    let (thread, message) = (contract.platform.thread_id(), contract.platform.message_id());
    let in_thread = Target { thread: has_threads.then(|| thread.to_owned()), ..group.clone() };
    let id = contract.world.reply_to(in_thread.clone(), "in its thread").await;
    contract.world.delivered(id, "sent").await;
    let quoting = Target { reply_to: quotes.then(|| message.to_owned()), ..group };
    let id = contract.world.reply_to(quoting.clone(), "as a reply").await;
    contract.world.delivered(id, "sent").await;

    let got = contract.got(2).await;
    assert_eq!((&got[0].thread, &got[0].reply_to), (&in_thread.thread, &None));
    assert_eq!((&got[1].thread, &got[1].reply_to), (&None, &quoting.reply_to));
    contract.stop().await;
}

pub async fn an_approval_is_decided_by_a_button_or_by_words<P: Platform>() {
    let contract = Contract::<P>::start().await;
    let chat = contract.platform.chat();
    let text = "May it launch?\n/approve 1a2b – this once\n/deny 1a2b";

    let id: ApprovalId = contract.world.ask(contract.target(chat), text).await;
    let got = contract.got(1).await;

    if contract.lacks(Lack::Buttons) {
        let word = if P::CHANNEL == channel::IRC { "!approve 1a2b" } else { "/approve 1a2b" };
        let shown: String = got.iter().map(|got| got.text.as_str()).collect();
        assert!(shown.contains(word), "{shown}");
        contract.write(Where::Direct, 1, word).await;
        contract.world.taken(1).await;
        assert_eq!(contract.world.gateway.texts(), ["/approve 1a2b"]);
    } else {
        let buttons = &got[0].buttons;
        assert_eq!(buttons.len(), 3, "{got:?}");
        contract.platform.press(&contract.world, &contract.at, &buttons[0]).await;
        contract.world.taken(1).await;
        assert_eq!(contract.world.gateway.texts(), [format!("/approve {id} once")]);
    }
    contract.stop().await;
}

pub async fn a_lost_connection_is_made_again_and_not_too_often<P: Platform>() {
    let contract = Contract::<P>::start().await;
    if contract.lacks(Lack::Connection) {
        return contract.stop().await;
    }
    contract.write(Where::Direct, 1, "before").await;
    contract.world.taken(1).await;

    let (_, before) = contract.platform.connections(&contract.world);
    contract.platform.cut(&contract.world);
    sleep(Duration::from_millis(100)).await;
    contract.platform.is_heard(&contract.world).await;
    contract.write(Where::Direct, 2, "after").await;
    contract.world.taken(2).await;
    sleep(Duration::from_secs(2)).await;

    let (_, after) = contract.platform.connections(&contract.world);
    assert!(after - before <= 8, "{} connections or polls in about three seconds", after - before);
    assert_eq!(contract.world.gateway.texts(), ["before", "after"]);
    contract.stop().await;
}

pub async fn of_two_bridges_one_connects_and_the_other_takes_over<P: Platform>() {
    let contract = Contract::<P>::start().await;
    if contract.lacks(Lack::Connection) {
        return contract.stop().await;
    }
    let second = contract.world.bridge().await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(contract.platform.connections(&contract.world).0, 1);
    contract.write(Where::Direct, 1, "one").await;
    contract.world.taken(1).await;
    let chat = contract.platform.chat();
    let id = contract.world.reply(P::CHANNEL, contract.account.id, chat, "by one of them").await;
    assert_eq!(contract.world.delivered(id, "sent").await.attempt, 1);

    contract.bridge.stop().await;
    sleep(Duration::from_millis(100)).await;
    contract.platform.is_heard(&contract.world).await;
    contract
        .platform
        .write(
            &contract.world,
            &super::Address { url: second.url.clone(), account: contract.account.id },
            Written { is_allowed: true, place: Where::Direct, id: 2, text: "two".into() },
        )
        .await;
    contract.world.taken(2).await;

    assert_eq!(contract.world.gateway.texts(), ["one", "two"]);
    second.stop().await;
}

pub async fn neither_secrets_nor_texts_are_logged<P: Platform>() {
    let lines = Lines::default();
    let filter = EnvFilter::new("debug,channel_bridge=trace,reqwest=trace");
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(lines.clone()).finish();
    // Each test has one thread, on which its tasks run too.
    let _guard = tracing::subscriber::set_default(subscriber);
    let contract = Contract::<P>::start().await;
    let chat = contract.platform.chat();

    contract.write(Where::Direct, 1, "hush-in").await;
    contract.world.taken(1).await;
    for failure in [Failure::Refused, Failure::AnswerLost] {
        contract.platform.fail_next(&contract.world, failure);
        let id = contract.world.reply(P::CHANNEL, contract.account.id, chat, "hush-out").await;
        eventually("the delivery is settled", async || {
            !["pending", "sending"].contains(&contract.world.delivery(id).await.state.as_str())
        })
        .await;
    }
    let (settings, _) = contract.platform.account();
    let secrets = contract.platform.wrong_secrets();
    contract.change(with_allow_of_nobody(settings), Some(secrets)).await;
    sleep(Duration::from_secs(1)).await;
    let secret = contract.platform.secret();
    contract.stop().await;

    let lines = lines.text();
    assert!(lines.contains("a reply was given up"), "{lines}");
    for hidden in [secret, "hush", "WRONG", crate::world::SECRET] {
        let line = lines.lines().find(|line| line.contains(hidden));
        assert_eq!(line, None, "{hidden}");
    }
}

fn with_allow_of_nobody(mut settings: serde_json::Value) -> serde_json::Value {
    settings["allow"] = serde_json::json!([]);
    settings
}

pub async fn the_status_says_whether_the_platform_accepts_the_account<P: Platform>() {
    let contract = Contract::<P>::start().await;
    let detail = contract.has_status("working").await;
    assert!(!detail.is_empty() && !detail.contains(contract.platform.secret()), "{detail}");
    if contract.lacks(Lack::CredentialCheck) {
        return contract.stop().await;
    }

    let (settings, _) = contract.platform.account();
    let secrets = contract.platform.wrong_secrets();
    contract.change(with_allow_of_nobody(settings), Some(secrets)).await;

    let detail = contract.has_status("failing").await;
    assert!(detail.len() > 15, "{detail}");
    assert!(!detail.contains("WRONG"), "{detail}");
    contract.stop().await;
}
