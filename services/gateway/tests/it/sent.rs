//! Files sent with a message are stored in the agent's workspace and named in the message.

use holdfast_proto::gateway::v1::{MessageAttachment, SendRequest};
use holdfast_types::Entry;
use tonic::Code;

use crate::world::{World, done, message};

fn file(name: &str, media_type: &str, content: &[u8]) -> MessageAttachment {
    MessageAttachment {
        name: name.into(),
        media_type: media_type.into(),
        content: content.to_vec(),
        ..MessageAttachment::default()
    }
}

#[tokio::test]
async fn a_file_that_a_caller_sends_is_the_agents_and_sent_again_it_is_the_same() {
    let world = World::start().await.unwrap();
    let png = b"\x89PNG\r\n\x1a\n a cat";
    let mut large = vec![b'x'; 5 * 1024 * 1024];
    large[0] = b'y';
    let request = || SendRequest {
        request_id: "r".into(),
        attachments: vec![file("cat", "", png), file("../notes", "text/csv", &large)],
        ..message("")
    };

    let first = world.send(&world.anna, request()).await.unwrap();
    let again = world.send(&world.anna, request()).await.unwrap();

    assert!(!first.duplicate && again.duplicate);
    done(&world.follow(&world.anna, &first.message_id).await.unwrap());
    let session = first.session_id.parse().unwrap();
    let journal = world.sessions.views().history(world.anna.id, session, 10, None).await.unwrap();
    let body = journal.into_iter().find_map(|view| match view.entry {
        Entry::Heard { body, .. } => Some(body),
        _ => None,
    });
    let attachments = body.unwrap().attachments;
    let kept: Vec<_> = attachments
        .iter()
        .map(|one| (one.kind.as_str(), one.file.as_ref().unwrap().media_type.as_str()))
        .collect();
    assert_eq!(kept, [("picture", "image/png"), ("file", "text/csv")]);
    let path = attachments[1].file.as_ref().unwrap().path.clone();
    assert!(path.starts_with("media/") && path.ends_with(".csv"), "{path}");
}

#[tokio::test]
async fn files_that_are_too_much_are_refused_and_nothing_is_accepted() {
    let world = World::start().await.unwrap();
    for (attachments, told) in [
        (vec![file("a", "", b"")], "`attachments[0]` has 0 bytes"),
        (vec![file("a", "", b"x"); 9], "9 attachments, and 8 are the most"),
        (vec![file("a", "", &vec![7; 10 * 1024 * 1024 + 1])], "10485760 are taken"),
    ] {
        let request = SendRequest { attachments, ..message("look") };

        let refused = world.send(&world.anna, request).await.unwrap_err();

        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(told), "{}", refused.message());
    }
    let empty = world.send(&world.anna, message("")).await.unwrap_err();
    assert!(empty.message().contains("is empty"), "{}", empty.message());
}
