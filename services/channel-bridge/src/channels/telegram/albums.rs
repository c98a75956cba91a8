//! Albums: several files that a person sent as one message come as several updates.

use serde_json::Value;

/// Merges the updates of each album into its first one. The others keep their numbers and become
/// empty, so that they are confirmed in order.
pub(super) fn merge(updates: Vec<Value>) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::with_capacity(updates.len());
    for mut update in updates {
        let first = album_of(&update).and_then(|album| {
            merged.iter_mut().find(|earlier| album_of(earlier).as_ref() == Some(&album))
        });
        if let Some(first) = first {
            let message = update["message"].take();
            match first["message"]["album"].as_array_mut() {
                Some(album) => album.push(message),
                None => first["message"]["album"] = Value::Array(vec![message]),
            }
        }
        merged.push(update);
    }
    merged
}

/// Whether the last update belongs to an album, of which more may come.
pub(super) fn is_open(updates: &[Value]) -> bool {
    updates.last().is_some_and(|last| album_of(last).is_some())
}

/// Returns the chat and the id of an update's album.
fn album_of(update: &Value) -> Option<(i64, String)> {
    let message = &update["message"];
    let album = message["media_group_id"].as_str()?;
    Some((message["chat"]["id"].as_i64()?, album.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn photo(update: i64, chat: i64, album: &str) -> Value {
        json!({"update_id": update, "message": {"message_id": update, "chat": {"id": chat},
            "media_group_id": album}})
    }

    #[test]
    fn an_album_is_one_message_and_its_other_updates_are_empty() {
        let text = json!({"update_id": 3, "message": {"message_id": 3, "text": "x"}});
        let updates = vec![
            photo(1, 7, "a"),
            photo(2, 7, "a"),
            text.clone(),
            photo(4, 8, "a"),
            photo(5, 7, "a"),
        ];

        let merged = merge(updates);

        assert_eq!(merged.len(), 5);
        assert_eq!(merged[0]["message"]["album"].as_array().map(Vec::len), Some(2));
        assert_eq!(merged[2], text);
        assert!(merged[1]["message"].is_null() && merged[4]["message"].is_null());
        assert_eq!(merged[3]["message"]["album"], Value::Null);
        assert!(is_open(&[photo(1, 7, "a")]) && !is_open(&[text]) && !is_open(&[]));
    }
}
