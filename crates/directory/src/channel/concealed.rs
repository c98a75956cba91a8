//! Secrets in settings, which everybody who lists accounts reads: passwords in addresses, and keys of IRC
//! channels. New settings have none; what older versions stored is masked where it is shown.

use serde_json::Value;

use super::UnusableAccount;

const MASK: &str = "***";

/// Returns settings with their secrets masked.
#[must_use]
pub fn concealed(settings: &Value) -> Value {
    conceal_value(MASK, "", settings)
}

/// Checks that settings which are stored have no secret.
///
/// # Errors
///
/// [`UnusableAccount`] names the field, and says where the secret belongs.
pub(super) fn check(settings: &Value) -> Result<(), UnusableAccount> {
    let mut fields = settings.as_object().into_iter().flatten();
    let Some((field, _)) = fields.find(|(name, value)| has_secret(name, value)) else {
        return Ok(());
    };
    Err(UnusableAccount(match field.as_str() {
        "channels" => "`settings.channels` has the key of a channel, and settings are not secret: \
                       write \"#team\" there, and \"#team key\" to `secrets.channel_keys`"
            .to_owned(),
        field => format!(
            "`settings.{field}` has a user name or a password in an address, and settings are not \
             secret: leave it out; for a webhook write the header to `secrets.authorization`"
        ),
    }))
}

/// Whether a field has a secret, or the mask of one.
fn has_secret(field: &str, value: &Value) -> bool {
    conceal_value("", field, value) != *value
}

fn conceal_value(mask: &str, field: &str, value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(match field {
            "channels" => conceal_key(mask, text),
            _ => conceal_address(mask, text),
        }),
        Value::Array(items) => items.iter().map(|item| conceal_value(mask, field, item)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            let shown =
                |(name, value): (&String, &Value)| (name.clone(), conceal_value(mask, name, value));
            Value::Object(fields.map(shown).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Masks the key after the name of a channel.
fn conceal_key(mask: &str, text: &str) -> String {
    match text.split_once(' ') {
        Some((channel, _)) if channel.starts_with(['#', '&', '+', '!']) => {
            format!("{channel} {mask}")
        }
        Some(_) | None => text.to_owned(),
    }
}

/// Masks the user name and the password of a URL.
fn conceal_address(mask: &str, text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let is_scheme = scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    match authority.rsplit_once('@') {
        Some((_, host)) if is_scheme => format!("{scheme}://{mask}@{host}{path}"),
        Some(_) | None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_in_settings_are_masked_and_refused() {
        for (settings, shown, told) in [
            (
                json!({"channels": ["#team", "#private S3CRET"]}),
                json!({"channels": ["#team", "#private ***"]}),
                "`secrets.channel_keys`",
            ),
            (
                json!({"url": "https://anna:S3CRET@example.com/hook?a=b@c"}),
                json!({"url": "https://***@example.com/hook?a=b@c"}),
                "`settings.url`",
            ),
            (
                json!({"smtp": {"proxy": "socks5://anna:S3CRET@10.0.0.1"}}),
                json!({"smtp": {"proxy": "socks5://***@10.0.0.1"}}),
                "`settings.smtp`",
            ),
        ] {
            assert_eq!(concealed(&settings), shown);
            let refused = check(&settings).unwrap_err().to_string();
            assert!(refused.contains(told) && !refused.contains("S3CRET"), "{refused}");
            assert!(check(&shown).is_err(), "a mask is no value");
        }
    }

    #[test]
    fn other_settings_stay_as_they_are() {
        let settings = json!({
            "url": "https://example.com/hook?to=anna@example.com", "user": "@bot:example.com",
            "channels": ["#team"], "title": "Ask us at anna@example.com", "port": 6697,
            "origins": ["https://example.com"], "tls": true, "greeting": null,
        });

        assert_eq!(concealed(&settings), settings);
        assert_eq!(check(&settings), Ok(()));
    }
}
