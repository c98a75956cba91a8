//! Actions besides sending text, as JSON for a program.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_types::ChannelAction;
use serde_json::{Value, json};

/// Maximum size of a file, in bytes, before base64, which adds a third.
const MAX_FILE_BYTES: usize = 5 * 1024 * 1024;

/// Returns the fields of a post that describe an action.
pub(super) fn action_fields(act: &ChannelAction, file: Option<&[u8]>) -> Result<Value, String> {
    let mut fields = match act {
        ChannelAction::Delete { message } => json!({"message_id": message}),
        ChannelAction::React { message, emoji } => json!({"message_id": message, "emoji": emoji}),
        ChannelAction::Pin { message } | ChannelAction::Unpin { message } => {
            json!({"message_id": message})
        }
        ChannelAction::Poll { options } => json!({"poll_options": options}),
        ChannelAction::Thread { name } => json!({"thread_name": name}),
        ChannelAction::Event => json!({}),
        ChannelAction::Close { approval, message } => {
            json!({"approval": approval, "message_id": message})
        }
        ChannelAction::Embed { embed } => json!({"embed": embed}),
        ChannelAction::Unknown => return Err("the action is not known".to_owned()),
        ChannelAction::Media { file: stored, voice } => {
            let content = file.ok_or("its file is gone")?;
            if content.len() > MAX_FILE_BYTES {
                let size = content.len();
                return Err(format!(
                    "the file has {size} bytes, and {MAX_FILE_BYTES} are the most"
                ));
            }
            json!({"file": {
                "name": stored.name(),
                "media_type": stored.media_type,
                "size": stored.size,
                "voice": voice,
                "content": STANDARD.encode(content),
            }})
        }
    };
    fields["action"] = act.name().into();
    Ok(fields)
}

pub(super) fn add_fields(body: &mut Value, fields: Value) {
    if let (Value::Object(body), Value::Object(fields)) = (body, fields) {
        body.extend(fields);
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::StoredFile;

    use super::*;

    #[test]
    fn a_file_goes_along_and_one_that_is_too_large_is_refused() {
        let file = StoredFile {
            path: "reports/a.csv".into(),
            media_type: "text/csv".into(),
            size: 2,
            hash: String::new(),
        };
        let act = ChannelAction::Media { file, voice: false };

        let fields = action_fields(&act, Some(b"hi")).unwrap();
        assert_eq!(
            (&fields["action"], &fields["file"]["name"]),
            (&"media".into(), &"a.csv".into())
        );
        assert_eq!(fields["file"]["content"], "aGk=");
        assert!(action_fields(&act, Some(&vec![0; MAX_FILE_BYTES + 1])).is_err());
        assert!(action_fields(&act, None).is_err());
    }
}
